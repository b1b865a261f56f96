"""What is known about a fabric between two readings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hymcache.crds.fabric import CXLFabricSpec
from hymcache.operator.fabric.port import Blade, Capabilities, FabricError, Fault, HostKey, Inventory, Region
from hymcache.operator.fabric.session import Session

GIB = 1 << 30
H1, H2 = HostKey("aa"), HostKey("bb")
REGION = Region("r", "b1", GIB, frozenset({H1}), "/1")


class Hand:
    """A clock that is moved by hand."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def utc(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


class Fabric:
    """Only what a session reads."""

    def __init__(self) -> None:
        self.blade = Blade("b1", "b1", 64 * GIB, GIB, frozenset({H1, H2}), health="OK", max_hosts=8)
        self.regions: list[Region] = []
        self.error: FabricError | None = None
        self.during: Any = None

    def capabilities(self) -> Capabilities:
        return Capabilities(256, hot_add=True)

    async def inventory(self) -> Inventory:
        if self.error:
            raise self.error
        return Inventory("v", (self.blade,))

    async def list_regions(self) -> list[Region]:
        found = list(self.regions)
        if self.during:
            self.during()
        return found


def session(clock: Hand | None = None, **spec: Any) -> tuple[Session, Fabric, Hand]:
    clock, fabric = clock or Hand(), Fabric()
    full = CXLFabricSpec.model_validate({"endpoint": "http://x", **spec})
    return Session("f", fabric, full, clock), fabric, clock  # type: ignore[arg-type]


def refresh(found: Session, clock: Hand) -> set[str]:
    clock.now += 10
    return asyncio.run(found.refresh())


def test_a_region_that_one_reading_missed_is_still_believed_and_two_make_it_lost() -> None:
    found, fabric, clock = session()
    fabric.regions = [REGION]
    assert refresh(found, clock) == {"r"}
    fabric.regions = []
    assert refresh(found, clock) == {"r"}
    assert found.region("r") == REGION
    assert not found.missing("r")
    refresh(found, clock)
    assert found.region("r") is None
    assert found.missing("r")


def test_a_region_that_comes_back_is_not_lost() -> None:
    found, fabric, clock = session()
    fabric.regions = [REGION]
    refresh(found, clock)
    fabric.regions = []
    refresh(found, clock)
    fabric.regions = [REGION]
    assert refresh(found, clock) == {"r"}
    fabric.regions = []
    refresh(found, clock)
    assert not found.missing("r")


def test_a_region_composed_while_the_fabric_was_read_is_not_missed() -> None:
    found, fabric, clock = session()
    refresh(found, clock)

    def compose() -> None:
        clock.now += 1
        found.record(REGION)

    fabric.during = compose
    refresh(found, clock)
    assert found.region("r") == REGION
    assert not found.missing("r")


def test_a_region_released_while_the_fabric_was_read_does_not_come_back() -> None:
    found, fabric, clock = session()
    fabric.regions = [REGION]
    refresh(found, clock)

    def release() -> None:
        clock.now += 1
        found.forget("r")

    fabric.during = release
    refresh(found, clock)
    assert found.region("r") is None
    assert not found.missing("r")


def test_a_failed_reading_changes_nothing_but_the_error() -> None:
    found, fabric, clock = session()
    fabric.regions = [REGION]
    refresh(found, clock)
    fabric.error = FabricError(Fault.UNAVAILABLE, "no answer")
    with pytest.raises(FabricError):
        refresh(found, clock)
    assert not found.reachable
    assert found.error == "no answer"
    assert found.region("r") == REGION


def test_changes_are_told_apart_from_sameness() -> None:
    found, fabric, clock = session()
    fabric.regions = [REGION]
    refresh(found, clock)
    assert refresh(found, clock) == set()
    fabric.regions = [replace(REGION, hosts=frozenset())]
    assert refresh(found, clock) == {"r"}


def test_the_reserve_and_the_declared_limits_are_taken_off() -> None:
    found, _, clock = session(reserveBytes=4 * GIB, maxHostsPerRegion=3)
    refresh(found, clock)
    facts = found.blade("b1")
    assert facts is not None
    assert (facts.bytes, facts.max_hosts) == (60 * GIB, 3)


def test_declared_cabling_replaces_what_the_fabric_says() -> None:
    found, _, clock = session(cabling=[{"blade": "b1", "hosts": ["BB"]}])
    refresh(found, clock)
    facts = found.blade("b1")
    assert facts is not None
    assert facts.hosts == {H2}


def test_a_host_whose_link_is_down_is_not_cabled() -> None:
    found, fabric, clock = session()
    fabric.blade = replace(fabric.blade, hosts_down=frozenset({H1}))
    refresh(found, clock)
    facts = found.blade("b1")
    assert facts is not None
    assert (facts.hosts, facts.hosts_down) == ({H2}, {H1})


@pytest.mark.parametrize(
    ("declared", "said", "expected"),
    [
        ("software", "hardware", "software"),
        ("hardware", "software", "software"),
        ("hardware", "hardware", "hardware"),
        ("hardware", None, "hardware"),
    ],
)
def test_coherence_is_declared_and_can_only_be_lowered(declared: str, said: str | None, expected: str) -> None:
    found, fabric, clock = session(coherence=declared)
    fabric.blade = replace(fabric.blade, coherence=said)
    refresh(found, clock)
    facts = found.blade("b1")
    assert facts is not None
    assert facts.coherence == expected


def test_composes_of_one_blade_come_one_after_the_other() -> None:
    found, _, _ = session()
    inside, most = 0, 0

    async def one() -> None:
        nonlocal inside, most
        async with found.composing("b1"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    async def main() -> None:
        await asyncio.gather(*(one() for _ in range(5)))

    asyncio.run(main())
    assert most == 1
