"""Paired rounds: contestants take turns on the same memory, and what counts is the ratio inside a round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

TURN_BYTES = 16 << 20
"""Bytes copied between two looks at the clock of a round."""


@dataclass
class Contestant:
    """Something that does one piece of work, `work(index)` saying whether it did; `check(index)` looks at the result.

    `prepare(index)` makes the work possible again. Only `work` is timed. Times are in seconds; `rounds` and `cpu` have
    one number per turn, `samples` one per piece of work.
    """

    name: str
    work: Callable[[int], bool]
    prepare: Callable[[int], None] | None = None
    check: Callable[[int], bool] | None = None
    rounds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    verified: int = 0
    failures: int = 0

    def turn(self, indices: Sequence[int]) -> None:
        """Do some pieces of work, timed; prepare and check them, untimed."""
        if self.prepare is not None:
            for index in indices:
                self.prepare(index)
        done = []
        clock, work, samples = time.perf_counter, self.work, self.samples
        cpu, started = time.thread_time(), clock()
        before = started
        for index in indices:
            done.append(work(index))
            now = clock()
            samples.append(now - before)
            before = now
        self.rounds.append(before - started)
        self.cpu.append(time.thread_time() - cpu)
        for index, right in zip(indices, done, strict=True):
            if not right or (self.check is not None and not self.check(index)):
                self.failures += 1
            else:
                self.verified += 1


def paired(contestants: Sequence[Contestant], count: int, per_turn: int, rounds: int) -> None:
    """Let everyone have `rounds` turns of `per_turn` pieces each out of `count`, in an order that rotates.

    Successive turns use successive pieces, so that nobody runs on lines that another has just loaded.
    """
    cursor = 0
    for number in range(rounds):
        for place in range(len(contestants)):
            contestant = contestants[(place + number) % len(contestants)]
            contestant.turn([(cursor + i) % count for i in range(per_turn)])
            cursor += per_turn


def ratio(baseline: Contestant, contestant: Contestant, *, cpu: bool = False) -> float:
    """Median over the rounds of baseline / contestant: above 1 the contestant takes less (elapsed or CPU) time."""
    pairs = (
        zip(baseline.cpu, contestant.cpu, strict=True) if cpu else zip(baseline.rounds, contestant.rounds, strict=True)
    )
    return statistics.median(b / c for b, c in pairs)


def quantile(samples: Sequence[float], q: float) -> float:
    """Nearest-rank quantile."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
