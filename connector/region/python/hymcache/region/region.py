"""The Python face of the compiled core: targets, typed reports, context manager. The work is `_native`'s."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, TypedDict, Unpack

from hymcache.region import _native  # noqa: TID251 - this module is the facade
from hymcache.region._native import Blocks, Namespace, Pages, RegionError, View  # noqa: TID251 - re-exported from here
from hymcache.region.target import Target, opened

__all__ = [
    "Blocks",
    "Evicted",
    "Hint",
    "Namespace",
    "Pages",
    "Region",
    "RegionError",
    "RegionInfo",
    "RegionStats",
    "ReserveStatus",
    "View",
]

LOCK_FILE = "HYMCACHE_LOCK_FILE"
"""Environment of a process whose region is a device: where its users on this host hold their locks."""


class ReserveStatus(enum.IntEnum):
    """What became of a key in `Namespace.reserve`; one byte each in its result."""

    FULL = 0
    NEW = 1
    EXISTS = 2
    PENDING = 3


@dataclass(frozen=True, slots=True)
class RegionInfo:
    """What a region is; sizes in bytes. The last part is this process's and absent (None, 0) after a format."""

    uuid: str
    epoch: int
    version: int
    bytes: int
    chunk_bytes: int
    chunks: int
    domains: int
    objects: int
    """Header lines of all domains: the most objects the directory can name."""
    metadata_bytes: int
    coherence: Literal["software", "hardware"]
    formatted_at: int
    """Seconds since 1970."""
    domain: int | None = None
    """The domain this process stores into; None when attached read-only."""
    process_slot: int | None = None
    lost: bool = False
    """True once a hole was met in the medium, or the region was formatted anew: everything is a miss."""
    kernel: str = ""
    """The copy kernel in use."""
    page_bytes: int = 0
    """Size of the pages that the mapping really uses."""
    populated_bytes: int = 0
    populating: bool = False


RegionStats = dict[str, Any]
"""Counters of this process by name (int). Lists, one number per domain: `hits_by_domain`, `free_chunks`, `processes`
(slots taken), `host_hits` and `host_misses` (keys that lookups of its host's processes found and did not find)."""


class Hint(NamedTuple):
    """What a host told by `Namespace.prefetch` or `withdraw`. Times are wall-clock, in milliseconds since 1970."""

    domain: int
    """Whose host told it."""
    sequence: int
    """Rises in each domain."""
    request: int
    """An int `request_id` as it is; of text or bytes the first 8 bytes of their SHA-256, little-endian."""
    digest: bytes | None
    """20 bytes, as `Namespace.digests` has them; None = the request is withdrawn."""
    ref: bytes | None
    """Where the object lies now, for `read_many`; None = nowhere, or a withdrawal."""
    deadline_ms: int
    issued_ms: int
    """By the clock of the host that told it."""
    priority: int
    units: int
    """Wanted from the first on; 0 = all."""


class Evicted(NamedTuple):
    """An object that lookups do not find any more."""

    domain: int
    sequence: int
    """Rises in each domain."""
    digest: bytes
    """20 bytes, as `Namespace.digests` has them."""
    ref: bytes
    namespace: int
    """Number of the fingerprint in that domain; 0 = not registered."""
    bytes: int
    cause: Literal["evicted", "dropped"]
    """`evicted`: to make room or on demand; `dropped`: damaged, or pushed out of a full directory set."""


class _AttachOptions(TypedDict, total=False):
    domain: int
    read_only: bool
    uuid: str | None
    epoch: int | None
    lock_file: str | os.PathLike[str] | None
    populate: bool
    copy_threads: Literal[1, 2]


class _FormatOptions(TypedDict, total=False):
    size: int | None
    chunk_bytes: int
    domains: int
    coherence: Literal["software", "hardware"]
    uuid: str | None
    objects: int | None
    replaces: int | None
    epoch: int | None
    lock_file: str | os.PathLike[str] | None
    clear: bool


class Region(_native.Region):
    """A region attached to this process. Any thread may use it; a forked child may not and gets misses.

    Leaving the context (or `close`) gives the process slot back; calls under way end first, later ones raise
    `RegionError` of kind `closed`.
    """

    @staticmethod
    def format(target: Target, **options: Unpack[_FormatOptions]) -> RegionInfo:
        """Write an empty region to `target`. The only call that overwrites anything.

        Args:
            target: a path (created with `size` bytes if missing), a descriptor, or `unix:/path.sock[?region=NAME]`.
            **options: `size` of the region (default: all of the medium); `chunk_bytes`, a power of two from 64 KiB to
                64 MiB (2 MiB); `domains`, one per writing host (1); `coherence`, `software` (default) or `hardware`;
                `uuid` (random); `objects` expected, which sizes the directory (one per chunk); `replaces`, the epoch
                of the region that is given up; `epoch` of the new one (one more); `lock_file`, see `attach`; `clear`:
                zero every byte first, and so give up whatever another owner left there (a region of the same `uuid`
                is still replaced only by its epoch); takes as long as writing the medium once.

        Raises:
            ValueError: a number that cannot be.
            RegionError: kinds `exists` (a region that `replaces` does not name), `foreign` and `newer` (left
                untouched), `busy` (processes are attached, or format it right now), `io`.
            HandoverError: a socket target refused.
        """
        options["lock_file"] = options.get("lock_file") or os.environ.get(LOCK_FILE)
        with opened(target) as medium:
            return RegionInfo(**_native.format(medium, **options))

    @classmethod
    def attach(cls, target: Target, *, host: str | None = None, **options: Unpack[_AttachOptions]) -> Self:
        """Join the region at `target`. Never formats, never changes what it does not own.

        Args:
            target: a path, a descriptor (stays the caller's), or `unix:/path.sock[?region=NAME]`.
            host: name of this host, by default `HYMCACHE_HOST` or else its boot: a domain has one host.
            **options: `domain` to store into (0); `read_only`; `uuid` and `epoch` that are expected (any);
                `lock_file`: one file for all users of a device on this host, by default `HYMCACHE_LOCK_FILE`, as
                device nodes have no locks (a file has its own and needs none; a reader of a device has no use for it
                but to count users); `populate` (True): fault the mapping in, in the background, where that costs no
                memory; `copy_threads` (1): 2 = an object of 4 MiB or more, in at least two units, is copied by two
                threads.

        Raises:
            ValueError: a domain that the region does not have.
            RegionError: kinds `unformatted` and `formatting` (worth waiting for), `foreign`, `torn`, `newer`, `older`,
                `truncated`, `wrong-uuid`, `wrong-epoch`, `owned` (the domain is another host's), `crowded`, `busy`,
                `io`.
            HandoverError: a socket target refused.
        """
        options["lock_file"] = options.get("lock_file") or os.environ.get(LOCK_FILE)
        with opened(target) as medium:
            return cls(medium, host=host or os.environ.get("HYMCACHE_HOST"), **options)

    def info(self) -> RegionInfo:
        """What the region is, and how this process holds it."""
        return RegionInfo(**self.describe())

    def hints(self, cursor: bytes | None = None, *, limit: int = 1024) -> tuple[list[Hint], bytes]:
        """Hints of every domain since `cursor`, at most `limit`, and the cursor to go on from.

        None starts with the oldest hints that are there. Hints past their deadline are left out. What a slow reader
        missed is counted in `stats()["ring_missed"]`.
        """
        rows, cursor = self.hint_rows(cursor, limit)
        return [Hint._make(row) for row in rows], cursor

    def evicted(self, cursor: bytes | None = None, *, limit: int = 1024) -> tuple[list[Evicted], bytes]:
        """Objects that left any domain since `cursor`, at most `limit`, and the cursor to go on from. See `hints`.

        A reader that missed some (`stats()["ring_missed"]` has risen) asks `Namespace.contains` what is still there.
        """
        rows, cursor = self.evicted_rows(cursor, limit)
        return [Evicted._make(row) for row in rows], cursor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
