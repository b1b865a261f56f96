"""This node's entry in `CXLRegion.status.hosts`: what it wants and what it has confirmed.

A write may hang as long as the API server does, so nobody writes while holding a claim's lock, but for who gives the
region back. Order comes from a lock per region: its holder first looks whether what it has to say is still true.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from hymcache.crds.region import Desired, HostState, HostStatus
from hymcache.dra.clients import Api, ApiError
from hymcache.dra.contents import Counters
from hymcache.dra.errors import ClaimError
from hymcache.dra.locks import ReportLocks


@dataclass(frozen=True)
class HostReport:
    """What is said about one region, heartbeat apart. `epoch` is the one that was verified."""

    state: HostState
    epoch: int | None = None
    scrubbed: bool = False
    counters: Counters | None = None
    problem: str | None = None

    @property
    def desired(self) -> Desired:
        """What the fabric is asked for: everything but a released region is wanted."""
        return Desired.DETACHED if self.state is HostState.RELEASED else Desired.ATTACHED


PROBLEM_LENGTH_MAX = 1024
TURN_SECONDS = 1.0  # a write takes milliseconds; one that hangs is not waited for, the keeper reports again


class HostReports:
    """Writes the entries, and writes again only what has changed or has become old. Thread-safe."""

    def __init__(self, api: Api, locks: ReportLocks, node: str, boot_id: str, *, counters_seconds: float) -> None:
        self._api = api
        self._locks = locks
        self._node = node
        self._boot_id = boot_id
        self._counters_seconds = counters_seconds
        self._last: dict[str, tuple[HostReport, float]] = {}
        self._lock = threading.Lock()

    def send(
        self, region: str, report: HostReport, *, still: Callable[[], bool], seconds: float = TURN_SECONDS
    ) -> None:
        """Write the entry if it is `still` true once it is this writer's turn; wait for the turn at most `seconds`.

        Raises:
            ApiError: it may or may not have been written.
        """
        try:
            with self._locks.hold(region, seconds=seconds):
                if still():
                    self._write(region, report)
        except ClaimError as error:
            raise ApiError(str(error)) from error

    def _write(self, region: str, report: HostReport) -> None:
        with self._lock:
            self._last.pop(region, None)
        self._api.apply_host(region, self._entry(report))
        if report.state is not HostState.RELEASED:
            with self._lock:
                self._last[region] = (report, time.monotonic())

    def said(self, region: str, report: HostReport) -> bool:
        """Whether this process has written the entry like this, counters apart, and nothing else since."""
        with self._lock:
            last = self._last.get(region)
        return last is not None and replace(last[0], counters=None) == replace(report, counters=None)

    def refresh(self, region: str, report: HostReport, *, found: HostStatus | None, still: Callable[[], bool]) -> None:
        """Write the entry if it says something else than the last time, or than `found` says, or is old.

        `found` is the entry as it was last read: another plugin generation, or an operator that cleaned up, may have
        changed it. Counters alone wait for `counters_seconds`, but for the first ones.

        Raises:
            ApiError: it may or may not have been written.
        """
        as_read = found is not None and (
            *(found.desired, found.state, found.boot_id),
            *(found.epoch, bool(found.scrubbed)),
        ) == (report.desired, report.state, self._boot_id, report.epoch, report.scrubbed)
        if not as_read or not self.said(region, report) or self._counters_due(region, report):
            self.send(region, report, still=still)

    def _counters_due(self, region: str, report: HostReport) -> bool:
        with self._lock:
            last = self._last.get(region)
        if last is None or (last[0].counters is None and report.counters is not None):
            return True
        return time.monotonic() - last[1] >= self._counters_seconds

    def _entry(self, report: HostReport) -> dict[str, object]:
        counters = report.counters
        return HostStatus(
            node=self._node,
            desired=report.desired,
            state=report.state,
            boot_id=self._boot_id,
            epoch=report.epoch,
            scrubbed=report.scrubbed or None,
            used_bytes=counters.used_bytes if counters else None,
            hits=counters.hits if counters else None,
            misses=counters.misses if counters else None,
            problem=report.problem[:PROBLEM_LENGTH_MAX] if report.problem else None,
            heartbeat=datetime.now(UTC).replace(microsecond=0),
        ).dump()
