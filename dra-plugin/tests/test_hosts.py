"""What is written into this node's entry of a region, and what is not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hymcache.crds.region import HostState
from hymcache.dra.clients import ApiError
from hymcache.dra.hosts import HostReport, HostReports
from hymcache.dra.locks import ReportLocks

from dra_world.api import MemoryApi

READY = HostReport(HostState.READY, epoch=1)


@pytest.fixture
def locks(tmp_path: Path) -> ReportLocks:
    return ReportLocks(tmp_path)


@pytest.fixture
def reports(api: MemoryApi, locks: ReportLocks) -> HostReports:
    api.put("CXLRegion", "r-1", spec={}, status={})
    return HostReports(api, locks, "node-a", "boot", counters_seconds=60)


def test_report_that_is_not_true_any_more_when_its_turn_comes_is_dropped(
    api: MemoryApi, reports: HostReports, locks: ReportLocks
) -> None:
    held = threading.Event()
    held.set()
    with locks.hold("r-1", seconds=0):
        late = threading.Thread(target=lambda: reports.send("r-1", READY, still=held.is_set, seconds=30))
        late.start()
        held.clear()  # given back by who has the turn
    late.join()
    assert api.writes == []
    assert not reports.said("r-1", READY)


def test_report_waits_for_the_one_before_no_longer_than_its_time(
    api: MemoryApi, reports: HostReports, locks: ReportLocks
) -> None:
    with locks.hold("r-1", seconds=0), pytest.raises(ApiError, match="another report on region r-1"):
        reports.send("r-1", READY, still=lambda: True, seconds=0.1)
    assert api.writes == []
    reports.send("r-1", READY, still=lambda: True)
    assert api.host("r-1", "node-a")["state"] == "Ready"


def test_reports_on_other_regions_do_not_wait(api: MemoryApi, reports: HostReports, locks: ReportLocks) -> None:
    with locks.hold("r-2", seconds=0):
        reports.send("r-1", READY, still=lambda: True, seconds=0)
    assert api.host("r-1", "node-a")["state"] == "Ready"
