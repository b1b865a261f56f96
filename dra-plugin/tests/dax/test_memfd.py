"""The `memfd` way to a region: what is kept open, what pods reach, what goes."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hymcache.crds import Coherence
from hymcache.dra.dax.memfd import Memfd
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.keys import ShareKey, claim_uid
from hymcache.dra.plan import Wanted
from hymcache.region import handover
from hymcache.region.handover import HandoverError

from controlplane.waiting import wait
from dra_world.appliance import Appliance, same_memory

KEY = ShareKey(claim_uid("claim-1"), "share-1")
OTHER = ShareKey(claim_uid("claim-2"), "share-2")
WANTED = Wanted(
    blade="blade-1",
    fabric_region="hymcache-r-1",
    region_bytes=16 << 20,
    uuid="3b241101-e2bb-4255-8caf-4136c566a962",
    epoch=1,
    domains=2,
    domain=0,
    init=True,
    coherence=Coherence.SOFTWARE,
    chunk_bytes=None,
    writable=True,
)


@pytest.fixture
def cable(appliance: Appliance) -> Path:
    appliance.compose("hymcache-r-1", WANTED.region_bytes)
    appliance.connect("hymcache-r-1", "node-a")
    return appliance.cable("node-a")


@pytest.fixture
def dax(short_path: Path, cable: Path) -> Iterator[Memfd]:
    made = Memfd(cable_dir=cable, pods_dir=short_path / "pods", host="node-a", generation="one", timeout_seconds=1)
    yield made
    made.stop()


def socket_of(dax: Memfd, key: ShareKey = KEY) -> Path:
    (folder,) = dax.edits(key, WANTED).mounts
    return folder / "region.sock"


def memories() -> int:
    """Descriptors of regions in this process, the appliance's own among them."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(entry.readlink()).startswith("/memfd:region")
    return found


def test_second_open_gives_the_same_memory_without_asking_again(dax: Memfd, appliance: Appliance) -> None:
    assert dax.open(KEY, WANTED) == dax.open(KEY, WANTED)
    assert len(appliance.opened) == 1


def test_next_epoch_gets_the_memory_that_is_there_now(dax: Memfd, appliance: Appliance) -> None:
    old = os.dup(dax.open(KEY, WANTED))
    appliance.power_cycle()
    later = replace(WANTED, epoch=2)
    assert not dax.is_open(KEY, later)
    new = dax.open(KEY, later)
    assert not same_memory(old, new)
    os.close(old)


def test_pods_that_are_not_root_reach_the_socket_whatever_the_umask(dax: Memfd) -> None:
    before = os.umask(0o077)
    try:
        dax.open(KEY, WANTED)
        dax.publish(KEY)
    finally:
        os.umask(before)
    path = socket_of(dax)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
    assert [entry.name for entry in path.parent.iterdir()] == ["region.sock"]


def test_publish_again_changes_nothing_and_heals_a_lost_socket(dax: Memfd) -> None:
    dax.open(KEY, WANTED)
    assert dax.publish(KEY)
    assert not dax.publish(KEY)
    socket_of(dax).unlink()
    assert dax.publish(KEY)
    os.close(handover.receive(socket_of(dax))[0])


def test_socket_serves_its_own_region_alone(dax: Memfd) -> None:
    dax.open(KEY, WANTED)
    dax.publish(KEY)
    path = socket_of(dax)
    listed = handover.request(path, {"op": "list"})["regions"]
    assert listed == [{"region": "hymcache-r-1", "bytes": WANTED.region_bytes, "access": "rw"}]
    os.close(handover.receive(path, region="hymcache-r-1")[0])
    with pytest.raises(HandoverError, match="serves hymcache-r-1 alone"):
        handover.receive(path, region="hymcache-r-2")
    with pytest.raises(HandoverError, match="expected op open or list"):
        handover.request(path, {"op": "hello"})


def test_withdrawn_region_is_refused_and_comes_back(dax: Memfd) -> None:
    dax.open(KEY, WANTED)
    dax.publish(KEY)
    kept, _ = handover.receive(socket_of(dax))
    dax.withdraw(KEY)
    with pytest.raises(HandoverError) as caught:
        handover.receive(socket_of(dax))
    assert caught.value.code == "link-down"
    dax.open(KEY, WANTED)
    again, _ = handover.receive(socket_of(dax))
    assert same_memory(kept, again)
    os.close(kept)
    os.close(again)


def test_close_leaves_no_trace_and_no_descriptor(dax: Memfd) -> None:
    before = memories()
    dax.open(KEY, WANTED)
    dax.publish(KEY)
    dax.close(KEY)
    dax.close(KEY)
    assert not socket_of(dax).parent.exists()
    wait("descriptors to be closed", lambda: memories() == before)


def test_sweep_takes_what_nobody_knows_and_asks_late(dax: Memfd, short_path: Path) -> None:
    dax.open(KEY, WANTED)
    dax.publish(KEY)
    (short_path / "pods" / "left-over").mkdir()

    def known() -> list[ShareKey]:
        (short_path / "pods" / OTHER.folder).mkdir()  # a Prepare that runs meanwhile
        return [KEY, OTHER]

    assert dax.sweep(known) == 1
    assert {path.name for path in (short_path / "pods").iterdir()} == {KEY.folder, OTHER.folder}
    assert dax.is_open(KEY, WANTED)
    dax.sweep(lambda: [OTHER])  # the other plugin generation has released it
    assert not dax.is_open(KEY, WANTED)


def test_wrong_memory_is_not_kept(dax: Memfd) -> None:
    before = memories()
    with pytest.raises(ClaimError) as caught:
        dax.open(KEY, replace(WANTED, region_bytes=WANTED.region_bytes * 2))
    assert caught.value.kind is Kind.FABRIC
    wait("descriptors to be closed", lambda: memories() == before)
    assert not dax.is_open(KEY, WANTED)


def test_ports_say_who_answers(dax: Memfd, appliance: Appliance, cable: Path) -> None:
    (port,) = dax.ports()
    assert (port.blade, port.up, port.host, port.power_epoch) == ("blade-1", True, "node-a", 1)
    appliance.links_down.add("node-a")
    (port,) = dax.ports()
    assert not port.up
    assert "link-down" in port.message
