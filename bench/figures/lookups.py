"""Lookups and views from Python, as vLLM's scheduler makes them: 1,000 keys in one call."""

from __future__ import annotations

import contextlib
import hashlib
import operator
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from hymcache.cli.region.contest import quantile
from hymcache.region import Namespace, Region

from figures.target import Figure
from figures.world import MIB, is_busy, medium

KEYS = 1000
CALLS = 300
FINGERPRINT = bytes(32)


def seconds(call: Callable[[], object], calls: int) -> list[float]:
    """What each call took.

    The clock is read by the same C loop that calls: the interpreter's own switch between threads happens between byte
    codes and takes 5 ms, and is no part of a call that keeps the lock.
    """
    clock = time.perf_counter
    times: list[float] = []
    for _ in range(calls):
        before, _, after = cast("tuple[float, object, float]", tuple(map(operator.call, (clock, call, clock))))
        times.append(after - before)
    return times


@contextlib.contextmanager
def filled(folder: Path, domains: int) -> Iterator[tuple[Namespace, bytes, Region]]:
    """A region whose domains hold the keys evenly, attached to domain 0."""
    packed = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(KEYS))
    keys = [packed[i : i + 32] for i in range(0, len(packed), 32)]
    with medium(folder) as path, contextlib.ExitStack() as stack:
        Region.format(path, size=domains * 160 * MIB, chunk_bytes=64 << 10, domains=domains)
        regions = [stack.enter_context(Region.attach(path, domain=i, host=f"host-{i}")) for i in range(domains)]
        spaces = [region.namespace(FINGERPRINT) for region in regions]
        for index, key in enumerate(keys):
            if not spaces[index % domains].put(key, key):
                raise RuntimeError("lookup: a key was not stored")
        yield spaces[0], packed, regions[0]


@contextlib.contextmanager
def busy_thread() -> Iterator[None]:
    """Another thread of this process that never waits."""
    ending = threading.Event()

    def spin() -> None:
        number = 0
        while not ending.is_set():
            number = (number * 7 + 1) % 1000003

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def lookups(folder: Path) -> Iterator[Figure]:
    """1,000 keys that are all there, in one domain and spread over four without coherence between them."""
    for domains, floor, goal in ((1, 120, 70), (4, 400, 200)):
        with filled(folder, domains) as (space, packed, _):
            wrong = int(space.lookup(packed, 32) != KEYS)

            def look(space: Namespace = space, packed: bytes = packed) -> int:
                return space.lookup(packed, 32)

            busy = is_busy()
            times = seconds(look, CALLS)
            name = f"lookup of {KEYS} keys, {domains} domain{'s' if domains > 1 else ''}"
            detail = "the fastest tenth: the machine is busy" if busy else "median"
            value = 1e6 * quantile(times, 0.1 if busy else 0.5)
            yield Figure(name, value, "us", floor, goal, True, wrong, detail)
            if domains == 1:
                with busy_thread():
                    times = seconds(look, CALLS)
                spread, limit = quantile(times, 0.99) / quantile(times, 0.5), None if busy else 3
                detail = "nothing is asked of it: the machine is busy" if busy else ""
                yield Figure("p99 / p50 of that beside a busy thread", spread, "x", limit, limit, True, wrong, detail)


def views(folder: Path) -> Iterator[Figure]:
    """A zero-copy view of an object of the own domain, from call to validity check."""
    with medium(folder) as path:
        Region.format(path, size=64 * MIB)
        with Region.attach(path) as region:
            space = region.namespace(FINGERPRINT)
            view = getattr(space, "view", None)
            if view is None:
                return
            space.put(b"key", bytes(MIB))
            times = seconds(lambda: view(b"key").still_valid(), 2000)
            wrong = int(not view(b"key").still_valid())
            yield Figure("zero-copy view", 1e6 * quantile(times, 0.5), "us", 10, 3, True, wrong)
