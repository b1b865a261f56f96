"""`Contents` by the region library: the superblock is verified at every look, and written by the init host alone."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from typing import Any

import structlog
from hymcache.dra.contents import Counters, Found
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.plan import Scrub, Wanted
from hymcache.region import Region, RegionError, RegionInfo

WAIT = {"unformatted", "formatting"}
"""Kinds of `RegionError` that end when the init host has formatted."""
OTHERS = {"foreign", "wrong-uuid", "torn", "newer", "older", "truncated"}
"""Kinds of `RegionError` that another owner's bytes give: to be waited for as well while the scrub is due."""

log = structlog.get_logger()


class Superblock:
    """See `Contents`."""

    def __init__(self) -> None:
        self._clearing: dict[tuple[str, int], Future[Found]] = {}
        self._lock = threading.Lock()

    def prepare(self, descriptor: int, wanted: Wanted) -> Found:
        """See `Contents`."""
        if (cleared := self._cleared(wanted)) is not None:
            return cleared
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
        replaces = None if found is None else found.epoch
        if wanted.scrub is Scrub.DUE:
            self._clear(descriptor, wanted, replaces)
            return Found.BLANK
        return _format(descriptor, wanted, replaces=replaces)

    def is_clearing(self, wanted: Wanted) -> bool:
        """See `Contents`."""
        with self._lock:
            job = self._clearing.get(_key(wanted))
        return job is not None and not job.done()

    def _cleared(self, wanted: Wanted) -> Found | None:
        """How the clearing of this region ended, once; BLANK while it runs, None if there was none."""
        with self._lock:
            job = self._clearing.get(_key(wanted))
            if job is None:
                return None
            if not job.done():
                return Found.BLANK
            del self._clearing[_key(wanted)]
        return job.result()

    def _clear(self, descriptor: int, wanted: Wanted, replaces: int | None) -> None:
        """Begin to clear and format in a thread of its own, unless one is at it. It ends with the process."""
        job: Future[Found] = Future()
        with self._lock:
            if self._clearing.setdefault(_key(wanted), job) is not job:
                return
        own = os.dup(descriptor)
        words = (job, own, wanted, replaces)
        threading.Thread(target=_clear_and_format, args=words, name="clear", daemon=True).start()

    def counters(self, descriptor: int, wanted: Wanted) -> Counters | None:
        """See `Contents`. Used bytes are chunks that are not free; hits and misses count the keys of lookups."""
        domain = wanted.domain
        try:
            with _attach(descriptor, wanted) as region:
                info, stats = region.info(), region.stats()
        except RegionError:
            return None
        used = info.chunks // info.domains - stats["free_chunks"][domain]
        hits, misses = stats["host_hits"][domain], stats["host_misses"][domain]
        return Counters(used_bytes=max(0, used) * info.chunk_bytes, hits=hits, misses=misses)

    def users(self, descriptor: int, wanted: Wanted) -> int | None:
        """See `Contents`. Those that store: readers hold no slot. What is not the region any more has no users."""
        try:
            with _attach(descriptor, wanted) as region:
                return region.users(wanted.domain)
        except (RegionError, ValueError):
            return None


def _attach(descriptor: int, wanted: Wanted, **expected: Any) -> Region:
    return Region.attach(descriptor, read_only=True, uuid=wanted.uuid, populate=False, **expected)


def _read(descriptor: int, wanted: Wanted) -> RegionInfo | None:
    """What the superblock says, None for a blank region or one that is being formatted."""
    try:
        with _attach(descriptor, wanted) as region:
            return region.info()
    except RegionError as error:
        if error.kind in WAIT or (error.kind in OTHERS and wanted.scrub is Scrub.DUE):
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


def _key(wanted: Wanted) -> tuple[str, int]:
    return wanted.uuid, wanted.epoch


def _clear_and_format(job: Future[Found], descriptor: int, wanted: Wanted, replaces: int | None) -> None:
    started = time.monotonic()
    about = {"region": wanted.fabric_region, "epoch": wanted.epoch, "region_bytes": wanted.region_bytes}
    log.info("clearing the region before it is formatted", **about)
    try:
        found = _format(descriptor, wanted, replaces=replaces, clear=True)
    except BaseException as error:
        log.warning("region not cleared", error=str(error), **about)
        job.set_exception(error)
    else:
        log.info("region cleared", seconds=round(time.monotonic() - started, 3), **about)
        job.set_result(found)
    finally:
        os.close(descriptor)


def _format(descriptor: int, wanted: Wanted, *, replaces: int | None, clear: bool = False) -> Found:
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
            clear=clear,
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
