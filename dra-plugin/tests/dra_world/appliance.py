"""A blade: sealed memfds, a cable socket per host, and a fabric that decides who gets what."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import threading
from pathlib import Path
from typing import Any

from hymcache.region import Region
from hymcache.region.handover import HandoverError, Server

MARK = b"kv-bytes"
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Appliance:
    """One blade with cables to any number of hosts. `folder/<host>/<blade>.sock` is a host's end of its cable.

    A `dirty` one composes of memory that has another owner's region in it, as most hardware does.
    """

    def __init__(self, folder: Path, blade: str = "blade-1", coherence: str = "software") -> None:
        self.folder = folder
        self.blade = blade
        self.coherence = coherence
        self.power_epoch = 1
        self.regions: dict[str, int] = {}
        self.connections: set[tuple[str, str]] = set()
        self.links_down: set[str] = set()
        self.opened: list[tuple[str, str]] = []
        self.access = "rw"
        self.dirty = False
        self._servers: dict[str, Server] = {}
        self._lock = threading.Lock()

    def cable(self, host: str) -> Path:
        """Lay the cable to a host; the folder that is mounted on it."""
        folder = self.folder / host
        folder.mkdir(parents=True, exist_ok=True)
        self._servers[host] = Server(folder / f"{self.blade}.sock", lambda request: self._answer(host, request))
        return folder

    def cut(self, host: str) -> None:
        """Nobody answers at the host's end any more."""
        self._servers.pop(host).close()

    def compose(self, name: str, size: int, *, sealed: bool = True) -> None:
        """Make a region; composing one that exists changes nothing."""
        with self._lock:
            if name not in self.regions:
                self.regions[name] = _memory(size, sealed=sealed)
                if self.dirty:
                    leave_behind(self.regions[name])

    def connect(self, name: str, host: str) -> None:
        self.connections.add((name, host))

    def disconnect(self, name: str, host: str) -> None:
        self.connections.discard((name, host))

    def release(self, name: str) -> None:
        with self._lock:
            os.close(self.regions.pop(name))

    def power_cycle(self) -> None:
        """All regions come back empty."""
        with self._lock:
            self.power_epoch += 1
            for name, descriptor in self.regions.items():
                size = os.fstat(descriptor).st_size
                os.close(descriptor)
                self.regions[name] = _memory(size, sealed=True)

    def close(self) -> None:
        for host in list(self._servers):
            self.cut(host)
        for name in list(self.regions):
            self.release(name)

    def _answer(self, host: str, request: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
        if host in self.links_down:
            raise HandoverError("link-down", f"the link of {host} is down")
        kind = {"coherence": self.coherence, "media": "dram"}
        if request["op"] == "hello":
            hello = {"ok": True, "blade": self.blade, "host": host, "power_epoch": self.power_epoch}
            return {**hello, **kind}, None
        name = request["region"]
        with self._lock:
            descriptor = self.regions.get(name)
            if descriptor is None:
                raise HandoverError("no-such-region", f"blade {self.blade} has no region {name}")
            if (name, host) not in self.connections:
                raise HandoverError("not-connected", f"region {name} is not connected to {host}")
            size = os.fstat(descriptor).st_size
            self.opened.append((host, name))
            return {"ok": True, "region": name, "bytes": size, "access": self.access, **kind}, os.dup(descriptor)


def _memory(size: int, *, sealed: bool) -> int:
    descriptor = os.memfd_create("region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    if sealed:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    return descriptor


def leave_behind(descriptor: int) -> None:
    """Fill memory with what another owner leaves: a region, and marks in all of its pages."""
    Region.format(descriptor)
    for at in range(4096, os.fstat(descriptor).st_size, 4096):
        os.pwrite(descriptor, MARK, at)


def is_clean(descriptor: int) -> bool:
    """Whether no mark is left anywhere."""
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as memory:
        return memory.find(MARK) < 0


def write_mark(descriptor: int) -> None:
    """Write into the last page, which no empty region has in use."""
    os.pwrite(descriptor, MARK, os.fstat(descriptor).st_size - 4096)


def has_mark(descriptor: int) -> bool:
    """Whether the mark is still there: a format by another name would have taken it."""
    return os.pread(descriptor, len(MARK), os.fstat(descriptor).st_size - 4096) == MARK


def same_memory(one: int, other: int) -> bool:
    """Whether two descriptors are one memory, tried by writing through one and reading through the other."""
    mark = os.urandom(32)
    size = os.fstat(one).st_size
    os.pwrite(one, mark, size - 4096)
    with contextlib.suppress(OSError):
        return os.pread(other, 32, size - 4096) == mark
    return False
