"""The Python face of the compiled core: targets, typed reports, context manager. The work is `_native`'s."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import Any, Literal, Self, TypedDict, Unpack

from hymcache.region import _native  # noqa: TID251 - this module is the facade
from hymcache.region._native import Blocks, Namespace, Pages, RegionError  # noqa: TID251 - re-exported from here
from hymcache.region.target import Target, opened

__all__ = ["Blocks", "Namespace", "Pages", "Region", "RegionError", "RegionInfo", "RegionStats", "ReserveStatus"]


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
"""Counters of this process by name (int); `hits_by_domain`, `free_chunks` and `processes` (slots taken) are
lists, one number per domain."""


class _AttachOptions(TypedDict, total=False):
    domain: int
    read_only: bool
    uuid: str | None
    epoch: int | None
    lock_file: str | os.PathLike[str] | None
    populate: bool


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
                of the region that is given up; `epoch` of the new one (one more); `lock_file`, for devices; `clear`:
                zero every byte first, and so give up whatever another owner left there (a region of the same `uuid`
                is still replaced only by its epoch); takes as long as writing the medium once.

        Raises:
            ValueError: a number that cannot be.
            RegionError: kinds `exists` (a region that `replaces` does not name), `foreign` and `newer` (left
                untouched), `busy` (processes are attached, or format it right now), `io`.
            HandoverError: a socket target refused.
        """
        with opened(target) as medium:
            return RegionInfo(**_native.format(medium, **options))

    @classmethod
    def attach(cls, target: Target, *, host: str | None = None, **options: Unpack[_AttachOptions]) -> Self:
        """Join the region at `target`. Never formats, never changes what it does not own.

        Args:
            target: a path, a descriptor (stays the caller's), or `unix:/path.sock[?region=NAME]`.
            host: name of this host, by default `HYMCACHE_HOST` or else its boot: a domain has one host.
            **options: `domain` to store into (0); `read_only`; `uuid` and `epoch` that are expected (any);
                `lock_file`, for devices: a file that all users of the device on this host share; `populate` (True):
                fault the mapping in, in the background, where that costs no memory.

        Raises:
            ValueError: a domain that the region does not have.
            RegionError: kinds `unformatted` and `formatting` (worth waiting for), `foreign`, `torn`, `newer`,
                `truncated`, `wrong-uuid`, `wrong-epoch`, `owned` (the domain is another host's), `crowded`, `busy`,
                `io`.
            HandoverError: a socket target refused.
        """
        with opened(target) as medium:
            return cls(medium, host=host or os.environ.get("HYMCACHE_HOST"), **options)

    def info(self) -> RegionInfo:
        """What the region is, and how this process holds it."""
        return RegionInfo(**self.describe())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
