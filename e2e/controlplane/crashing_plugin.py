"""The plugin, ended right after chosen writes to the API server.

See `crashing` for how it is told. A write of the own host entry is noted by what it says, one of the CXLNode as
`node`. Every change of a file or of memory has its own test beside the plugin, without an API server.
"""

from __future__ import annotations

from pathlib import Path

from hymcache.dra.clients import Object
from hymcache.dra.clients.kube import Kube
from hymcache.dra.metrics import Metrics
from hymcache.dra.plugin import Plugin, assemble
from hymcache.dra.settings import load
from hymcache.dra.superblock import Superblock
from prometheus_client import Counter

from controlplane.crashing import Crash


class CrashingKube(Kube):
    """The API server, with a crash after chosen writes."""

    def __init__(self, node: str, *, kubeconfig: Path | None, timeout_seconds: float, errors: Counter) -> None:
        super().__init__(node, kubeconfig=kubeconfig, timeout_seconds=timeout_seconds, errors=errors)
        self._crash = Crash.planned()

    def apply_host(self, region: str, entry: Object) -> None:
        """See `Api`."""
        super().apply_host(region, entry)
        self._crash(f"host {entry['desired']} {entry['state']}")

    def apply_node(self, name: str, status: Object) -> None:
        """See `Api`."""
        super().apply_node(name, status)
        self._crash("node")


def main() -> int:
    """Run the plugin; an entry for `Process`. Its exit status."""
    settings, metrics = load(None), Metrics()
    api = CrashingKube(
        settings.node_name,
        kubeconfig=settings.kubeconfig,
        timeout_seconds=settings.api_timeout_seconds,
        errors=metrics.api_errors,
    )
    return Plugin(assemble(settings, api, Superblock(), metrics)).run()
