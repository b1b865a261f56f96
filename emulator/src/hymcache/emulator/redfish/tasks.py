"""Tasks: a request that goes on after its answer (DSP0266, "Asynchronous operations").

The answer is 202 with a task and the address of its monitor. The monitor answers 202 until the request has ended, then
once what the request would have answered; after that it is gone, while the task stays to be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from aiohttp import web
from hymcache.emulator.redfish import urls
from hymcache.emulator.redfish.messages import SUCCESS_FIRST_ERROR, messages_of
from hymcache.emulator.redfish.urls import Payload

TASKS_MAX = 256  # ended tasks are kept for so many others, oldest first to go
RETRY_SECONDS = 1


def now() -> str:
    """The time as Redfish writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(eq=False)
class Task:
    """One request under way, or its end."""

    id: str
    started: str
    running: asyncio.Task[web.Response]
    ended: str | None = None
    collected: bool = False

    @property
    def answer(self) -> web.Response | None:
        """What the request came to; None while it runs or where it was stopped."""
        return self.running.result() if self.running.done() and not self.running.cancelled() else None


class Tasks:
    """The tasks of a service. `percent` of a running one is not known: it is 0 until it is 100."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._next = 1

    def start(self, request: Callable[[], Awaitable[web.Response]]) -> web.Response:
        """Run a request in the background - it answers errors too, and never raises - and answer 202."""

        async def run() -> web.Response:
            try:
                return await request()
            finally:
                task.ended = now()

        identifier = str(self._next)
        self._next += 1
        task = Task(identifier, now(), asyncio.create_task(run(), name=f"redfish task {identifier}"))
        self._tasks[identifier] = task
        self._trim()
        return self._accepted(task)

    def monitor(self, identifier: str) -> web.Response | None:
        """What the monitor of a task answers now; None when there is no such monitor (any more)."""
        task = self._tasks.get(identifier)
        if task is None or task.collected:
            return None
        answer = task.answer
        if answer is None:
            return self._accepted(task)
        task.collected = True
        headers = {key: value for key, value in answer.headers.items() if key in ("Location", "Retry-After")}
        return web.Response(status=answer.status, body=answer.body, content_type=answer.content_type, headers=headers)

    def members(self) -> list[str]:
        """Addresses of the tasks."""
        return [f"{urls.TASKS}/{identifier}" for identifier in self._tasks]

    def payload(self, identifier: str) -> Payload | None:
        """A task."""
        task = self._tasks.get(identifier)
        if task is None:
            return None
        answer = task.answer
        failed = answer is not None and answer.status >= SUCCESS_FIRST_ERROR
        state = "Running" if answer is None else "Exception" if failed else "Completed"
        return {
            "@odata.id": f"{urls.TASKS}/{identifier}",
            "@odata.type": "#Task.v1_7_4.Task",
            "Id": identifier,
            "Name": f"Task {identifier}",
            "TaskState": state,
            "TaskStatus": "Critical" if failed else "OK",
            "PercentComplete": 0 if answer is None else 100,
            "StartTime": task.started,
            **({"EndTime": task.ended} if task.ended else {}),
            **({} if task.collected else {"TaskMonitor": f"{urls.TASK_MONITORS}/{identifier}"}),
            "HidePayload": True,
            "Messages": messages_of(answer) if answer else [],
        }

    async def close(self) -> None:
        """Wait for what runs: the appliance ends its requests before it stops."""
        await asyncio.gather(*(task.running for task in self._tasks.values()), return_exceptions=True)

    def _accepted(self, task: Task) -> web.Response:
        response = web.json_response(self.payload(task.id), status=202)
        response.headers["Location"] = f"{urls.TASK_MONITORS}/{task.id}"
        response.headers["Retry-After"] = str(RETRY_SECONDS)
        return response

    def _trim(self) -> None:
        ended = [key for key, task in self._tasks.items() if task.running.done()]
        for key in ended[: max(0, len(self._tasks) - TASKS_MAX)]:
            del self._tasks[key]
