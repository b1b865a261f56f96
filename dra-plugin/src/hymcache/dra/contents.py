"""What is in a region's bytes, as far as a node answers for it: the superblock, and its own domain's counters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hymcache.dra.plan import Wanted


class Found(StrEnum):
    """What `prepare` found."""

    READY = "ready"
    """The superblock has the expected uuid and epoch."""
    FORMATTED = "formatted"
    """It has now: this host wrote it."""
    BLANK = "blank"
    """There is none yet; the host with the init role is to write it, or is at it."""


@dataclass(frozen=True)
class Counters:
    """Of this host's domain: bytes in use, and lookups that hit and that missed where the region keeps them."""

    used_bytes: int
    hits: int | None
    misses: int | None


class Contents(Protocol):
    """Looks into an opened region. Thread-safe; never keeps the descriptor."""

    def prepare(self, descriptor: int, wanted: Wanted) -> Found:
        """Verify the superblock; on the init host, write it if the region is blank or of an older epoch of this uuid.

        While the scrub is due the bytes of others count as blank, and the init host clears all of the region before
        it writes. That may take minutes and is done in the background: the answer is BLANK until it is done.

        Raises:
            ClaimError: REGION, the bytes are another region's, or of a later epoch, or damaged. They are left alone.
        """
        ...

    def is_clearing(self, wanted: Wanted) -> bool:
        """Whether this process clears the region now: it may not be given back before."""
        ...

    def counters(self, descriptor: int, wanted: Wanted) -> Counters | None:
        """The domain's counters, None if they cannot be read now."""
        ...

    def users(self, descriptor: int, wanted: Wanted) -> int | None:
        """Processes of this host that have the region open, None if that cannot be known."""
        ...
