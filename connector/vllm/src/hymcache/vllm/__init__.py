"""vLLM's KV cache shared through a CXL memory region, and nothing between the two but loads and stores.

vLLM finds the connector by two flags, `--prefix-caching-hash-algo sha256_cbor` and a `--kv-transfer-config` that names
`HymCacheConnector` in the module `hymcache.vllm`; the region comes from the environment (`settings.py`).

One request, process by process:

- scheduler: `connector.on_new_request` probes the region's directory with the request's block hashes (`manager.py`);
  `manager.lookup` reads the answer; hits become a load job that carries the keys.
- worker: `worker.py` copies each chunk from the region into the paged KV cache and verifies it on the way; a chunk that
  fails makes its blocks invalid and vLLM recomputes them. New chunks are copied into the region after the forward pass.

Importing this package imports neither vLLM nor torch: `compat.py`, which does, is loaded with the connector's classes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {"HymCacheConnector": "hymcache.vllm.connector", "HymCacheSpec": "hymcache.vllm.spec"}

__all__ = ["HymCacheConnector", "HymCacheSpec"]


def __getattr__(name: str) -> Any:
    """Load a class of the connector at its first use: vLLM looks it up by name on this module."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
