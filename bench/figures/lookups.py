"""Lookups and views from Python, as vLLM's scheduler makes them: 1,000 keys in one call."""

from __future__ import annotations

import contextlib
import hashlib
import operator
import resource
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

from hymcache.cli.region.contest import quantile
from hymcache.region import Namespace, Region

from figures.target import Figure
from figures.world import MIB, is_busy, medium

KEYS = 1000
CALLS = 300
FINGERPRINT = bytes(32)
CLOCK = time.perf_counter
SWITCHES = partial(resource.getrusage, resource.RUSAGE_THREAD)
Timed = tuple[resource.struct_rusage, float, object, float, resource.struct_rusage]


def seconds(call: Callable[[], object], calls: int) -> tuple[list[float], int]:
    """What each of so many calls took, without those during which the machine gave this thread's CPU to another one.

    The clock is read by the same C loop that calls. The interpreter hands its lock to a waiting thread between byte
    codes and has it back 5 ms later: no part of a call that keeps the lock, as long as `call` is no Python function,
    whose first byte code may be the place. Who waits for the lock switches of its own accord: such calls stay.

    Returns:
        Seconds of each call, and how many more there were that are left out.
    """
    times: list[float] = []
    preempted = 0
    steps: tuple[Callable[[], object], ...] = (SWITCHES, CLOCK, call, CLOCK, SWITCHES)
    while len(times) < calls and preempted < 10 * calls:
        run = cast("Timed", tuple(map(operator.call, steps)))
        if run[0].ru_nivcsw == run[4].ru_nivcsw:
            times.append(run[3] - run[1])
        else:
            preempted += 1
    if len(times) < calls:
        raise RuntimeError(f"lookup: the machine let {len(times)} of {calls + preempted} calls run to their end")
    return times, preempted


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
            look = partial(space.lookup, packed, 32)
            busy = is_busy()
            times, _ = seconds(look, CALLS)
            name = f"lookup of {KEYS} keys, {domains} domain{'s' if domains > 1 else ''}"
            detail = "the fastest tenth: the machine is busy" if busy else "median"
            value = 1e6 * quantile(times, 0.1 if busy else 0.5)
            yield Figure(name, value, "us", floor, goal, True, wrong, detail)
            if domains == 1:
                with busy_thread():
                    times, preempted = seconds(look, CALLS)
                spread = quantile(times, 0.99) / quantile(times, 0.5)
                detail = f"without {preempted} more calls that other processes preempted"
                yield Figure("p99 / p50 of that beside a busy thread", spread, "x", 3, 3, True, wrong, detail)


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
            times, _ = seconds(lambda: view(b"key").still_valid(), 2000)
            wrong = int(not view(b"key").still_valid())
            yield Figure("zero-copy view", 1e6 * quantile(times, 0.5), "us", 10, 3, True, wrong)
