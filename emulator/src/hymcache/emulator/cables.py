"""Cables: one unix socket per host, on which the blade hands out the memory that the fabric connected to that host.

`<cable_dir>/<system uuid>/<blade>.sock`, protocol `hymcache.region.handover`. **Whoever can connect there is that
host**, so the folder is the access control: it is made with `cable_mode`, 0700 unless set otherwise (the appliance's
own user; a node's plugin runs as the same one), while `cable_dir` itself may be entered by all. A folder that exists is
used as it is: it may be a mount point of a node, which a folder made anew would leave pointing at a dead one - hence
only sockets are removed at shutdown, folders only with their host.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hymcache.emulator.blade import Blade
from hymcache.emulator.model import Access, Chunk, Host, HostName, Link
from hymcache.region.handover import HandoverError, Server

log = logging.getLogger(__name__)
Reply = dict[str, Any]


class Cables:
    """The sockets of one blade. `powered` says whether the blade has power: without it every link is down."""

    def __init__(self, folder: Path | None, blade: Blade, powered: Callable[[], bool]) -> None:
        self._folder = folder
        self._blade = blade
        self._powered = powered
        self._servers: dict[HostName, Server] = {}
        self._made: set[Path] = set()

    def sync(self) -> None:
        """Make the sockets be those of the blade's hosts. Raises HandoverError or OSError: a socket cannot be made."""
        if self._folder is None:
            return
        hosts = self._blade.view.hosts
        for name in [name for name in self._servers if name not in hosts]:
            server = self._servers.pop(name)
            server.close()
            if server.path.parent in self._made:
                with contextlib.suppress(OSError):  # another blade's socket is in it
                    server.path.parent.rmdir()
        for host in hosts.values():
            if host.name not in self._servers:
                self._servers[host.name] = self._serve(host)

    def path(self, host: Host) -> Path | None:
        """Where a host's socket is; None for an appliance without cables."""
        return self._folder / host.uuid / f"{self._blade.settings.blade}.sock" if self._folder else None

    def close(self) -> None:
        """Hang up on every host and remove the sockets."""
        while self._servers:
            self._servers.popitem()[1].close()

    def _serve(self, host: Host) -> Server:
        path = self.path(host)
        assert path is not None, "called for an appliance with cables"
        path.parent.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(mode=0o700)
            path.parent.chmod(self._blade.settings.cable_mode)
            self._made.add(path.parent)
        log.info("cable host=%s socket=%s", host.name, path)
        return Server(path, lambda request: self._answer(host.name, request))

    def _answer(self, name: HostName, request: Reply) -> tuple[Reply, int | None]:
        """One request of a host; from a thread of the socket's server."""
        host = self._blade.view.hosts.get(name)
        if host is None or host.link is Link.DOWN or not self._powered():
            blade = self._blade.settings.blade
            raise HandoverError("link-down", f"the link between host {name} and blade {blade} is down; repair it")
        match request["op"]:
            case "hello":
                return self._hello(host), None
            case "list":
                regions = self._blade.view.regions_of(name)
                return {"ok": True, "regions": [_entry(chunk, access) for chunk, access in regions]}, None
            case "open":
                return self._open(name, request.get("region"))
            case other:
                raise HandoverError("bad-request", f"expected op hello, list or open, found {other!r}")

    def _hello(self, host: Host) -> Reply:
        settings = self._blade.settings
        return {
            "ok": True,
            "blade": settings.blade,
            "host": host.uuid,
            "coherence": settings.coherence.value,
            "media": settings.media.value,
            "power_epoch": self._blade.view.power_epoch,
        }

    def _open(self, name: HostName, region: object) -> tuple[Reply, int | None]:
        chunk = self._choose(name, region)
        opened = self._blade.open(name, chunk.id)
        if opened is None:
            raise _not_connected(name, chunk.name)
        descriptor, access = opened
        settings = self._blade.settings
        declared = {"coherence": settings.coherence.value, "media": settings.media.value}
        return {"ok": True, **_entry(chunk, access), **declared}, descriptor

    def _choose(self, name: HostName, region: object) -> Chunk:
        """The one chunk that a host means; two of the same name are nobody's: guessing would be handing out."""
        view = self._blade.view
        mine = [chunk for chunk, _ in view.regions_of(name) if region is None or chunk.name == region]
        if len(mine) == 1:
            return mine[0]
        if mine:
            what = "regions" if region is None else f"regions named {region}"
            raise HandoverError("bad-request", f"host {name}: expected one region, found {len(mine)} {what}; name one")
        if region is not None and not view.chunks_named(str(region)):
            raise HandoverError("no-such-region", f"region {region}: blade {self._blade.settings.blade} has none")
        raise _not_connected(name, str(region or "any"))


def _entry(chunk: Chunk, access: Access) -> Reply:
    return {"region": chunk.name, "bytes": chunk.bytes, "access": access.value}


def _not_connected(host: HostName, region: str) -> HandoverError:
    return HandoverError(
        "not-connected", f"region {region}: no connection of the fabric gives it to host {host}; create one first"
    )
