"""Region contents by the region library, with what a test has to decide itself."""

from __future__ import annotations

from hymcache.dra.plan import Wanted
from hymcache.dra.superblock import Superblock


class Contents(Superblock):
    """See `hymcache.dra.contents.Contents`. `users_now` is what `users` answers."""

    def __init__(self) -> None:
        super().__init__()
        self.users_now = 0

    def users(self, descriptor: int, wanted: Wanted) -> int | None:
        return self.users_now
