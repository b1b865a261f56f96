"""Keys: merged, one at a time, later and later while they fail."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest
from hymcache.operator.workqueue import Key, WorkQueue

A, B = Key("region", "a"), Key("region", "b")


class StaleError(Exception):
    pass


class FatalError(Exception):
    pass


def run(
    reconcile: Callable[[Key], Awaitable[float | None]],
    scenario: Callable[[WorkQueue], Awaitable[None]],
    *,
    workers: int = 4,
) -> None:
    async def main() -> None:
        queue = WorkQueue(
            reconcile,
            workers=workers,
            retry_seconds=0.02,
            retry_max_seconds=0.1,
            fatal=(FatalError,),
            stale=(StaleError,),
        )
        task = asyncio.create_task(queue.run())
        try:
            await asyncio.wait_for(scenario(queue), 60)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


async def until(what: Callable[[], object]) -> None:
    for _ in itertools.count():
        if what():
            return
        await asyncio.sleep(0.005)


def test_many_wakes_of_one_key_are_one_run() -> None:
    runs: list[Key] = []

    async def reconcile(key: Key) -> None:
        runs.append(key)

    async def scenario(queue: WorkQueue) -> None:
        for _ in range(100):
            queue.wake(A)
        await until(lambda: runs)
        await asyncio.sleep(0.05)

    run(reconcile, scenario)
    assert runs == [A]


def test_a_key_woken_while_it_is_worked_on_runs_once_more_and_never_twice_at_a_time() -> None:
    inside, most, runs = 0, 0, 0
    go = asyncio.Event()

    async def reconcile(_: Key) -> None:
        nonlocal inside, most, runs
        inside += 1
        most, runs = max(most, inside), runs + 1
        await go.wait()
        inside -= 1

    async def scenario(queue: WorkQueue) -> None:
        queue.wake(A)
        await until(lambda: inside)
        for _ in range(5):
            queue.wake(A)
        await asyncio.sleep(0.05)
        go.set()
        await until(lambda: runs == 2)
        await asyncio.sleep(0.05)

    run(reconcile, scenario)
    assert (most, runs) == (1, 2)


def test_other_keys_go_on_beside_a_slow_one_up_to_the_number_of_workers() -> None:
    done: list[Key] = []

    async def reconcile(key: Key) -> None:
        if key == A:
            await asyncio.Event().wait()
        done.append(key)

    async def scenario(queue: WorkQueue) -> None:
        queue.wake(A)
        for number in range(10):
            queue.wake(Key("region", str(number)))
        await until(lambda: len(done) == 10)

    run(reconcile, scenario, workers=2)
    assert A not in done


def test_a_failing_key_is_tried_again_later_and_later_and_others_are_not_held_up() -> None:
    moments: list[float] = []

    async def reconcile(key: Key) -> None:
        if key == A:
            moments.append(asyncio.get_running_loop().time())
            raise RuntimeError("no")

    async def scenario(queue: WorkQueue) -> None:
        queue.wake(A)
        await until(lambda: len(moments) == 10)

    run(reconcile, scenario)
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    assert all(gap >= pause for gap, pause in zip(gaps, [0.02, 0.04, 0.08, 0.1], strict=False))
    assert min(gaps[3:]) < 0.16, "without a limit the least of them would be 0.16 s"


def test_a_stale_reading_is_tried_again_at_once_and_is_no_failure() -> None:
    runs = 0

    async def reconcile(_: Key) -> None:
        nonlocal runs
        runs += 1
        if runs < 4:
            raise StaleError

    async def scenario(queue: WorkQueue) -> None:
        queue.wake(A)
        await until(lambda: runs == 4)
        await asyncio.sleep(0.1)

    run(reconcile, scenario)
    assert runs == 4


def test_a_reconcile_says_when_it_wants_to_run_again_and_an_earlier_wake_wins() -> None:
    moments: list[float] = []

    async def reconcile(_: Key) -> float:
        moments.append(asyncio.get_running_loop().time())
        return 10.0

    async def scenario(queue: WorkQueue) -> None:
        queue.wake(A)
        await until(lambda: moments)
        queue.wake(A, 0.05)
        queue.wake(A, 5.0)
        await until(lambda: len(moments) == 2)
        await asyncio.sleep(0.1)

    run(reconcile, scenario)
    assert len(moments) == 2
    assert 0.05 <= moments[1] - moments[0] < 5


def test_a_fatal_error_ends_the_queue_although_work_comes_in_at_the_same_moment() -> None:
    async def life() -> None:
        async def reconcile(key: Key) -> None:
            queue.wake(Key("region", "new"))
            raise FatalError

        queue = WorkQueue(reconcile, workers=2, retry_seconds=1, retry_max_seconds=1, fatal=(FatalError,))
        queue.wake(Key("region", "later"), 60)
        queue.wake(Key("region", "fatal"))
        await queue.run()

    for _ in range(20):
        with pytest.raises(ExceptionGroup) as caught:
            asyncio.run(asyncio.wait_for(life(), 60))
        assert caught.group_contains(FatalError)
        assert not caught.group_contains(RuntimeError)


def test_a_fatal_error_ends_the_queue() -> None:
    async def reconcile(_: Key) -> None:
        raise FatalError

    async def main() -> None:
        queue = WorkQueue(reconcile, workers=1, retry_seconds=1, retry_max_seconds=1, fatal=(FatalError,))
        queue.wake(B)
        await asyncio.wait_for(queue.run(), 60)

    with pytest.raises(ExceptionGroup) as group:
        asyncio.run(main())
    assert group.group_contains(FatalError)
