"""A floor is missed when every measurement misses it; a slow copy misses it each time; wrong bytes end everything."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from figures.target import PAUSES, Figure, Verdict, missed, until_reached


def group(*values: float, at_most: bool = False, wrong: int = 0) -> tuple[list[float], object]:
    left = list(values)

    def measure() -> Iterable[Figure]:
        yield Figure("speed", left.pop(0), floor=1.0, goal=0.5 if at_most else 2.0, at_most=at_most, wrong=wrong)

    return left, measure


@pytest.mark.parametrize(
    ("values", "at_most", "verdict", "measurements"),
    [
        ([2.0], False, Verdict.GOAL, 1),
        ([1.5], False, Verdict.FLOOR, 1),
        ([0.5, 1.5], False, Verdict.FLOOR, 2),
        ([0.5, 0.9, 0.8, 0.7], False, Verdict.BELOW, 4),
        ([0.5, 0.9, 0.8, 1.1], False, Verdict.FLOOR, 4),
        ([3.0, 2.0, 0.9], True, Verdict.FLOOR, 3),
    ],
)
def test_a_floor_is_missed_when_every_measurement_misses_it(
    values: list[float], at_most: bool, verdict: Verdict, measurements: int
) -> None:
    left, measure = group(*values, at_most=at_most)
    pauses: list[float] = []
    (figure,) = until_reached(measure, sleep=pauses.append)  # type: ignore[arg-type]
    assert (figure.verdict, figure.measurements) == (verdict, measurements)
    assert not left
    assert pauses == list(PAUSES[: measurements - 1])
    assert bool(missed([figure])) == (verdict is Verdict.BELOW)


def test_wrong_bytes_are_not_measured_again() -> None:
    _, measure = group(9.0, 9.0, wrong=1)
    (figure,) = until_reached(measure, sleep=lambda _: None)  # type: ignore[arg-type]
    assert (figure.verdict, figure.measurements, figure.json()["value"]) == (Verdict.WRONG, 1, None)


def test_wrong_bytes_in_a_repetition_are_kept() -> None:
    answers = iter([Figure("speed", 0.5, floor=1.0), Figure("speed", 9.0, floor=1.0, wrong=2)])
    (figure,) = until_reached(lambda: [next(answers)], sleep=lambda _: None)
    assert figure.wrong == 2
    assert missed([figure]) == [figure]


def test_figures_without_a_floor_are_shown_only() -> None:
    figure = Figure("speed", 0.1)
    assert figure.verdict is Verdict.SHOWN
    assert not missed([figure])


def test_a_group_that_measures_something_else_the_second_time_is_an_error() -> None:
    names = iter("ab")
    with pytest.raises(ValueError, match="expected a again, found b"):
        until_reached(lambda: [Figure(next(names), 0.1, floor=1.0)], sleep=lambda _: None)
