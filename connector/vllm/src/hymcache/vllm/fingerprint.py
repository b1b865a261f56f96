"""The namespace fingerprint: everything that makes the bytes of a KV block mean what they mean.

The region keeps objects of different fingerprints apart, so two models, precisions, layouts or chunk sizes share one
region and never see each other's bytes. Nothing here depends on the machine, the mount path of the model or the process
that asks: engines agree on the fingerprint by computing it. A field too many costs hits; a field too few costs wrong
text. Block hashes (tokens, prefix, LoRA name, multimodal content, salt) are the key, not the fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, Final

FORMAT: Final = 1  # of this description and of the order of bytes inside a unit
NOT_MEANING: Final = frozenset({"_name_or_path", "transformers_version"})


def _plain(value: Any) -> Any:
    """JSON-able, with a stable text for what is not; where a model lies and who saved it are left out."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items() if k not in NOT_MEANING}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(str(item) for item in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    return str(value)


def fingerprint(parts: Mapping[str, Any]) -> bytes:
    """32 bytes: sha256 of the canonical JSON of `parts`."""
    text = json.dumps(_plain(parts), sort_keys=True, separators=(",", ":"), allow_nan=True)
    return hashlib.sha256(text.encode()).digest()


def _describe_model(model: Any) -> dict[str, Any]:
    multimodal = getattr(model, "multimodal_config", None)
    return {
        "config": model.hf_config.to_dict(),
        "dtype": str(model.dtype),
        "quantization": model.quantization,
        "quantization_config": getattr(model, "quantization_config", None),
        "overrides": model.hf_overrides,
        "class_overrides": getattr(model, "model_class_overrides", None),
        "implementation": str(model.model_impl),
        "disable_sliding_window": model.disable_sliding_window,
        "processor": getattr(multimodal, "mm_processor_kwargs", None),
        "seed": model.seed,  # decides the weights when they are made up (load_format=dummy)
    }


def describe_engine(vllm_config: Any, offloading_config: Any) -> dict[str, Any]:
    """What the configuration says: model, cache, parallel sizes, hashes. Equal in every process of an engine.

    Args:
        vllm_config: vLLM's `VllmConfig`.
        offloading_config: vLLM's `OffloadingConfig`, its own view of groups, sizes and layout.
    """
    cache, parallel = vllm_config.cache_config, offloading_config.parallel
    speculative = vllm_config.speculative_config
    draft = getattr(speculative, "draft_model_config", None)
    return {
        "format": FORMAT,
        "model": _describe_model(vllm_config.model_config),
        "draft": None if draft is None else _describe_model(draft),
        "draft_method": getattr(speculative, "method", None),
        "cache": {
            "dtype": offloading_config.model.dtype,
            "requested_dtype": str(cache.cache_dtype),
            "skip_layers": cache.kv_cache_dtype_skip_layers,
            "layout": offloading_config.kv_cache_layout,
            "canonical": offloading_config.canonical_layout,
            "fast_prefill": cache.kv_sharing_fast_prefill,
            "tokens_per_hash": offloading_config.cache.tokens_per_hash,
            "blocks_per_chunk": offloading_config.cache.blocks_per_chunk,
            "groups": [(g.group_id, g.tokens_per_block, g.layer_names) for g in offloading_config.groups],
            "bytes_per_block": offloading_config.worker_kv_bytes_per_block,
        },
        "parallel": [parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size],
        "hash": [cache.prefix_caching_hash_algo, os.environ.get("PYTHONHASHSEED")],
    }


def describe_pages(kv_cache_groups: Any, caches: Any, kernels: list[str], device: str) -> dict[str, Any]:
    """What only the worker sees: the pages as they were registered and who arranged their bytes.

    Args:
        kv_cache_groups: vLLM's `KVCacheConfig.kv_cache_groups` of the worker.
        caches: vLLM's `CanonicalKVCaches`.
        kernels: attention back ends and what else decides the order of bytes inside a page.
        device: torch's device type.
    """
    return {
        "device": device,
        "kernels": kernels,
        "specs": [repr(group.kv_cache_spec) for group in kv_cache_groups],
        "pages": [
            [[ref.tensor_idx, ref.page_size_bytes, caches.tensors[ref.tensor_idx].page_size_bytes] for ref in refs]
            for refs in caches.group_data_refs
        ],
    }
