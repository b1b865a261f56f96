"""What hosts get through their cables: the memory that the fabric gave them, and nothing else."""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hymcache.crds import Coherence
from hymcache.region import handover

MIB = 1 << 20


@pytest.fixture
def chunk(served: Any) -> str:
    location = served.compose("r-1", 4).headers["Location"]
    assert isinstance(location, str)
    return location


def test_two_connected_hosts_share_one_memory(served: Any, chunk: str) -> None:
    served.connect("r-1", chunk, ["node-a", "node-b"])
    with (
        served.opened("node-a", "r-1") as a,
        served.opened("node-b", "r-1") as b,
        mmap.mmap(a, 4 * MIB) as ours,
        mmap.mmap(b, 4 * MIB) as theirs,
    ):
        ours[3 * MIB : 3 * MIB + 5] = b"hello"
        assert theirs[3 * MIB : 3 * MIB + 5] == b"hello"


def test_an_unconnected_host_gets_no_descriptor(served: Any, chunk: str) -> None:
    served.connect("r-1", chunk, ["node-a"])
    assert served.refusal("node-b", "r-1") == "not-connected"
    assert served.refusal("node-b") == "not-connected"
    assert handover.request(served.socket("node-b"), {"op": "list"}) == {"ok": True, "regions": []}


def test_a_region_that_does_not_exist_is_told_apart_from_one_that_is_not_yours(served: Any, chunk: str) -> None:
    served.connect("r-1", chunk, ["node-a"])
    assert served.refusal("node-a", "r-2") == "no-such-region"


@pytest.mark.parametrize("way", ["delete", "patch"])
def test_a_host_that_was_disconnected_gets_no_descriptor_any_more(served: Any, chunk: str, way: str) -> None:
    path = served.connect("r-1", chunk, ["node-a", "node-b"]).headers["Location"]
    with served.opened("node-b", "r-1"):
        pass
    if way == "delete":
        served.delete(path)
    else:
        body = {"Links": {"InitiatorEndpoints": [{"@odata.id": "/redfish/v1/Fabrics/CXL/Endpoints/I-node-a"}]}}
        served.call("PATCH", path, body)
    assert served.refusal("node-b", "r-1") == "not-connected"


def test_a_host_stays_connected_while_one_of_its_connections_stands(served: Any, chunk: str) -> None:
    first = served.connect("r-1", chunk, ["node-a"], ["Read"]).headers["Location"]
    second = served.connect("r-2", chunk, ["node-a"]).headers["Location"]
    assert handover.request(served.socket("node-a"), {"op": "list"})["regions"][0]["access"] == "rw"
    served.delete(second)
    assert handover.request(served.socket("node-a"), {"op": "list"})["regions"][0]["access"] == "ro"
    third = served.connect("r-3", chunk, ["node-a"]).headers["Location"]
    served.connect("r-4", chunk, ["node-a"], ["Read"])
    assert handover.request(served.socket("node-a"), {"op": "list"})["regions"][0]["access"] == "rw"
    for path in (first, third):
        served.delete(path)
    assert handover.request(served.socket("node-a"), {"op": "list"})["regions"][0]["access"] == "ro"
    served.delete(served.members(served.connections)[0])
    assert served.refusal("node-a", "r-1") == "not-connected"


def test_a_connection_for_reading_gives_a_descriptor_that_cannot_write(served: Any, chunk: str) -> None:
    served.connect("r-1", chunk, ["node-a"], ["Read"])
    descriptor, reply = handover.receive(served.socket("node-a"), region="r-1")
    try:
        assert reply["access"] == "ro"
        with pytest.raises(PermissionError):
            mmap.mmap(descriptor, 4 * MIB)
        with pytest.raises(OSError):
            os.write(descriptor, b"x")
        with mmap.mmap(descriptor, 4 * MIB, prot=mmap.PROT_READ) as mapping:
            assert mapping[:4] == bytes(4)
    finally:
        os.close(descriptor)


def test_the_name_may_be_left_out_where_there_is_one_region(served: Any, chunk: str) -> None:
    served.connect("r-1", chunk, ["node-a"])
    with served.opened("node-a"):
        pass
    other = served.compose("r-2", 4).headers["Location"]
    served.connect("r-2", other, ["node-a"])
    assert served.refusal("node-a") == "bad-request"


def test_the_reply_says_what_the_memory_is(serve: Any) -> None:
    served = serve(coherence=Coherence.HARDWARE)
    chunk = served.compose("r-1", 4).headers["Location"]
    served.connect("r-1", chunk, ["node-a"])
    descriptor, reply = handover.receive(served.socket("node-a"), region="r-1")
    os.close(descriptor)
    assert reply == {
        "ok": True,
        "region": "r-1",
        "bytes": 4 * MIB,
        "access": "rw",
        "coherence": "hardware",
        "media": "dram",
    }
    hello = handover.request(served.socket("node-a"), {"op": "hello"})
    assert hello == {
        "ok": True,
        "blade": "blade-1",
        "host": "0a0a0a0a-0000-4000-8000-00000000000a",
        "coherence": "hardware",
        "media": "dram",
        "power_epoch": served.appliance.blade.view.power_epoch,
    }


def test_a_request_that_means_nothing_is_refused(served: Any) -> None:
    for request in ({"op": "format"}, {"op": ""}):
        with pytest.raises(handover.HandoverError) as caught:
            handover.request(served.socket("node-a"), request)
        assert caught.value.code == "bad-request"


def test_a_pulled_cable_answers_nothing_but_that_until_it_is_back(served: Any, chunk: str) -> None:
    served.connect("r-1", chunk, ["node-a", "node-b"])
    served.call("POST", "/admin/v1/links", {"host": "node-a", "state": "down"})
    assert served.refusal("node-a", "r-1") == "link-down"
    for op in ("hello", "list"):
        with pytest.raises(handover.HandoverError) as caught:
            handover.request(served.socket("node-a"), {"op": op})
        assert caught.value.code == "link-down"
    port = served.get("/redfish/v1/Fabrics/CXL/Switches/1/Ports/node-a")
    assert (port["LinkStatus"], port["Status"]["Health"]) == ("LinkDown", "Critical")
    with served.opened("node-b", "r-1"):
        pass
    served.call("POST", "/admin/v1/links", {"host": "0A0A0A0A-0000-4000-8000-00000000000A", "state": "up"})
    with served.opened("node-a", "r-1"):
        pass


def test_each_handover_has_locks_of_its_own(served: Any, chunk: str) -> None:
    served.connect("r-1", chunk, ["node-a"])
    with served.opened("node-a") as one, served.opened("node-a") as two:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError):
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_two_regions_of_one_name_are_handed_to_nobody(served: Any) -> None:
    served.faults({"method": "POST", "path": "MemoryChunks$", "fault": "duplicate"})
    served.compose("r-1", 4)
    both = served.members(served.chunks)
    assert len(both) == 2
    for number, chunk in enumerate(both):
        served.connect(f"c-{number}", chunk, ["node-a"])
    assert served.refusal("node-a", "r-1") == "bad-request"


def test_only_the_appliances_own_user_reaches_a_hosts_socket(served: Any) -> None:
    folder = served.socket("node-a").parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(served.socket("node-a").stat().st_mode) == 0o666


def test_a_hosts_folder_can_be_opened_to_a_group(serve: Any) -> None:
    served = serve(cable_mode=0o750)
    assert stat.S_IMODE(served.socket("node-a").parent.stat().st_mode) == 0o750


def test_a_hosts_socket_goes_with_the_host(served: Any) -> None:
    path: Path = served.socket("node-c")
    assert path.is_socket()
    assert served.delete("/admin/v1/hosts/node-c") == 204
    assert not path.parent.exists()
    body = {"name": "node-c", "uuid": path.parent.name}
    assert served.call("POST", "/admin/v1/hosts", body).status_code == 201
    assert handover.request(path, {"op": "hello"})["host"] == path.parent.name


def test_two_blades_share_a_hosts_folder(serve: Any) -> None:
    one, two = serve(), serve(blade="blade-2")
    assert one.socket("node-a").parent == two.socket("node-a").parent
    for served in (one, two):
        hello = handover.request(served.socket("node-a"), {"op": "hello"})
        assert hello["blade"] == served.settings.blade
    assert one.delete("/admin/v1/hosts/node-a") == 204
    assert two.socket("node-a").is_socket()


def test_no_socket_is_left_when_the_appliance_stops(serve: Any) -> None:
    served = serve()
    path = served.socket("node-a")
    served.close()
    assert not path.exists()
    assert path.parent.is_dir(), "a node may have this folder mounted: a new one would not be seen there"
