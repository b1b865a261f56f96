"""The checkpoint in memory, independent of how any release writes it.

A share is recorded before its first effect (`WANTED`), after the last one (`PREPARED`), and when it is to go
(`RELEASING`); the claim's file goes with its last share. Whoever finds a record can therefore finish what it says,
however often the plugin died on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hymcache.dra.keys import ShareKey
from hymcache.dra.plan import ClaimRef, Share, Wanted


class Phase(StrEnum):
    """How far a share is on this node."""

    WANTED = "wanted"
    """The kubelet asked for it; nothing was given to a pod yet."""
    PREPARED = "prepared"
    """CDI file and memory are in place; pods may be running."""
    RELEASING = "releasing"
    """No pod uses it any more; what is left to do is to tear down and to tell the operator."""


@dataclass(frozen=True)
class ShareRecord:
    """A share and, once the fabric has attached it, what was opened for it."""

    share: Share
    phase: Phase = Phase.WANTED
    wanted: Wanted | None = None


@dataclass(frozen=True)
class ClaimRecord:
    """One claim on this node.

    `ticket` is new with every Prepare that starts from nothing: a Prepare that waited without the lock and finds
    another ticket, or none, was overtaken and must not finish. `boot_id` is the boot in which the claim was prepared.
    """

    ref: ClaimRef
    boot_id: str
    ticket: str
    shares: tuple[ShareRecord, ...]

    def entry(self, key: ShareKey) -> ShareRecord | None:
        """The share's entry, None if the claim has none."""
        return next((entry for entry in self.shares if entry.share.key == key), None)

    def with_entry(self, changed: ShareRecord) -> ClaimRecord:
        """This record with one entry replaced."""
        same = changed.share.key
        return replace(self, shares=tuple(changed if e.share.key == same else e for e in self.shares))

    def without(self, key: ShareKey) -> ClaimRecord:
        """This record with one entry gone."""
        return replace(self, shares=tuple(entry for entry in self.shares if entry.share.key != key))

    def of_phase(self, *phases: Phase) -> tuple[ShareRecord, ...]:
        """The entries in one of `phases`."""
        return tuple(entry for entry in self.shares if entry.phase in phases)
