"""What a figure must reach, and how it is judged over repetitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

PAUSES = (1.0, 2.0, 4.0)
"""Seconds before each repetition: other work on a machine passes, a slow copy stays."""


class Verdict(StrEnum):
    """How a figure did."""

    WRONG = "WRONG"
    BELOW = "BELOW"
    FLOOR = "floor"
    GOAL = "goal"
    SHOWN = "-"


@dataclass(frozen=True)
class Figure:
    """One measured number and what is promised of it. `at_most`: smaller is better. `wrong` counts bytes or replies."""

    name: str
    value: float
    unit: str = "x"
    floor: float | None = None
    goal: float | None = None
    at_most: bool = False
    wrong: int = 0
    detail: str = ""
    measurements: int = 1

    def reached(self, limit: float | None) -> bool:
        """True when the value is on the right side of a limit, or there is none."""
        return limit is None or (self.value <= limit if self.at_most else self.value >= limit)

    @property
    def verdict(self) -> Verdict:
        """Against wrong replies, floor and goal."""
        if self.wrong:
            return Verdict.WRONG
        if self.floor is None:
            return Verdict.SHOWN
        if not self.reached(self.floor):
            return Verdict.BELOW
        return Verdict.GOAL if self.reached(self.goal) else Verdict.FLOOR

    def better_than(self, other: Figure) -> bool:
        """True when this is the better measurement of the same thing; wrong replies are never forgotten."""
        if self.wrong or other.wrong:
            return bool(self.wrong)
        return self.value < other.value if self.at_most else self.value > other.value

    def json(self) -> dict[str, Any]:
        """As plain values; no number where anything was wrong."""
        head = {"name": self.name, "unit": self.unit, "floor": self.floor, "goal": self.goal, "at_most": self.at_most}
        tail = {
            "verdict": self.verdict.value,
            "measurements": self.measurements,
            "wrong": self.wrong,
            "detail": self.detail,
        }
        return head | {"value": None if self.wrong else self.value} | tail


Group = Callable[[], Iterable[Figure]]
"""Measures some figures, on memory of its own each time it is called."""


def until_reached(group: Group, *, sleep: Callable[[float], None] = time.sleep) -> list[Figure]:
    """Measure a group; again, after a pause and on new memory, while one of its figures is below its floor.

    A figure keeps its best measurement: its floor is missed when every one missed it. Wrong replies end it at once.
    """
    best = list(group())
    for pause in PAUSES:
        if not any(figure.verdict is Verdict.BELOW for figure in best) or any(figure.wrong for figure in best):
            break
        sleep(pause)
        best = [merged(old, new) for old, new in zip(best, group(), strict=True)]
    return best


def merged(old: Figure, new: Figure) -> Figure:
    """The better of two measurements, with the count of both."""
    if old.name != new.name:
        raise ValueError(f"figures: expected {old.name} again, found {new.name}")
    kept = new if new.better_than(old) else old
    return Figure(**{**vars(kept), "measurements": old.measurements + 1})


def missed(figures: Sequence[Figure]) -> list[Figure]:
    """Figures that fail a run."""
    return [figure for figure in figures if figure.verdict in {Verdict.WRONG, Verdict.BELOW}]
