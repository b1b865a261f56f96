"""What everything on a node is keyed by: the claim's UID and the share of the device that it was given.

Two shares of one device may even belong to one claim, so the UID alone would let them collide in CDI names, sockets and
checkpoints.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import NewType

ClaimUID = NewType("ClaimUID", str)

UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
FOLDER_DIGITS = 20  # 80 bits; a folder name has to leave room in the 107 bytes of a socket address


def claim_uid(text: str) -> ClaimUID:
    """A claim's UID that is safe in file names.

    Raises:
        ValueError: not 1 to 63 letters, digits, dashes and underscores.
    """
    if not UID.fullmatch(text):
        raise ValueError(f"claim UID: expected 1 to 63 letters, digits, - and _, found {text!r}")
    return ClaimUID(text)


@dataclass(frozen=True, order=True)
class ShareKey:
    """One share in one claim. `share` is the allocation's shareID, or `<pool>.<device>` for a device without shares."""

    claim_uid: ClaimUID
    share: str

    @classmethod
    def of(cls, uid: ClaimUID, share_id: str | None, pool: str, device: str) -> ShareKey:
        """The key of an allocation result; the same on every node."""
        return cls(uid, share_id or f"{pool.replace('/', '_')}.{device}")

    @property
    def name(self) -> str:
        """Name of the CDI device: letters, digits, `-`, `_` and `.`."""
        return f"{self.claim_uid}-{self.share}"

    @property
    def folder(self) -> str:
        """Name of the share's socket folder, short because socket addresses are."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:FOLDER_DIGITS]
