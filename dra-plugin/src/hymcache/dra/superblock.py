"""`Contents` by the region library: the superblock is verified at every look, and written by the init host alone."""

from __future__ import annotations

from typing import Any

from hymcache.dra.contents import Counters, Found
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.plan import Wanted
from hymcache.region import Region, RegionError, RegionInfo

WAIT = {"unformatted", "formatting"}
"""Kinds of `RegionError` that end when the init host has formatted."""


class Superblock:
    """See `Contents`."""

    def prepare(self, descriptor: int, wanted: Wanted) -> Found:
        """See `Contents`."""
        found = _read(descriptor, wanted)
        if found is not None and found.epoch == wanted.epoch:
            _check_shape(found, wanted)
            return Found.READY
        if found is not None and found.epoch > wanted.epoch:
            raise ClaimError(
                Kind.REGION,
                f"region {wanted.fabric_region} holds epoch {found.epoch}, expected {wanted.epoch}: it was formatted "
                f"anew; the kubelet tries again with the newer epoch",
            )
        if not wanted.init:
            return Found.BLANK
        return _format(descriptor, wanted, replaces=None if found is None else found.epoch)

    def counters(self, descriptor: int, wanted: Wanted) -> Counters | None:
        """See `Contents`. Used bytes are chunks that are not free; the region keeps no lookups by domain."""
        try:
            with _attach(descriptor, wanted) as region:
                info, free = region.info(), region.stats()["free_chunks"]
        except RegionError:
            return None
        used = info.chunks // info.domains - free[wanted.domain]
        return Counters(used_bytes=max(0, used) * info.chunk_bytes, hits=None, misses=None)

    def users(self, descriptor: int, wanted: Wanted) -> int | None:
        """See `Contents`."""
        return None


def _attach(descriptor: int, wanted: Wanted, **expected: Any) -> Region:
    return Region.attach(descriptor, read_only=True, uuid=wanted.uuid, populate=False, **expected)


def _read(descriptor: int, wanted: Wanted) -> RegionInfo | None:
    """What the superblock says, None for a blank region or one that is being formatted."""
    try:
        with _attach(descriptor, wanted) as region:
            return region.info()
    except RegionError as error:
        if error.kind in WAIT:
            return None
        raise _refused(wanted, error) from error


def _check_shape(found: RegionInfo, wanted: Wanted) -> None:
    for what, expected, seen in (
        ("bytes", wanted.region_bytes, found.bytes),
        ("domains", wanted.domains, found.domains),
        ("coherence", wanted.coherence.value, found.coherence),
    ):
        if expected != seen:
            raise ClaimError(
                Kind.REGION,
                f"region {wanted.fabric_region} was formatted with other {what}: expected {expected}, found {seen}; "
                f"its CXLRegion needs a new epoch",
            )


def _format(descriptor: int, wanted: Wanted, *, replaces: int | None) -> Found:
    options: dict[str, Any] = {} if wanted.chunk_bytes is None else {"chunk_bytes": wanted.chunk_bytes}
    try:
        Region.format(
            descriptor,
            size=wanted.region_bytes,
            domains=wanted.domains,
            coherence=wanted.coherence.value,
            uuid=wanted.uuid,
            epoch=wanted.epoch,
            replaces=replaces,
            **options,
        )
    except RegionError as error:
        if error.kind == "busy":
            return Found.BLANK  # another call is at it; the next look finds what it wrote
        again = _read(descriptor, wanted) if error.kind == "exists" else None
        if again is not None and again.epoch == wanted.epoch:
            return Found.READY  # it was faster
        raise _refused(wanted, error) from error
    return Found.FORMATTED


def _refused(wanted: Wanted, error: RegionError) -> ClaimError:
    return ClaimError(Kind.REGION, f"region {wanted.fabric_region}, {error.kind}: {error}")
