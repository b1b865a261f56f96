"""A bar is met by the best of a few rounds."""

from __future__ import annotations

import pytest

from controlplane.rounds import ROUNDS, best_round

pytestmark = pytest.mark.controlplane


def test_rounds_end_with_the_first_that_meets_the_bar() -> None:
    played: list[int] = []

    def life(number: int) -> float:
        played.append(number)
        return (30.0, 5.0, 1.0)[number]

    best_round("it", life, below=10)
    assert played == [0, 1]


def test_a_bar_that_no_round_meets_fails_and_names_them_all() -> None:
    with pytest.raises(
        AssertionError, match=rf"it: expected less than 10 s in one of {ROUNDS} rounds, found 10.0, 11.0"
    ):
        best_round("it", lambda number: 10.0 + number, below=10)
