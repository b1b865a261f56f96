"""Figures of two threads wait for a second CPU, and not for ever."""

from __future__ import annotations

import pytest

from figures.world import quiet_within


@pytest.mark.parametrize(
    ("busy", "quiet", "waits"),
    [([False], True, 0), ([True, True, False], True, 2), ([True] * 4, False, 3), ([True, True, True, False], True, 3)],
)
def test_other_work_that_passes_is_waited_for(busy: list[bool], quiet: bool, waits: int) -> None:
    slept: list[float] = []
    answers = iter(busy)
    assert quiet_within(3, busy=lambda: next(answers), sleep=slept.append) is quiet
    assert len(slept) == waits
    assert next(answers, None) is None
