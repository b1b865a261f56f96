"""Region contents without the region library: a superblock of one JSON line."""

from __future__ import annotations

import json
import os

from hymcache.dra.contents import Counters, Found
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.plan import Wanted


class LineContents:
    """See `Contents`. `users_now` is what `users` answers."""

    def __init__(self) -> None:
        self.users_now = 0

    def prepare(self, descriptor: int, wanted: Wanted) -> Found:
        found = os.pread(descriptor, 256, 0).rstrip(b"\0")
        expected = {"uuid": wanted.uuid, "epoch": wanted.epoch}
        if found and json.loads(found) == expected:
            return Found.READY
        if found and json.loads(found)["uuid"] != wanted.uuid:
            raise ClaimError(Kind.REGION, f"expected region {wanted.uuid}, found {found!r}")
        if not wanted.init:
            return Found.BLANK
        os.pwrite(descriptor, json.dumps(expected).encode().ljust(256, b"\0"), 0)
        return Found.FORMATTED

    def counters(self, descriptor: int, wanted: Wanted) -> Counters | None:
        return Counters(4096 * (wanted.domain + 1), 7, 3)

    def users(self, descriptor: int, wanted: Wanted) -> int | None:
        return self.users_now
