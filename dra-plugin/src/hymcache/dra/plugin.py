"""One running plugin: its parts, its threads, and how they start and end."""

from __future__ import annotations

import signal
import threading
from importlib.metadata import version

import structlog
from hymcache.dra import files
from hymcache.dra.cdi import CdiFolder
from hymcache.dra.checkpoint.store import Checkpoint
from hymcache.dra.claims import Claims
from hymcache.dra.clients import Api
from hymcache.dra.contents import Contents
from hymcache.dra.dax.memfd import Memfd
from hymcache.dra.health import HealthBoard
from hymcache.dra.hosts import HostReports
from hymcache.dra.keeper import Keeper
from hymcache.dra.locks import ClaimLocks, ReportLocks
from hymcache.dra.metrics import Metrics
from hymcache.dra.node import Node
from hymcache.dra.probes import Probes
from hymcache.dra.releases import Releases
from hymcache.dra.service import sockets
from hymcache.dra.service.claims import ClaimService
from hymcache.dra.service.registration import Registration
from hymcache.dra.service.server import Servers
from hymcache.dra.settings import Settings

VERSION = version("hymcache-dra")
STUCK_SECONDS = 120.0  # a turn of the keeper waits for API and cables, each a few seconds; past this it hangs

log = structlog.get_logger()


def assemble(settings: Settings, api: Api, contents: Contents, metrics: Metrics) -> Node:
    """A node's parts, with the folders they need.

    Raises:
        OSError, ValueError: a folder cannot be made or is too deep for sockets, or the boot id cannot be read.
    """
    boot_id = files.boot_id(settings.boot_id_path)
    settings.plugin_dir.mkdir(parents=True, exist_ok=True)
    dax = Memfd(
        cable_dir=settings.cable_dir,
        pods_dir=settings.plugin_dir / "pods",
        host=settings.node_name,
        generation=settings.pod_uid or "single",
        timeout_seconds=settings.cable_timeout_seconds,
    )
    reports = ReportLocks(settings.plugin_dir / "reports")
    return Node(
        settings=settings,
        boot_id=boot_id,
        api=api,
        dax=dax,
        contents=contents,
        checkpoint=Checkpoint(settings.plugin_dir / "claims"),
        locks=ClaimLocks(settings.plugin_dir / "locks"),
        reports=reports,
        cdi=CdiFolder(settings.cdi_dir, settings.driver),
        hosts=HostReports(api, reports, settings.node_name, boot_id, counters_seconds=settings.counters_seconds),
        metrics=metrics,
    )


class Plugin:
    """`run`; or `start`, `wait` until `stop` was asked for or the kubelet refused, then `close`."""

    def __init__(self, node: Node) -> None:
        settings = node.settings
        self._node = node
        self._stop = threading.Event()
        self._refused: str | None = None
        self._paths = sockets.paths(
            driver=settings.driver,
            registry_dir=settings.registry_dir,
            plugin_dir=settings.plugin_dir,
            pod_uid=settings.pod_uid,
        )
        releases = Releases(node)
        board = HealthBoard()
        self._registration = Registration(settings.driver, self._paths.service, self._refuse)
        self._keeper = Keeper(node, releases, board, version=VERSION, registered=self._registration.accepted)
        service = ClaimService(
            Claims(node, releases),
            node.metrics,
            wait_seconds=settings.prepare_wait_seconds,
            workers=settings.workers,
        )
        self._servers = Servers(
            self._paths,
            self._registration,
            service,
            board,
            driver=settings.driver,
            workers=settings.workers,
            health_timeout_seconds=settings.health_timeout_seconds,
        )
        self._loop = threading.Thread(target=self._keeper.run, name="keeper", daemon=True)
        self._probes: Probes | None = None

    def start(self) -> None:
        """Serve the kubelet and begin to look after what an earlier process prepared."""
        settings = self._node.settings
        if settings.listen:
            self._probes = Probes(settings.listen, self._node.metrics, alive=self._alive, ready=self.ready)
        self._loop.start()
        self._servers.start()

    def run(self) -> int:
        """Start, serve until SIGTERM, SIGINT or the kubelet's refusal, close; the process's exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        self.start()
        refused = self.wait()
        self.close()
        return 1 if refused else 0

    def stop(self) -> None:
        """Ask for the end; safe in a signal handler."""
        self._stop.set()

    def wait(self) -> str | None:
        """Block until the end was asked for; the kubelet's reason if it refused the plugin."""
        self._stop.wait()
        return self._refused

    def close(self) -> None:
        """End all threads. Pods keep their memory; checkpoint, CDI files and folders stay for the next process."""
        log.info("stopping")
        self._servers.stop(self._node.settings.stop_grace_seconds)
        self._keeper.stop()
        self._loop.join(2 * self._node.settings.api_timeout_seconds)
        self._node.dax.stop()
        if self._probes is not None:
            self._probes.close()
        log.info("stopped")

    def _refuse(self, reason: str) -> None:
        self._refused = reason or "no reason given"
        self._stop.set()

    def _alive(self) -> str | None:
        if self._keeper.age_seconds() > STUCK_SECONDS:
            return f"the keeper has not ended a turn for {self._keeper.age_seconds():.0f} s; restart the plugin"
        if not sockets.is_served(self._paths.registration):
            return f"nobody serves {self._paths.registration}; restart the plugin"
        return None

    def ready(self) -> str | None:
        """None once it does all that an earlier process did, so that a rolling update may end that one; or why not."""
        if not self._registration.accepted():
            return "the kubelet has not accepted the plugin yet"
        if not self._keeper.caught_up:
            return "claims of an earlier process are not served yet"
        return self._alive()
