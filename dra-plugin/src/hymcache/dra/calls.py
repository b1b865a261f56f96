"""A call of the kubelet while it runs: how long it may take, and whether anybody still waits for its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hymcache.dra.errors import ClaimError, Kind


@dataclass(frozen=True)
class Call:
    """`deadline` is monotonic time in seconds. `given_up` says why nobody waits any more, or nothing."""

    deadline: float
    given_up: Callable[[], str | None]

    def left(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Stop here if nobody waits.

        Raises:
            ClaimError: STOPPED. What a call that was cut off has begun must not be finished behind the back of the
                call that followed it.
        """
        why = self.given_up()
        if why is not None:
            raise ClaimError(Kind.STOPPED, f"given up: {why}; the kubelet calls again")
