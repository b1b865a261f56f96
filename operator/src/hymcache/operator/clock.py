"""The two clocks: one for waiting, one for what people read. Tests hand in their own."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def monotonic(self) -> float:
        """Seconds that only grow; the origin means nothing."""

    def utc(self) -> datetime:
        """The time of day, with zone."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """`time.monotonic`."""
        return time.monotonic()

    def utc(self) -> datetime:
        """Now, to the second: what Kubernetes keeps."""
        return datetime.now(UTC).replace(microsecond=0)


def rfc3339(moment: datetime) -> str:
    """A time as the API server writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str | None) -> datetime | None:
    """A time from the API server."""
    return datetime.fromisoformat(text) if text else None
