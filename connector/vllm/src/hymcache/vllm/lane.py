"""One thread that runs tasks in order; what has not started can be taken back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lane(Generic[T]):
    """A queue with one consumer thread. `submit` and `withdraw` never wait for a task that runs.

    `run` must not raise: it is given a task and ends it in every case.
    """

    def __init__(self, name: str, run: Callable[[T], None]) -> None:
        self._run = run
        self._queue: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: T) -> None:
        """Append a task."""
        with self._changed:
            self._queue.append(task)
            self._changed.notify()

    def withdraw(self, chosen: Callable[[T], bool]) -> list[T]:
        """Take back the tasks that have not started and are chosen; they will never run."""
        with self._changed:
            taken = [task for task in self._queue if chosen(task)]
            if taken:
                self._queue = deque(task for task in self._queue if not chosen(task))
            return taken

    def close(self, seconds: float) -> bool:
        """Drop what has not started and wait for the running task; False when it has not ended after `seconds`."""
        with self._changed:
            self._queue.clear()
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                task = self._queue.popleft()
            self._run(task)
