"""Keys to reconcile: each at most once at a time, soon after it was woken, later and later while it fails."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

log = logging.getLogger(__name__)

STALE_SECONDS = 0.05


class Key(NamedTuple):
    """What to reconcile: a kind's word and the object's name, `namespace/name` for namespaced ones."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


Wake = Callable[[Key, float], None]
"""Ask for a key to be reconciled in so many seconds."""

Reconcile = Callable[[Key], Awaitable[float | None]]
"""Brings the object of a key nearer to what is wanted; returns after how many seconds to come again, or None."""


class WorkQueue:
    """Wakes are merged per key; a key that is woken while it is worked on runs once more afterwards.

    Args:
        reconcile: the work.
        workers: keys worked on at the same time.
        retry_seconds: pause after the first failure of a key; doubles with each further one.
        retry_max_seconds: limit of that doubling.
        fatal: exceptions that end `run` instead of being retried.
        stale: exceptions that say that what was read has changed meanwhile: no failure, tried again at once.
    """

    def __init__(
        self,
        reconcile: Reconcile,
        *,
        workers: int,
        retry_seconds: float,
        retry_max_seconds: float,
        fatal: tuple[type[BaseException], ...] = (),
        stale: tuple[type[Exception], ...] = (),
    ) -> None:
        self._reconcile = reconcile
        self._workers = workers
        self._retry, self._retry_max = retry_seconds, retry_max_seconds
        self._fatal, self._stale = fatal, stale
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._busy: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def wake(self, key: Key, after: float = 0.0) -> None:
        """Run `key` in `after` seconds, or sooner if it is to run sooner already. Call it from the event loop."""
        due = asyncio.get_running_loop().time() + after
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        if key not in self._busy:  # else it is queued when its worker comes back
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._changed.set()

    async def run(self) -> None:
        """Work until cancelled, or until a reconcile raises one of the fatal exceptions (in an ExceptionGroup)."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                while len(self._busy) < self._workers and (key := self._pop(loop.time())) is not None:
                    group.create_task(self._work(key), name=str(key))
                full = len(self._busy) >= self._workers or not self._heap
                pause = None if full else max(0.0, self._heap[0][0] - loop.time())
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):  # wait_for may swallow the cancellation by a fatal error
                        await self._changed.wait()

    def _pop(self, now: float) -> Key | None:
        """The next key that is due; it counts as worked on from here."""
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:  # else it was woken for an earlier time since, and has run
                del self._due[key]
                self._busy.add(key)
                return key
        return None

    async def _work(self, key: Key) -> None:
        again: float | None = None
        try:
            again = await self._reconcile(key)
            self._failures.pop(key, None)
        except self._fatal:
            raise
        except self._stale as error:
            log.debug("%s was decided on an old reading, again at once: %s", key, error)
            again = STALE_SECONDS
        except Exception as error:
            self._failures[key] = tries = self._failures.get(key, 0) + 1
            again = min(self._retry * 2 ** min(tries - 1, 30), self._retry_max)
            log.warning("%s failed, again in %.1f s: %s", key, again, error, exc_info=not _expected(error))
        self._busy.discard(key)
        woken = self._due.pop(key, None)
        due = asyncio.get_running_loop().time() + again if again is not None else None
        if (soonest := min((d for d in (woken, due) if d is not None), default=None)) is not None:
            self._due[key] = soonest
            heapq.heappush(self._heap, (soonest, next(self._order), key))
        self._changed.set()


def _expected(error: Exception) -> bool:
    """Errors that say all in their message; others get a traceback."""
    return type(error).__name__ in {"ApiError", "ConflictError", "FabricError"}
