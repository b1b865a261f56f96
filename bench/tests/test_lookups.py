"""Times of calls: what a call waits for by itself is its own, what the machine takes away is not."""

from __future__ import annotations

import os
import time

import pytest

from figures.lookups import busy_thread, seconds


def test_a_call_that_waits_is_counted() -> None:
    times, _ = seconds(lambda: time.sleep(0.002), 20)
    assert len(times) == 20
    assert min(times) >= 0.002


def test_a_call_that_lets_go_of_the_interpreter_is_slow_beside_a_busy_thread() -> None:
    with busy_thread():
        times, _ = seconds(lambda: time.sleep(0), 100)
    assert max(times) > 0.002, "the busy thread had the lock for a switch interval"


def test_calls_that_are_preempted_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = iter([1, 2, 2, 2])

    class Usage:
        def __init__(self) -> None:
            self.ru_nivcsw = next(usage)

    monkeypatch.setattr("figures.lookups.SWITCHES", Usage)
    assert [len(times) if isinstance(times, list) else times for times in seconds(os.getpid, 1)] == [1, 1]


def test_a_machine_that_lets_nothing_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    number = iter(range(1000))

    class Usage:
        def __init__(self) -> None:
            self.ru_nivcsw = next(number)

    monkeypatch.setattr("figures.lookups.SWITCHES", Usage)
    with pytest.raises(RuntimeError, match="let 0 of 11 calls run"):
        seconds(os.getpid, 1)
