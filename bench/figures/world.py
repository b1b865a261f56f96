"""Regions to measure in: made on shared memory, removed afterwards."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hymcache.region import Region

MIB = 1 << 20
CHUNK_BYTES = 2 * MIB


def shared_memory() -> Path:
    """Where files are memory."""
    folder = Path("/dev/shm")
    return folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())


def is_busy() -> bool:
    """True when this machine has no CPU left now for one more thread than this one."""
    runnable = []
    for _ in range(5):
        runnable.append(int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]))
        time.sleep(0.02)
    return statistics.median(runnable) + 1 > (os.cpu_count() or 1)


def quiet_within(
    seconds: float, *, busy: Callable[[], bool] = is_busy, sleep: Callable[[float], None] = time.sleep
) -> bool:
    """Wait until this machine has a CPU to spare, at most so long. True when it has one."""
    for _ in range(max(1, round(seconds))):
        if not busy():
            return True
        sleep(1)
    return not busy()


@contextlib.contextmanager
def medium(folder: Path) -> Iterator[Path]:
    """A path for a region."""
    with tempfile.TemporaryDirectory(prefix="hymcache-figures-", dir=folder) as name:
        yield Path(name) / "region"


@contextlib.contextmanager
def populated_region(path: Path, room: int, *, domains: int = 1, used: bool = True) -> Iterator[Region]:
    """A populated region attached to domain 0 with room for `room` bytes and a quarter more.

    Every chunk was written once and its object evicted, unless `used` is false.
    """
    chunks = room * 5 // 4 // CHUNK_BYTES + 16
    size = domains * chunks * CHUNK_BYTES + 64 * MIB
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    Region.format(path, size=size, chunk_bytes=CHUNK_BYTES, domains=domains, objects=domains * 4096)
    with Region.attach(path, host="one") as region:
        wait_until_populated(region)
        if used:
            use_every_chunk(region)
        yield region


def wait_until_populated(region: Region, seconds: float = 60) -> None:
    """Wait until the background has faulted everything in."""
    deadline = time.monotonic() + seconds
    while region.info().populating and time.monotonic() < deadline:
        time.sleep(0.01)


def use_every_chunk(region: Region) -> None:
    """Write every chunk of domain 0 once."""
    space = region.namespace(bytes(32))
    block = os.urandom(CHUNK_BYTES)
    keys = [b"used-%d" % i for i in range(region.chunk_use(0)["free"])]
    for key in keys:
        space.put(key, block)
    space.evict(keys)
    use = region.chunk_use(0)
    if use["free"]:
        raise RuntimeError(f"domain 0: expected every chunk written, found {use['free']} never used")
