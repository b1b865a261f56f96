"""Allocations and scrubs under way: slow work on chunks, that several callers may wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from hymcache.emulator.model import ChunkId


@dataclass(eq=False)
class Work:
    """One piece of work. `cancel` asks it to give up; `done_bytes` says how far it is."""

    cancel: threading.Event = field(default_factory=threading.Event)
    done_bytes: int = 0

    def progress(self, done: int) -> None:
        """Note how far it is; from the worker thread."""
        self.done_bytes = done


class Works:
    """At most one piece of work per chunk. Event loop only."""

    def __init__(self) -> None:
        self._running: dict[ChunkId, tuple[Work, asyncio.Task[None]]] = {}

    def start(self, chunk: ChunkId, do: Callable[[Work], Awaitable[None]]) -> None:
        """Run `do` in the background; a failure belongs to those who wait for it."""
        work = Work()

        async def run() -> None:
            try:
                await do(work)
            finally:
                if self.is_current(chunk, work):
                    del self._running[chunk]

        task = asyncio.create_task(run(), name=f"chunk {chunk}")
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._running[chunk] = work, task

    async def finished(self, chunk: ChunkId) -> None:
        """Wait for the work on a chunk, if there is any; raises what it raised. Giving up waiting does not stop it."""
        if chunk in self._running:
            await asyncio.shield(self._running[chunk][1])

    def is_current(self, chunk: ChunkId, work: Work) -> bool:
        """False once the work was abandoned: what it finds out then is of no interest any more."""
        return chunk in self._running and self._running[chunk][0] is work

    def abandon(self, chunk: ChunkId) -> None:
        """Ask the work on a chunk to give up, and let another piece of work take its place at once."""
        if running := self._running.pop(chunk, None):
            running[0].cancel.set()

    def done_bytes(self, chunk: ChunkId) -> int:
        """How far the work on a chunk is; 0 where there is none."""
        return self._running[chunk][0].done_bytes if chunk in self._running else 0

    async def drain(self) -> None:
        """Ask everything to give up and wait for the end."""
        tasks = [task for _, task in self._running.values()]
        for chunk in list(self._running):
            self.abandon(chunk)
        await asyncio.gather(*tasks, return_exceptions=True)
