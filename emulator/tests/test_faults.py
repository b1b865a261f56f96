"""What an appliance does that was told to fail: done or not done, and what the client sees."""

from __future__ import annotations

import time
from typing import Any

import pytest
import requests
from hymcache.emulator.faults import Fault, Faults, Rule

POST_CHUNK = {"method": "POST", "path": "/MemoryChunks$"}


def test_a_lost_reply_is_done_and_asking_again_gives_the_same_chunk(served: Any) -> None:
    served.faults({**POST_CHUNK, "fault": "lost-reply"})
    with pytest.raises(requests.exceptions.ConnectionError):
        served.compose("r-1", 16)
    assert served.names(served.chunks) == ["r-1"]
    again = served.compose("r-1", 16)
    assert (again.status_code, again.headers["Location"]) == (200, served.members(served.chunks)[0])
    assert served.free_mib() == 48


def test_a_reset_is_not_done(served: Any) -> None:
    served.faults({**POST_CHUNK, "fault": "reset"})
    with pytest.raises(requests.exceptions.ConnectionError):
        served.compose("r-1", 16)
    assert served.members(served.chunks) == []
    assert served.compose("r-1", 16).status_code == 201


@pytest.mark.parametrize(
    ("fault", "status", "done"),
    [("500-but-done", 500, True), ("500", 500, False), ("404", 404, False), ("refuse", 507, False)],
)
def test_an_error_is_done_or_not_done_as_its_name_says(served: Any, fault: str, status: int, done: bool) -> None:
    served.faults({**POST_CHUNK, "fault": fault})
    assert served.compose("r-1", 16).status_code == status
    assert served.names(served.chunks) == (["r-1"] if done else [])
    assert served.compose("r-1", 16).status_code == (200 if done else 201)


@pytest.mark.parametrize("fault", ["lost-reply", "500-but-done"])
def test_a_deletion_that_looked_failed_was_done(served: Any, fault: str) -> None:
    chunk = served.compose("r-1", 16).headers["Location"]
    served.faults({"method": "DELETE", "path": "", "fault": fault})
    if fault == "lost-reply":
        with pytest.raises(requests.exceptions.ConnectionError):
            served.delete(chunk)
    else:
        assert served.delete(chunk) == 500
    assert served.delete(chunk) == 404
    assert served.free_mib() == 64


def test_a_deletion_that_looked_done_was_ignored(served: Any) -> None:
    chunk = served.compose("r-1", 16).headers["Location"]
    served.faults({"method": "DELETE", "path": "", "fault": "ignored"})
    assert served.delete(chunk) == 204
    assert served.get(chunk)["Name"] == "r-1"


def test_a_garbled_answer_is_done_and_cannot_be_read(served: Any) -> None:
    served.faults({**POST_CHUNK, "fault": "garbled"})
    response = served.compose("r-1", 16)
    with pytest.raises(requests.exceptions.JSONDecodeError):
        response.json()
    assert served.names(served.chunks) == ["r-1"]


def test_a_404_of_something_that_is_there_leaves_it_there(served: Any) -> None:
    chunk = served.compose("r-1", 16).headers["Location"]
    served.faults({"method": "GET", "path": chunk, "fault": "404", "times": 2})
    assert [served.call("GET", chunk).status_code for _ in range(3)] == [404, 404, 200]


def test_a_duplicate_makes_two_of_one_name_that_both_count(served: Any) -> None:
    served.faults({**POST_CHUNK, "fault": "duplicate"}, {"method": "POST", "path": "Connections", "fault": "duplicate"})
    chunk = served.compose("r-1", 16).headers["Location"]
    assert served.names(served.chunks) == ["r-1", "r-1"]
    assert served.free_mib() == 32
    assert served.compose("r-1", 16).headers["Location"] == chunk, "the elder is the one that is asked for again"
    served.connect("c-1", chunk, ["node-a"])
    assert served.names(served.connections) == ["c-1", "c-1"]
    for path in [*served.members(served.connections), *served.members(served.chunks)]:
        assert served.delete(path) == 204
    assert served.free_mib() == 64


def test_a_duplicate_never_promises_bytes_that_are_not_there(served: Any) -> None:
    served.faults({**POST_CHUNK, "fault": "duplicate"})
    assert served.compose("r-1", 40).status_code == 507
    assert served.free_mib() == 24


def test_slow_waits_and_then_does_what_the_next_rule_says(served: Any) -> None:
    served.faults({**POST_CHUNK, "fault": "slow", "seconds": 0.3, "times": 2}, {**POST_CHUNK, "fault": "refuse"})
    before = time.monotonic()
    assert served.compose("r-1", 16).status_code == 507
    assert time.monotonic() - before >= 0.3
    assert served.compose("r-1", 16).status_code == 201
    assert time.monotonic() - before >= 0.6
    assert [rule["left"] for rule in served.get("/admin/v1/faults")["faults"]] == [0, 0]


def test_a_lie_about_capacity_is_only_told(served: Any) -> None:
    served.faults({"method": "GET", "path": "/MemoryDomains/1$", "fault": "lie-capacity", "times": None})
    assert served.get(served.domain)["MemorySizeMiB"] == 128
    assert served.get(served.domain)["Oem"]["HyMCache"]["FreeMiB"] == 128
    assert served.compose("r-1", 65).status_code == 507
    served.faults({"method": "GET", "path": "/MemoryDomains/1$", "fault": "lie-capacity", "bytes": 1 << 20})
    assert served.get(served.domain)["MemorySizeMiB"] == 65
    assert served.get(served.domain)["MemorySizeMiB"] == 64


def test_mangled_links_lose_their_middle_while_the_right_address_still_works(served: Any) -> None:
    served.faults({"method": "GET", "path": "", "fault": "mangled-links", "times": None})
    fabric = served.get("/redfish/v1/Fabrics/CXL")
    assert fabric["Endpoints"] == {"@odata.id": "/redfish/v1/Endpoints"}
    assert served.call("GET", "/redfish/v1/Endpoints").status_code == 404
    assert served.get("/redfish/v1/Fabrics/CXL/Endpoints")["Members@odata.count"] == 3


def test_faults_never_meet_the_admin_api(served: Any) -> None:
    served.faults({"method": "*", "path": "", "fault": "reset", "times": None})
    with pytest.raises(requests.exceptions.ConnectionError):
        served.get(served.chunks)
    found = served.get("/admin/v1/faults")["faults"][0]
    assert (found["met"], found["left"]) == (1, None)
    assert served.call("DELETE", "/admin/v1/faults").status_code == 204
    assert served.members(served.chunks) == []


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ({"fault": "explode"}, "fault"),
        ({"fault": "500", "path": "["}, "path"),
        ({"fault": "500", "times": 0}, "times"),
        ({"fault": "slow"}, "seconds"),
        ({"fault": "500", "metod": "GET"}, "metod"),
        ({"fault": "500", "method": "get"}, "method"),
    ],
)
@pytest.mark.parametrize("wrap", [False, True])
def test_a_rule_that_cannot_be_meant_is_refused_and_the_old_ones_stay(
    served: Any, rule: dict[str, Any], place: str, wrap: bool
) -> None:
    served.faults({"fault": "404", "path": "nowhere"})
    response = served.call("PUT", "/admin/v1/faults", {"faults": [rule]} if wrap else [rule])
    assert response.status_code == 400
    assert place in response.json()["error"]["message"]
    assert [one["fault"] for one in served.get("/admin/v1/faults")["faults"]] == ["404"]


def test_a_rule_skips_then_counts() -> None:
    faults = Faults()
    faults.set([Rule(fault=Fault.ERROR_500, path="x", skip=2, times=2)])
    met = [bool(faults.take("GET", path)) for path in ("x", "y", "x", "x", "x", "x")]
    assert met == [False, False, False, True, True, False]


def test_the_first_rule_that_fits_counts_and_the_others_wait() -> None:
    faults = Faults()
    faults.set([Rule(fault=Fault.ERROR_500), Rule(fault=Fault.RESET, times=None)])
    assert [[rule.fault for rule in faults.take("GET", "/")] for _ in range(2)] == [[Fault.ERROR_500], [Fault.RESET]]


def test_an_irregular_fault_is_the_same_every_time_it_is_set() -> None:
    faults = Faults()
    rule = Rule(fault=Fault.ERROR_500, times=None, probability=0.3, seed=7)
    runs = []
    for _ in range(2):
        faults.set([rule])
        runs.append([bool(faults.take("GET", "/")) for _ in range(200)])
    assert runs[0] == runs[1]
    assert 30 < sum(runs[0]) < 90
    faults.set([rule.model_copy(update={"seed": 8})])
    assert [bool(faults.take("GET", "/")) for _ in range(200)] != runs[0]
