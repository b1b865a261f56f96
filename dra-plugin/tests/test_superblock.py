"""The region's superblock: verified at every look, written once, by the init host, on blank memory alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hymcache.crds import Coherence
from hymcache.dra.contents import Found
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.plan import Scrub, Wanted
from hymcache.dra.superblock import Superblock
from hymcache.region import Region, RegionError

from controlplane.waiting import wait
from dra_world.appliance import is_clean, leave_behind

SIZE = 64 << 20
WANTED = Wanted(
    blade="blade-1",
    fabric_region="hymcache-r-1",
    region_bytes=SIZE,
    uuid="3b241101-e2bb-4255-8caf-4136c566a962",
    epoch=3,
    domains=2,
    domain=0,
    init=True,
    coherence=Coherence.SOFTWARE,
    chunk_bytes=1 << 20,
    writable=True,
)
JOINER = replace(WANTED, init=False, domain=1)


@pytest.fixture
def memory() -> Iterator[int]:
    descriptor = os.memfd_create("region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, SIZE)
    yield descriptor
    os.close(descriptor)


def put(memory: int, wanted: Wanted) -> None:
    with Region.attach(memory, domain=wanted.domain, uuid=wanted.uuid, epoch=wanted.epoch, host="a") as region:
        assert region.namespace(bytes(32)).put(b"key", bytes(3 << 20))


def test_init_host_formats_what_the_others_wait_for(memory: int) -> None:
    contents = Superblock()
    assert contents.prepare(memory, JOINER) is Found.BLANK
    assert contents.prepare(memory, WANTED) is Found.FORMATTED
    assert contents.prepare(memory, WANTED) is Found.READY
    assert contents.prepare(memory, JOINER) is Found.READY
    with Region.attach(memory, read_only=True) as region:
        info = region.info()
    assert (info.uuid, info.epoch, info.domains, info.chunk_bytes, info.coherence) == (
        WANTED.uuid,
        3,
        2,
        1 << 20,
        "software",
    )


def test_objects_survive_every_later_look(memory: int) -> None:
    contents = Superblock()
    contents.prepare(memory, WANTED)
    put(memory, WANTED)
    assert contents.prepare(memory, WANTED) is Found.READY
    with Region.attach(memory, read_only=True) as region:
        assert region.namespace(bytes(32)).contains([b"key"]) == b"\1"


def test_next_epoch_is_formatted_over_the_one_before_and_holds_nothing(memory: int) -> None:
    contents = Superblock()
    contents.prepare(memory, WANTED)
    put(memory, WANTED)
    assert contents.prepare(memory, replace(JOINER, epoch=4)) is Found.BLANK
    assert contents.prepare(memory, replace(WANTED, epoch=4)) is Found.FORMATTED
    with Region.attach(memory, read_only=True, epoch=4) as region:
        assert region.namespace(bytes(32)).contains([b"key"]) == b"\0"


def test_later_epoch_is_not_overwritten_by_a_host_that_is_behind(memory: int) -> None:
    contents = Superblock()
    contents.prepare(memory, replace(WANTED, epoch=4))
    with pytest.raises(ClaimError, match="holds epoch 4, expected 3") as caught:
        contents.prepare(memory, WANTED)
    assert caught.value.kind is Kind.REGION


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(
            lambda fd: Region.format(fd, size=SIZE, uuid="aaaaaaaa-e2bb-4255-8caf-4136c566a962"),
            "wrong-uuid",
            id="another tenant's region",
        ),
        pytest.param(lambda fd: os.pwrite(fd, b"kv of somebody else" * 40, 0), "foreign", id="unscrubbed bytes"),
    ],
)
def test_bytes_of_others_are_refused_and_left_alone(memory: int, spoil, reason: str) -> None:
    spoil(memory)
    before = os.pread(memory, 4096, 0)
    for wanted in (WANTED, JOINER):
        with pytest.raises(ClaimError, match=reason) as caught:
            Superblock().prepare(memory, wanted)
        assert caught.value.kind is Kind.REGION
    assert os.pread(memory, 4096, 0) == before


def outcome(contents: Superblock, memory: int, wanted: Wanted) -> Found:
    return wait(
        "the end of it", lambda: found if (found := contents.prepare(memory, wanted)) is not Found.BLANK else None
    )


def test_init_host_clears_what_another_owner_left_while_the_scrub_is_due(memory: int) -> None:
    leave_behind(memory)
    contents = Superblock()
    assert contents.prepare(memory, replace(JOINER, scrub=Scrub.DUE)) is Found.BLANK
    assert not is_clean(memory), "another host than init must not write"
    assert contents.prepare(memory, replace(WANTED, scrub=Scrub.DUE)) is Found.BLANK
    assert outcome(contents, memory, replace(WANTED, scrub=Scrub.DUE)) is Found.FORMATTED
    assert is_clean(memory)
    for wanted in (WANTED, JOINER):
        for scrub in Scrub:
            assert contents.prepare(memory, replace(wanted, scrub=scrub)) is Found.READY


@pytest.mark.parametrize("scrub", [Scrub.NONE, Scrub.DONE])
def test_nothing_is_cleared_once_the_scrub_is_recorded(memory: int, scrub: Scrub) -> None:
    leave_behind(memory)
    for wanted in (WANTED, JOINER):
        with pytest.raises(ClaimError, match="wrong-uuid"):
            Superblock().prepare(memory, replace(wanted, scrub=scrub))
    assert not is_clean(memory)


def test_objects_are_never_cleared_however_late_the_word_that_scrub_is_due(memory: int) -> None:
    contents, due = Superblock(), replace(WANTED, scrub=Scrub.DUE)
    outcome(contents, memory, due)
    put(memory, WANTED)
    assert contents.prepare(memory, due) is Found.READY
    with pytest.raises(ClaimError, match="holds epoch 3, expected 2"):
        contents.prepare(memory, replace(due, epoch=2))
    with Region.attach(memory, read_only=True) as region:
        assert region.namespace(bytes(32)).contains([b"key"]) == b"\1"


def test_region_is_cleared_once_while_many_ask(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    go, calls = threading.Event(), []
    real = Region.format

    def slow(*args: object, **options: object) -> object:
        calls.append(options)
        assert go.wait(10)
        return real(*args, **options)

    monkeypatch.setattr(Region, "format", slow)
    contents, due = Superblock(), replace(WANTED, scrub=Scrub.DUE)
    assert {contents.prepare(memory, due) for _ in range(5)} == {Found.BLANK}
    assert contents.is_clearing(due)
    assert not contents.is_clearing(replace(due, epoch=4))
    go.set()
    assert outcome(contents, memory, due) is Found.FORMATTED
    assert not contents.is_clearing(due)
    assert [options["clear"] for options in calls] == [True]


def test_clearing_that_failed_is_told_once_and_begun_again(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    contents, due = Superblock(), replace(WANTED, scrub=Scrub.DUE)
    error = RegionError("the medium has holes")
    error.kind = "io"
    with monkeypatch.context() as patch:
        patch.setattr(Region, "format", Mock(side_effect=error))
        assert contents.prepare(memory, due) is Found.BLANK
        with pytest.raises(ClaimError, match="has holes"):
            outcome(contents, memory, due)
    assert outcome(contents, memory, due) is Found.FORMATTED


def test_damaged_superblock_is_refused(memory: int) -> None:
    Superblock().prepare(memory, WANTED)
    os.pwrite(memory, bytes([os.pread(memory, 1, 40)[0] ^ 1]), 40)
    with pytest.raises(ClaimError) as caught:
        Superblock().prepare(memory, WANTED)
    assert caught.value.kind is Kind.REGION


@pytest.mark.parametrize("change", [{"domains": 3}, {"coherence": Coherence.HARDWARE}], ids=["domains", "coherence"])
def test_other_shape_than_the_spec_says_is_refused(memory: int, change: dict[str, object]) -> None:
    Superblock().prepare(memory, WANTED)
    with pytest.raises(ClaimError, match="needs a new epoch"):
        Superblock().prepare(memory, replace(WANTED, **change))  # type: ignore[arg-type]


def test_racing_init_calls_format_once(memory: int) -> None:
    found: list[Found] = []

    def prepare() -> None:
        while (outcome := Superblock().prepare(memory, WANTED)) is Found.BLANK:
            pass
        found.append(outcome)

    threads = [threading.Thread(target=prepare) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == sorted([Found.FORMATTED, *[Found.READY] * 5])


def test_used_bytes_are_those_of_the_own_domain(memory: int) -> None:
    contents = Superblock()
    contents.prepare(memory, WANTED)
    put(memory, WANTED)
    mine, other = contents.counters(memory, WANTED), contents.counters(memory, JOINER)
    assert mine is not None
    assert other is not None
    assert mine.used_bytes == 3 << 20
    assert other.used_bytes == 0


def test_lookups_of_the_host_are_reported_as_hits_and_misses(memory: int) -> None:
    contents = Superblock()
    contents.prepare(memory, WANTED)
    put(memory, WANTED)
    with Region.attach(memory, domain=WANTED.domain, host="a") as region:
        region.namespace(bytes(32)).lookup([b"key", b"absent", b"absent too"])
    mine, other = contents.counters(memory, WANTED), contents.counters(memory, JOINER)
    assert mine is not None
    assert other is not None
    assert (mine.hits, mine.misses, other.hits, other.misses) == (1, 2, 0, 0)


def test_users_are_the_processes_of_the_own_domain_and_end_with_them(memory: int) -> None:
    contents = Superblock()
    contents.prepare(memory, WANTED)
    assert contents.users(memory, WANTED) == 0
    region = Region.attach(memory, domain=WANTED.domain, host="a")
    assert contents.users(memory, WANTED) == 1
    assert contents.users(memory, JOINER) == 0
    region.close()
    assert contents.users(memory, WANTED) == 0


def test_users_of_a_blank_region_are_unknown(memory: int) -> None:
    assert Superblock().users(memory, WANTED) is None


def test_counters_of_a_blank_region_are_unknown(memory: int) -> None:
    assert Superblock().counters(memory, WANTED) is None
