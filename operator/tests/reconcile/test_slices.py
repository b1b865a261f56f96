"""The slice of a blade."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hymcache.operator.reconcile.slices import Offer, device, differs, dropped_fields, slice_body
from region_world import GIB, blade

BLADE = {"metadata": {"name": "b1", "uid": "uid-b1"}}


def offer(memory: int = 64 * GIB, **changes: Any) -> Offer:
    return Offer(blade(), memory, changes.pop("slots", 256), **changes)


def written(body: dict[str, Any]) -> dict[str, Any]:
    """As the server gives it back."""
    live = copy.deepcopy(body)
    live["metadata"] |= {"uid": "u", "resourceVersion": "1", "managedFields": []}
    for entry in live["spec"]["devices"]:
        for taint in entry.get("taints", []):
            taint["timeAdded"] = "2026-01-01T00:00:00Z"
    return live


def test_the_device_is_shared_counted_and_waits_for_the_region() -> None:
    found = device(offer())
    assert found is not None
    assert found["name"] == "dram-shared"
    assert found["allowMultipleAllocations"] is True
    assert found["capacity"]["memory"] == {
        "value": "64Gi",
        "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}},
    }
    assert found["bindingConditions"] == ["hymcache.io/RegionComposed"]
    assert found["attributes"]["coherence"] == {"string": "software"}
    assert "bindsToNode" not in found


@pytest.mark.parametrize("memory", [0, GIB, 2 * GIB - 1])
def test_what_the_api_would_refuse_is_left_out(memory: int) -> None:
    assert device(offer(memory)) is None


def test_whole_granules_only() -> None:
    found = device(offer(5 * GIB + 12345))
    assert found is not None
    assert found["capacity"]["memory"]["value"] == "5Gi"


def test_without_a_slot_nothing_is_offered() -> None:
    assert device(offer(slots=0)) is None


def test_the_nodes_are_those_with_the_blades_label() -> None:
    body = slice_body(offer(), BLADE, None, 7)
    [term] = body["spec"]["nodeSelector"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "hymcache.io/blade-b1", "operator": "In", "values": ["cabled"]}]}
    assert body["metadata"]["name"] == "hymcache-b1"
    assert body["metadata"]["annotations"]["hymcache.io/lease-generation"] == "7"
    assert body["metadata"]["ownerReferences"][0]["name"] == "b1"


def test_nothing_is_written_when_nothing_changed_taints_included() -> None:
    body = slice_body(offer(taint="compose-failed"), BLADE, None, 1)
    live = written(body)
    assert not differs(slice_body(offer(taint="compose-failed"), BLADE, live, 1), live)


@pytest.mark.parametrize(
    "other",
    [offer(60 * GIB), offer(taint="unhealthy"), offer(GIB), offer(slots=1)],
    ids=["memory", "taint", "no-device", "slots"],
)
def test_a_changed_offer_is_written_in_both_directions(other: Offer) -> None:
    here, there = slice_body(offer(), BLADE, None, 1), slice_body(other, BLADE, None, 1)
    assert differs(slice_body(other, BLADE, written(here), 1), written(here))
    assert differs(slice_body(offer(), BLADE, written(there), 1), written(there))


def test_a_new_leader_or_a_touch_is_a_change() -> None:
    live = written(slice_body(offer(), BLADE, None, 1))
    assert differs(slice_body(offer(), BLADE, live, 2), live)
    assert differs(slice_body(offer(), BLADE, live, 1, touched="now"), live)


def test_a_touch_is_kept_by_later_writes() -> None:
    live = written(slice_body(offer(), BLADE, None, 1, touched="then"))
    assert not differs(slice_body(offer(), BLADE, live, 1), live)


def test_the_pool_generation_grows_only_with_the_set_of_devices() -> None:
    live = written(slice_body(offer(), BLADE, None, 1))
    assert slice_body(offer(8 * GIB), BLADE, live, 1)["spec"]["pool"]["generation"] == 1
    assert slice_body(offer(GIB), BLADE, live, 1)["spec"]["pool"]["generation"] == 2


def test_fields_that_the_server_dropped_are_named() -> None:
    body = slice_body(offer(), BLADE, None, 1)
    live = written(body)
    for name in ("bindingConditions", "allowMultipleAllocations"):
        del live["spec"]["devices"][0][name]
    assert dropped_fields(body, live) == ["allowMultipleAllocations", "bindingConditions"]
