"""`hymcache-dra-plugin`: read the settings, connect, serve until SIGTERM.

Exit status: 0 after SIGTERM or SIGINT, 1 when the kubelet refused the plugin or it could not start.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import structlog
from hymcache.dra import logs
from hymcache.dra.clients import ApiError
from hymcache.dra.clients.kube import Kube
from hymcache.dra.metrics import Metrics
from hymcache.dra.plugin import VERSION, Plugin, assemble
from hymcache.dra.settings import load
from hymcache.dra.superblock import Superblock

log = structlog.get_logger()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plugin; the process's exit status."""
    settings = load(argv)
    logs.configure(settings.log_level, node=settings.node_name, version=VERSION)
    metrics = Metrics()
    try:
        api = Kube(
            settings.node_name,
            kubeconfig=settings.kubeconfig,
            timeout_seconds=settings.api_timeout_seconds,
            errors=metrics.api_errors,
        )
        plugin = Plugin(assemble(settings, api, Superblock(), metrics))
    except (ApiError, OSError, ValueError) as error:
        log.error("cannot start", error=str(error))
        return 1
    return plugin.run()


if __name__ == "__main__":
    sys.exit(main())
