"""The patch that sets a condition on a claim's device."""

from __future__ import annotations

from typing import Any

from hymcache.operator.reconcile.claim_status import has, operations

ENTRY = {
    "driver": "hymcache.io",
    "pool": "b1",
    "device": "d",
    "shareID": "s1",
    "conditions": [{"type": "hymcache.io/RegionComposed", "status": "True"}],
}


def claim(*devices: dict[str, Any]) -> dict[str, Any]:
    status = {"devices": list(devices)} if devices else {}
    return {"metadata": {"uid": "u", "resourceVersion": "7"}, "status": status}


def test_nothing_is_written_unless_the_claim_is_as_it_was_read() -> None:
    tests = operations(claim(), ENTRY)[:2]
    assert tests == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
    ]


def test_the_first_entry_makes_the_list() -> None:
    assert operations(claim(), ENTRY)[2:] == [{"op": "add", "path": "/status/devices", "value": [ENTRY]}]


def test_entries_of_other_drivers_stay() -> None:
    other = {"driver": "gpu.example.com", "pool": "p", "device": "x"}
    assert operations(claim(other), ENTRY)[2:] == [{"op": "add", "path": "/status/devices/-", "value": ENTRY}]


def test_other_conditions_of_the_same_device_stay() -> None:
    seen = {"type": "example.com/Seen", "status": "True"}
    other = {"driver": "gpu.example.com", "pool": "p", "device": "x"}
    old = {**ENTRY, "data": {"a": 1}, "conditions": [seen]}
    [operation] = operations(claim(other, old), ENTRY)[2:]
    assert operation["path"] == "/status/devices/1"
    assert operation["value"]["conditions"] == [seen, *ENTRY["conditions"]]
    assert operation["value"]["data"] == {"a": 1}


def test_a_condition_of_another_share_is_not_this_ones() -> None:
    body = claim({**ENTRY, "shareID": "older"})
    assert not has(body, "s1", "hymcache.io/RegionComposed")
    assert has(body, "older", "hymcache.io/RegionComposed")
