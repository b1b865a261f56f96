"""Puts and gets against memcpy of the same memory: own and foreign domain, used and fresh slots, pages, threads."""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue

from hymcache.cli.region.bench import row
from hymcache.cli.region.contest import TURN_BYTES, Contestant, paired, ratio
from hymcache.cli.region.workload import FINGERPRINT, Workload, address
from hymcache.region import Blocks, Region

from figures.target import Figure
from figures.world import MIB, is_busy, medium, populated_region, quiet_within, wait_until_populated

WORKING_SET = 256 * MIB
ROUNDS = 11
PAGE_BYTES = 32 << 10
QUIET_SECONDS = 10
"""For a second CPU: other work passes, and on a machine that has none for us nothing can be asked of two threads."""
BUSY = f"nothing is asked of it: the machine was busy for {QUIET_SECONDS} s"


def contest(work: Workload, baseline: Contestant, ours: Contestant, rounds: int = ROUNDS) -> tuple[float, int]:
    """(how many times as fast as the baseline, wrong or missing copies).

    Beside other work on the machine CPU time is compared: the copies are of one thread and wait for nothing.
    """
    per_turn = max(1, min(TURN_BYTES // work.bytes, work.count // 2))
    paired([baseline, ours], work.count, per_turn, rounds)
    return ratio(baseline, ours, cpu=is_busy()), baseline.failures + ours.failures


def plainly(copy: Callable[[str, Blocks], None], blocks: Blocks) -> bool:
    """memcpy, page by page."""
    copy("memcpy", blocks)
    return True


def own_domain(folder: Path) -> Iterator[Figure]:
    """Verified gets and puts of the own domain, used slots."""
    with medium(folder) as path, populated_region(path, WORKING_SET) as region:
        for mib, floor, goal in ((1, 0.9, 1.1), (4, 1.0, 1.3), (32, 1.0, 1.3)):
            with Workload(region, mib * MIB, WORKING_SET).stored() as work:
                got = row("get", work, work.get, work.get_bare, ROUNDS, cpu=is_busy())
                wrong, kernel = got.failures, f"best bare {got.best_bare}, kernel {region.info().kernel}"
                name = f"get {mib} MiB, own domain"
                yield Figure(
                    f"{name}, against memcpy", got.to_memcpy or 0, "x", floor, goal, wrong=wrong, detail=kernel
                )
                if mib == 1:
                    continue
                yield Figure(
                    f"{name}, against best bare", got.to_bare or 0, "x", 0.85, 0.95, wrong=wrong, detail=kernel
                )
                if mib == 4:
                    cpu = got.cpu_to_memcpy or 99.0
                    yield Figure(f"{name}, CPU time against memcpy", cpu, "x", 1.1, 0.85, True, wrong)
                put = row("put", work, work.put, work.put_bare, ROUNDS, cpu=is_busy())
                yield Figure(f"put {mib} MiB, used slot", put.to_memcpy or 0, "x", 0.95, 1.2, wrong=put.failures)


def foreign_domain(folder: Path) -> Iterator[Figure]:
    """Verified gets from another host's domain without coherence: every line is dropped from the caches first."""
    with (
        medium(folder) as path,
        populated_region(path, WORKING_SET, domains=2) as region,
        Region.attach(path, domain=1, host="another") as other,
    ):
        theirs = other.namespace(FINGERPRINT)
        for mib in (1, 4, 32):
            with Workload(region, mib * MIB, WORKING_SET).stored() as work:
                value, wrong = contest(work, work.get_bare("memcpy"), work.get(theirs))
                floor, goal = (0.85, 1.05) if mib > 1 else (None, None)
                yield Figure(f"get {mib} MiB, foreign domain", value, "x", floor, goal, wrong=wrong)


def fresh_slots(folder: Path) -> Iterator[Figure]:
    """Puts into slots of a populated region that nobody has written; the baseline keeps to used ones."""
    size, rounds = 4 * MIB, 7
    per_turn = TURN_BYTES // size
    with (
        medium(folder) as path,
        populated_region(path, WORKING_SET + rounds * TURN_BYTES, used=False) as region,
        Workload(region, size, WORKING_SET).stored() as work,
    ):
        names = [b"fresh-%d" % i for i in range(rounds * per_turn)]
        following = iter(names)
        stored: dict[int, bytes] = {}

        def store(index: int) -> bool:
            stored[index] = next(following)
            return work.space.put(stored[index], work.source[index])

        def check(index: int) -> bool:
            return work.space.get_into(stored[index], work.engine[index]) == size and work.arrived(index)

        ours = Contestant("put", store, check=check)
        value, wrong = contest(work, work.put_bare("memcpy"), ours, rounds)
        work.space.evict(names)
        yield Figure("put 4 MiB, never-used slot", value, "x", 0.8, 1.0, wrong=wrong)


def pages(folder: Path) -> Iterator[Figure]:
    """4 MiB gathered from and scattered to pages of 32 KiB in no order; the baseline copies page by page too."""
    size = 4 * MIB
    with (
        medium(folder) as path,
        populated_region(path, 2 * WORKING_SET) as region,
        Workload(region, size, WORKING_SET).stored() as work,
    ):
        count = work.count * size // PAGE_BYTES
        ids = [
            [(i * size // PAGE_BYTES + j) * 7919 % count for j in range(size // PAGE_BYTES)] for i in range(work.count)
        ]
        engine, source = (
            region.pages([(address(side[0]), PAGE_BYTES, PAGE_BYTES, count)]) for side in (work.engine, work.source)
        )
        to, of = [engine.blocks(i) for i in ids], [source.blocks(i) for i in ids]
        space, keys = work.space, [b"paged-%d" % i for i in range(work.count)]
        for key, window, blocks in zip(keys, work.windows, of, strict=True):
            space.evict([key])
            window.copy_in("memcpy", blocks)
            if not space.put(key, blocks):
                raise RuntimeError("pages: an object was not stored")

        def arrived(index: int) -> bool:
            return all(work.same_page(page, PAGE_BYTES) for page in ids[index])

        scatter = Contestant("get", lambda i: space.get_into(keys[i], to[i]) == size, check=arrived)
        value, wrong = contest(work, Contestant("memcpy", lambda i: plainly(work.windows[i].copy_out, to[i])), scatter)
        yield Figure("get 4 MiB, scattered to 32 KiB pages", value, "x", 0.9, 1.1, wrong=wrong)

        def again(index: int) -> bool:
            return space.get_into(keys[index], to[index]) == size and arrived(index)

        gather = Contestant("put", lambda i: space.put(keys[i], of[i]), lambda i: work.evict(keys[i]), again)
        value, wrong = contest(work, Contestant("memcpy", lambda i: plainly(work.windows[i].copy_in, of[i])), gather)
        space.evict(keys)
        yield Figure("put 4 MiB, gathered from 32 KiB pages", value, "x", 0.9, 1.1, wrong=wrong)


class Pair:
    """Two threads that share each turn's objects."""

    def __init__(self, work: Callable[[int], bool]) -> None:
        self._work = work
        self._jobs: SimpleQueue[Sequence[int] | None] = SimpleQueue()
        self._done: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._done.put(all(map(self._work, job)))

    def both(self, index: int, half: int) -> bool:
        """Piece `index` here, piece `index + half` over there."""
        self._jobs.put([index + half])
        mine = self._work(index)
        return self._done.get() and mine

    def close(self) -> None:
        """End the second thread."""
        self._jobs.put(None)
        self._thread.join()


def two_threads(folder: Path) -> Iterator[Figure]:
    """Two threads that get an object each, against one thread that copies two."""
    size = 32 * MIB
    with (
        medium(folder) as path,
        populated_region(path, 2 * WORKING_SET) as region,
        Workload(region, size, 2 * WORKING_SET).stored() as work,
    ):
        half, plain = work.count // 2, work.get_bare("memcpy").work
        pair, busy = Pair(work.get().work), not quiet_within(QUIET_SECONDS)

        def check(index: int) -> bool:
            return work.arrived(index) and work.arrived(index + half)

        one = Contestant("memcpy", lambda i: plain(i) and plain(i + half), check=check)
        two = Contestant("pair", lambda i: pair.both(i, half), check=check)
        with contextlib.closing(pair):
            paired([one, two], half, 1, ROUNDS)
        floor, goal = (None, None) if busy else (1.3, 1.9)
        detail = BUSY if busy else ""
        yield Figure(
            "two threads, 32 MiB", ratio(one, two), "x", floor, goal, wrong=one.failures + two.failures, detail=detail
        )


def second_thread(folder: Path) -> Iterator[Figure]:
    """Gets and puts of a process that attached with two copy threads, against one memcpy."""
    size = 32 * MIB
    with (
        medium(folder) as path,
        populated_region(path, 2 * WORKING_SET) as region,
        Workload(region, size, 2 * WORKING_SET, units=16).stored() as work,
        Region.attach(path, host="one", copy_threads=2) as pair,
    ):
        wait_until_populated(pair)
        busy = not quiet_within(QUIET_SECONDS)
        floor, goal = (None, None) if busy else (1.3, 1.9)
        detail = BUSY if busy else ""
        for name, plain, shared in (
            ("get", work.get_bare("memcpy"), work.get(pair.namespace(FINGERPRINT))),
            ("put", work.put_bare("memcpy"), work.put(pair.namespace(FINGERPRINT))),
        ):
            paired([plain, shared], work.count, 1, ROUNDS)
            wrong = plain.failures + shared.failures
            yield Figure(
                f"{name} by two copy threads, 32 MiB",
                ratio(plain, shared),
                "x",
                floor,
                goal,
                wrong=wrong,
                detail=detail,
            )


def overhead(folder: Path) -> Iterator[Figure]:
    """What a get costs beside its copy: what sixteen of 1 MiB take more than four of 4 MiB."""
    room = 3 * WORKING_SET // 4
    with medium(folder) as path, populated_region(path, 3 * room) as region, contextlib.ExitStack() as stack:
        small = stack.enter_context(Workload(region, MIB, 2 * room).stored())
        large = stack.enter_context(Workload(region, 4 * MIB, room).stored())
        sixteen = Contestant("1 MiB", lambda i: all(map(small.get_one, range(16 * i, 16 * i + 16))))
        four = Contestant("4 MiB", lambda i: all(map(large.get_one, range(4 * i, 4 * i + 4))))
        paired([four, sixteen], small.count // 16, 1, 41)
        microseconds = 1e6 * statistics.median((s - f) / 12 for f, s in zip(four.rounds, sixteen.rounds, strict=True))
        wrong = four.failures + sixteen.failures
        yield Figure("fixed overhead of a get, 1 MiB", microseconds, "us", 30, 10, True, wrong)
