"""A get that is slowed down on purpose misses its floor in every measurement."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hymcache.cli.region.contest import paired, ratio
from hymcache.cli.region.workload import Workload

from figures.target import Figure, Verdict, until_reached
from figures.world import MIB, medium, populated_region, shared_memory


def measured(times: int, folder: Path) -> Iterable[Figure]:
    with (
        medium(folder) as path,
        populated_region(path, 64 * MIB) as region,
        Workload(region, 4 * MIB, 64 * MIB).stored() as work,
    ):
        memcpy, get = work.get_bare("memcpy"), work.get()
        one = get.work
        get.work = lambda i: all(map(one, [i] * times))
        paired([memcpy, get], work.count, 4, 5)
        yield Figure("get", ratio(memcpy, get, cpu=True), floor=0.85, goal=1.3, wrong=memcpy.failures + get.failures)


def test_a_get_that_copies_five_times_is_below_its_floor_each_time() -> None:
    (slow,) = until_reached(lambda: measured(5, shared_memory()), sleep=lambda _: None)
    assert (slow.verdict, slow.measurements) == (Verdict.BELOW, 4)
