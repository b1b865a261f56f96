"""The admin API: hosts come and go, and the regions are shown as they really are."""

from __future__ import annotations

import mmap
from typing import Any

MIB = 1 << 20


def test_a_host_is_added_once_however_often_it_is_asked_for(served: Any) -> None:
    body = {"name": "node-d", "uuid": "0d0d0d0d-0000-4000-8000-00000000000d"}
    assert served.call("POST", "/admin/v1/hosts", body).status_code == 201
    assert served.call("POST", "/admin/v1/hosts", body).status_code == 200
    assert [host["name"] for host in served.get("/admin/v1/hosts")["hosts"]][-1] == "node-d"
    assert "/redfish/v1/Fabrics/CXL/Endpoints/I-node-d" in served.members("/redfish/v1/Fabrics/CXL/Endpoints")


def test_two_hosts_never_share_a_name_or_a_uuid(served: Any) -> None:
    taken = {"name": "node-a", "uuid": "0d0d0d0d-0000-4000-8000-00000000000d"}
    assert served.call("POST", "/admin/v1/hosts", taken).status_code == 409
    same_uuid = {"name": "node-d", "uuid": "0A0A0A0A-0000-4000-8000-00000000000A"}
    assert served.call("POST", "/admin/v1/hosts", same_uuid).status_code == 409


def test_a_host_that_makes_no_sense_is_refused(served: Any) -> None:
    for body in (
        {"name": "a/b", "uuid": "0d0d0d0d-0000-4000-8000-00000000000d"},
        {"name": "d", "uuid": "../x"},
        {"name": "d"},
    ):
        assert served.call("POST", "/admin/v1/hosts", body).status_code == 400


def test_a_host_in_use_goes_only_by_force_and_then_gets_nothing(served: Any) -> None:
    chunk = served.compose("r-1", 4).headers["Location"]
    connection = served.connect("r-1", chunk, ["node-a", "node-b"]).headers["Location"]
    path = served.socket("node-a")
    assert served.delete("/admin/v1/hosts/node-a") == 409
    assert path.is_socket()
    assert served.delete("/admin/v1/hosts/node-a?force=true") == 204
    assert not path.exists()
    left = served.get(connection)["Links"]["InitiatorEndpoints"]
    assert left == [{"@odata.id": "/redfish/v1/Fabrics/CXL/Endpoints/I-node-b"}]
    with served.opened("node-b", "r-1"):
        pass
    assert served.delete("/admin/v1/hosts/node-a") == 404


def test_regions_show_what_exists_and_who_may_use_it(served: Any) -> None:
    chunk = served.compose("r-1", 4).headers["Location"]
    served.connect("r-1", chunk, ["node-a"])
    served.connect("r-1-b", chunk, ["node-b"], ["Read"])
    with served.opened("node-a") as descriptor, mmap.mmap(descriptor, 4 * MIB) as mapping:
        mapping[0:1] = b"x"
    answer = served.get("/admin/v1/regions")
    assert (answer["capacity_bytes"], answer["allocated_bytes"], answer["free_bytes"]) == (64 * MIB, 4 * MIB, 60 * MIB)
    region = answer["regions"][0]
    assert (region["name"], region["bytes"], region["state"], region["resident_bytes"]) == (
        "r-1",
        4 * MIB,
        "ready",
        4096,
    )
    assert {(host["name"], host["access"]) for host in region["hosts"]} == {("node-a", "rw"), ("node-b", "ro")}


def test_a_link_of_no_host_is_refused(served: Any) -> None:
    assert served.call("POST", "/admin/v1/links", {"host": "node-z", "state": "down"}).status_code == 404
    assert served.call("POST", "/admin/v1/links", {"host": "node-a", "state": "wobbly"}).status_code == 400
    assert {link["state"] for link in served.get("/admin/v1/links")["links"]} == {"up"}
