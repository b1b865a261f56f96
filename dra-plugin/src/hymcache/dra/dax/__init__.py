"""Ways to get at a region's memory on a node: one Protocol, one file per way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from hymcache.dra.cdi import Edits
from hymcache.dra.keys import ShareKey
from hymcache.dra.plan import Wanted

MOUNT = "/run/hymcache"
"""Where a pod finds its region's folder."""


@dataclass(frozen=True)
class Port:
    """One cable end. `host`: the system UUID that the appliance has for this host; `power_epoch` counts its starts."""

    blade: str
    up: bool
    message: str
    host: str | None = None
    power_epoch: int | None = None


class Dax(Protocol):
    """Holds the regions of this node open and makes them reachable for pods. Thread-safe.

    `open` and `publish` for one share are never called from two threads at once: the caller holds the claim's lock.
    """

    def ports(self) -> list[Port]:
        """Every cable end, sorted by blade, asked now; blocks up to the cable timeout for each that is silent."""
        ...

    def open(self, key: ShareKey, wanted: Wanted) -> int:
        """Open the region and keep it open; the descriptor stays the backend's, and is good until `close`.

        A second call for the same epoch gives the same memory. One for another epoch drops the old memory first.
        What was opened is checked against `wanted` (bytes, coherence, access) but not read.

        Raises:
            ClaimError: FABRIC, the cable does not hand it over, or hands over something else.
        """
        ...

    def publish(self, key: ShareKey) -> bool:
        """Let pods reach the opened region by what `edits` says. False: they could already.

        Takes over from another plugin generation that did so before.
        """
        ...

    def is_open(self, key: ShareKey, wanted: Wanted) -> bool:
        """Whether this process holds the region open for `wanted`."""
        ...

    def edits(self, key: ShareKey, wanted: Wanted) -> Edits:
        """What a container needs; pure, and the same before and after `open`."""
        ...

    def withdraw(self, key: ShareKey) -> None:
        """Stop handing the region out; what pods have open stays. Their requests are refused with `link-down`."""
        ...

    def close(self, key: ShareKey) -> None:
        """Take the region from pods, close it, and remove every trace of it, also one that a dead process left."""
        ...

    def sweep(self, known: Callable[[], Iterable[ShareKey]]) -> int:
        """Remove what dead processes left for shares that nobody knows; how many were removed.

        `known` is called after the traces were listed: a share is known before it leaves its first trace, so one that
        is being prepared meanwhile is never taken for a leftover.
        """
        ...

    def stop(self) -> None:
        """Let go of everything in this process; what is on disk stays for the next one."""
        ...
