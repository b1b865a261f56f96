"""A lane runs tasks in order, gives back what has not started, and ends."""

from __future__ import annotations

import threading

from hymcache.vllm.lane import Lane


def test_tasks_run_in_order():
    ran, last = [], threading.Event()
    lane = Lane[int]("test", lambda task: (ran.append(task), last.set() if task == 9 else None)[0])
    for task in range(10):
        lane.submit(task)
    assert last.wait(5)
    assert lane.close(5)
    assert ran == list(range(10))


def test_what_is_withdrawn_never_runs_and_what_runs_is_not_withdrawn():
    ran, started, gate = [], threading.Event(), threading.Event()

    def run(task: int) -> None:
        started.set()
        gate.wait(5)
        ran.append(task)

    lane = Lane[int]("test", run)
    for task in range(4):
        lane.submit(task)
    assert started.wait(5)
    assert lane.withdraw(lambda task: task != 2) == [1, 3]
    gate.set()
    while len(ran) < 2:
        started.wait(0.01)
    assert lane.close(5)
    assert ran == [0, 2]


def test_closing_drops_what_has_not_started_and_reports_a_task_that_does_not_end():
    gate, started = threading.Event(), threading.Event()
    lane = Lane[int]("test", lambda _: (started.set(), gate.wait(5))[0])
    lane.submit(1)
    lane.submit(2)
    assert started.wait(5)
    assert not lane.close(0.05)
    gate.set()
    assert lane.close(5)
