"""HTTP as Redfish services really speak it: lost replies, tasks, 404s that are not meant, messages in four places.

`get` returns a document or raises; `write` never judges: it returns an `Outcome`, and the caller reads what happened.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from hymcache.operator.fabric.port import FabricError, Fault

log = logging.getLogger(__name__)

GENERATION_HEADER = "X-HyMCache-Generation"
"""Lease generation of the leader that makes the call; an appliance that knows it refuses older ones."""

CAPACITY_MESSAGES = (
    "InsufficientStorage",
    "ResourceExhaustion",
    "CreateLimitReachedForResource",
    "InsufficientResources",
)
RETRY_STATUSES = frozenset({404, 408, 409, 423, 425, 429})
"""Refusals that another try may turn: busy, locked, throttled, or a 404 that the next reading contradicts."""


@dataclass(frozen=True)
class RedfishSettings:
    """How one service is spoken to. Times in seconds."""

    endpoint: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_pem: str | None = None
    verify: bool = True
    generation: int = 0
    emulated: bool = False
    """The service is HyMCache's own appliance: regions are recognised by cable, not by GCXLID."""
    read_timeout_seconds: float = 10.0
    write_timeout_seconds: float = 60.0
    task_timeout_seconds: float = 280.0
    """Below the operator's compose budget of 300 s, so that a task's end is still reported."""
    pauses_seconds: tuple[float, ...] = (0.1, 0.5, 2.0)
    """Before each further try; their number is the number of further tries."""
    pauses_missing_seconds: tuple[float, ...] = (0.1, 0.3)
    """The same for a 404 on a reading, which is the normal answer for what was deleted."""
    parallel_reads: int = 8


@dataclass(frozen=True)
class Outcome:
    """What came back from a write. `status` None: nothing came back, the write may or may not have happened."""

    status: int | None
    message: str
    location: str | None = None
    capacity: bool = False
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        """The service has understood and said no; asking again would not help."""
        if self.status is None:
            return False
        return self.capacity or (400 <= self.status < 500 and self.status not in RETRY_STATUSES)


def messages(document: dict[str, Any]) -> list[tuple[str, str]]:
    """(MessageId, Message) of an error document, wherever the service put them."""
    error = document.get("error") or {}
    places = (error.get("@Message.ExtendedInfo"), document.get("@Message.ExtendedInfo"), document.get("Messages"))
    entries = [entry for place in places if isinstance(place, list) for entry in place if isinstance(entry, dict)]
    if not entries and error:
        return [(str(error.get("code", "")), str(error.get("message", "")))]
    return [(str(entry.get("MessageId", "")), str(entry.get("Message", ""))) for entry in entries]


def outcome_of(status: int, location: str | None, document: dict[str, Any]) -> Outcome:
    """An `Outcome` with the first real message of the document."""
    found = messages(document)
    text = next((message for _, message in found if message), "")
    capacity = status == 507 or (
        status >= 400 and any(identifier.rsplit(".", 1)[-1] in CAPACITY_MESSAGES for identifier, _ in found)
    )
    return Outcome(status, f"HTTP {status}" + (f": {text}" if text else ""), location, capacity, document)


class Transport:
    """One service, one connection pool. `after_write` is called after each write, whatever came of it."""

    def __init__(self, settings: RedfishSettings, after_write: Callable[[str], None] = lambda _: None) -> None:
        self.settings = settings
        self._after_write = after_write
        self._session: aiohttp.ClientSession | None = None
        self._reads = asyncio.Semaphore(settings.parallel_reads)

    async def close(self) -> None:
        """Close the pool; a later call opens a new one."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str) -> dict[str, Any]:
        """The document at `path`. Errors of the service and 404s are tried again before they are believed.

        Raises:
            FabricError: MISSING after repeated 404s, REFUSED (credentials), UNAVAILABLE.
        """
        settings, tries = self.settings, 0
        async with self._reads:
            while True:
                outcome = await self._send("GET", path, None, settings.read_timeout_seconds)
                if outcome.status is not None and 200 <= outcome.status < 300 and outcome.document:
                    return outcome.document
                pauses = settings.pauses_missing_seconds if outcome.status == 404 else settings.pauses_seconds
                if outcome.status in {401, 403} or tries >= len(pauses):
                    raise self._error(f"GET {path}", outcome)
                await asyncio.sleep(pauses[tries])
                tries += 1

    async def write(self, method: str, path: str, body: dict[str, Any] | None = None) -> Outcome:
        """Send a write once and wait for its task, if it has one. Never raises; the caller reads what happened."""
        outcome = await self._send(method, path, body, self.settings.write_timeout_seconds)
        self._after_write(f"{method} {path}")
        if outcome.status == 202:
            monitor = outcome.location or str(outcome.document.get("@odata.id", ""))
            if monitor:
                outcome = await self._task(monitor, outcome)
        log.debug("%s %s: %s", method, path, outcome.message)
        return outcome

    async def _task(self, monitor: str, accepted: Outcome) -> Outcome:
        """Poll a task monitor until the task ended, its time is over, or it is gone (which means it ended)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.task_timeout_seconds
        pause = 0.05
        while loop.time() < deadline:
            polled = await self._send("GET", monitor, None, self.settings.read_timeout_seconds)
            state = str(polled.document.get("TaskState", ""))
            if state in {"Exception", "Killed", "Cancelled"}:
                failed = outcome_of(int(polled.document.get("TaskStatusCode", 500)), None, polled.document)
                return failed if messages(polled.document) else Outcome(500, f"task {monitor} ended as {state}")
            running = polled.status == 202 or state in {
                "New", "Starting", "Running", "Pending", "Suspended", "Service", "Stopping", "Cancelling",
            }  # fmt: skip
            if polled.status is not None and polled.status < 500 and not running:
                return polled if polled.status != 404 else accepted
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)
        return Outcome(None, f"task {monitor} did not end within {self.settings.task_timeout_seconds:g} s")

    async def _send(self, method: str, path: str, body: dict[str, Any] | None, seconds: float) -> Outcome:
        url = path if path.startswith(("http://", "https://")) else self.settings.endpoint.rstrip("/") + path
        if not url.startswith(self.settings.endpoint.rstrip("/")):
            return Outcome(400, f"{url}: not on {self.settings.endpoint}, credentials are not sent there")
        try:
            session = self._open()
            timeout = aiohttp.ClientTimeout(total=seconds, connect=min(5.0, seconds))
            async with session.request(method, url, json=body, timeout=timeout, allow_redirects=False) as reply:
                return outcome_of(reply.status, reply.headers.get("Location"), await _document(reply))
        except TimeoutError:
            return Outcome(None, f"no answer within {seconds:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return Outcome(None, f"{type(error).__name__}: {error}")

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            settings = self.settings
            auth = aiohttp.BasicAuth(settings.username, settings.password or "") if settings.username else None
            self._session = aiohttp.ClientSession(
                auth=auth,
                connector=aiohttp.TCPConnector(ssl=_tls(settings), limit=2 * settings.parallel_reads),
                headers={
                    "Accept": "application/json",
                    "OData-Version": "4.0",
                    GENERATION_HEADER: str(settings.generation),
                },
            )
        return self._session

    def _error(self, what: str, outcome: Outcome) -> FabricError:
        tried = f"{what} on {self.settings.endpoint}: {outcome.message}"
        if outcome.status == 404:
            return FabricError(Fault.MISSING, tried)
        if outcome.status in {401, 403}:
            return FabricError(Fault.REFUSED, f"{tried}; check the credentials Secret")
        return FabricError(Fault.UNAVAILABLE, f"{tried}; check that the fabric manager runs and can be reached")


def _tls(settings: RedfishSettings) -> ssl.SSLContext | bool:
    if not settings.verify:
        return False
    return ssl.create_default_context(cadata=settings.ca_pem) if settings.ca_pem else True


async def _document(reply: aiohttp.ClientResponse) -> dict[str, Any]:
    """The reply's JSON object; anything else is an empty document, which no reader accepts."""
    try:
        document = await reply.json(content_type=None)
    except (ValueError, aiohttp.ClientPayloadError):
        return {}
    return document if isinstance(document, dict) else {}
