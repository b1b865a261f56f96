"""What the watches have shown, and whom it wakes."""

from __future__ import annotations

from typing import Any

import pytest
from hymcache.operator.clients.kinds import CLAIM, CXLNODE, FABRIC, NODE, POD, REGION, WATCHED
from hymcache.operator.store import COUNTERS_SECONDS, Store, is_ours, pod_of
from hymcache.operator.workqueue import Key

Object = dict[str, Any]


def meta(name: str, version: int, namespace: str | None = "ns", **more: Any) -> Object:
    where = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), **where, **more}}


def claim(version: int = 1, share: str | None = "s1", device_class: str = "hymcache-shared") -> Object:
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": device_class}}]}}
    results = [{"driver": "hymcache.io", "pool": "b1", "device": "d", "shareID": share, "request": "r"}]
    status = {"allocation": {"devices": {"results": results}}} if share else {}
    return {**meta("kv", version), "spec": spec, "status": status}


def pod(version: int = 1, node: str | None = None, nominated: str | None = None, phase: str = "Pending") -> Object:
    spec = {"resourceClaims": [{"name": "c", "resourceClaimName": "kv"}], **({"nodeName": node} if node else {})}
    status = {"phase": phase, **({"nominatedNodeName": nominated} if nominated else {})}
    return {**meta("p", version), "spec": spec, "status": status}


def region(version: int, status: Object | None = None) -> Object:
    spec = {"blade": "b1", "hosts": [{"node": "n1", "systemUUID": "u", "domain": 0}]}
    return {**meta("r-s1", version, None), "spec": spec, "status": status or {}}


def test_claims_of_other_drivers_are_not_kept() -> None:
    store = Store()
    assert store.observe(CLAIM, claim(device_class="gpu.example.com", share=None)) == {}
    assert list(store.all(CLAIM)) == []


@pytest.mark.parametrize(
    ("request_", "ours"),
    [
        ({"exactly": {"deviceClassName": "hymcache-shared"}}, True),
        ({"exactly": {"deviceClassName": "gpu"}}, False),
        ({"firstAvailable": [{"deviceClassName": "gpu"}, {"deviceClassName": "hymcache-region"}]}, True),
    ],
)
def test_a_claim_is_ours_by_its_class_before_it_is_allocated(request_: Object, ours: bool) -> None:
    assert is_ours({**meta("c", 1), "spec": {"devices": {"requests": [{"name": "r", **request_}]}}}) is ours


def test_an_administrators_view_of_a_region_is_not_an_allocation() -> None:
    body = claim()
    body["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    store = Store()
    store.observe(CLAIM, body)
    assert store.claim_of_share("s1") is None


def test_an_allocation_wakes_its_claim_and_its_region_and_so_does_its_end() -> None:
    store = Store()
    assert set(store.observe(CLAIM, claim(1))) == {Key("claim", "ns/kv"), Key("region", "r-s1")}
    assert set(store.observe(CLAIM, claim(2, share=None))) == {Key("claim", "ns/kv"), Key("region", "r-s1")}
    assert store.claim_of_share("s1") is None


def test_generated_claims_are_found_by_the_pods_status() -> None:
    body = pod()
    body["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
    body["status"]["resourceClaimStatuses"] = [{"name": "c", "resourceClaimName": "p-c-x7"}]
    found = pod_of(body)
    assert found is not None
    assert found.claims == {"p-c-x7"}


def test_a_pod_without_claims_is_not_kept() -> None:
    assert pod_of({**meta("p", 1), "spec": {}, "status": {}}) is None


def test_a_pod_that_gets_its_node_touches_the_blade_once() -> None:
    store = Store()
    store.observe(CLAIM, claim())
    assert Key("touch", "b1") not in store.observe(POD, pod(1))
    assert Key("touch", "b1") not in store.observe(POD, pod(2, nominated="n1"))
    assert Key("touch", "b1") in store.observe(POD, pod(3, node="n1"))
    assert Key("touch", "b1") not in store.observe(POD, pod(4, node="n1", phase="Running"))


def test_pods_that_wait_are_those_without_a_node_whose_claims_are_ours() -> None:
    store = Store()
    store.observe(POD, pod(1))
    assert store.waiting_pods() == []
    store.observe(CLAIM, claim(share=None))
    assert [p.name for p in store.waiting_pods()] == ["p"]
    store.observe(POD, pod(2, node="n1"))
    assert store.waiting_pods() == []


def test_pods_that_have_ended_use_nothing() -> None:
    store = Store()
    store.observe(POD, pod(1, node="n1", phase="Succeeded"))
    assert store.pods_of("ns/kv") == []


def test_an_older_version_does_not_overwrite_a_newer_one() -> None:
    store = Store()
    store.observe(CLAIM, claim(5))
    assert store.observe(CLAIM, claim(4, share=None)) == {}
    assert store.claim_of_share("s1") is not None


def test_a_list_that_began_before_a_deletion_does_not_bring_the_object_back() -> None:
    store = Store()
    store.observe(CLAIM, claim(5))
    store.observe(CLAIM, claim(7), gone=True)
    store.relist(CLAIM, [claim(5)], 6)
    assert list(store.all(CLAIM)) == []


def test_a_list_removes_what_the_watch_kept_too_long_and_adds_what_it_missed() -> None:
    store = Store()
    store.observe(CLAIM, claim(5))
    other = {**claim(6, share="s2"), **meta("other", 6)}
    woken, repaired = store.relist(CLAIM, [other], 9)
    assert repaired == 2
    assert {Key("claim", "ns/kv"), Key("claim", "ns/other"), Key("region", "r-s1")} <= set(woken)
    assert [c["metadata"]["name"] for c in store.all(CLAIM)] == ["other"]


def test_an_object_made_after_the_list_stays() -> None:
    store = Store()
    store.observe(CLAIM, claim(12))
    store.relist(CLAIM, [], 9)
    assert store.get(CLAIM, "ns/kv") is not None


def test_the_store_is_complete_when_every_kind_was_listed() -> None:
    store = Store()
    for kind in WATCHED:
        assert not store.complete
        store.relist(kind, [], 1)
    assert store.complete


def test_a_fabrics_own_status_does_not_wake_it() -> None:
    store = Store()
    body = {**meta("f", 1, None, generation=1), "spec": {}}
    assert store.observe(FABRIC, body) == {Key("fabric", "f"): 0.0}
    assert store.observe(FABRIC, {**meta("f", 2, None, generation=1), "spec": {}, "status": {"x": 1}}) == {}
    assert store.observe(FABRIC, {**meta("f", 3, None, generation=2), "spec": {}}) == {Key("fabric", "f"): 0.0}


def test_counters_of_a_plugin_are_looked_at_later_and_a_new_state_at_once() -> None:
    store = Store()
    store.observe(REGION, region(1, {"hosts": [{"node": "n1", "state": "Ready", "hits": 1}]}))
    woken = store.observe(REGION, region(2, {"hosts": [{"node": "n1", "state": "Ready", "hits": 2, "heartbeat": "x"}]}))
    assert woken[Key("region", "r-s1")] == COUNTERS_SECONDS
    woken = store.observe(REGION, region(3, {"hosts": [{"node": "n1", "state": "Released", "hits": 2}]}))
    assert woken[Key("region", "r-s1")] == 0.0


def test_a_heartbeat_wakes_the_node_and_a_reboot_its_regions_too() -> None:
    store = Store()
    store.observe(REGION, region(1))
    node = {**meta("n1", 1, None), "status": {"bootID": "one", "heartbeat": "1"}}
    assert Key("region", "r-s1") in store.observe(CXLNODE, node)
    beat = {**meta("n1", 2, None), "status": {"bootID": "one", "heartbeat": "2"}}
    assert set(store.observe(CXLNODE, beat)) == {Key("node", "n1")}
    boot = {**meta("n1", 3, None), "status": {"bootID": "two", "heartbeat": "3"}}
    assert Key("region", "r-s1") in store.observe(CXLNODE, boot)


def test_of_a_node_only_what_is_asked_for_is_kept() -> None:
    store = Store()
    labels = {"hymcache.io/blade-b1": "cabled", "kubernetes.io/os": "linux"}
    body = {**meta("n1", 1, None, labels=labels), "status": {"nodeInfo": {"systemUUID": "U"}, "images": ["x"] * 50}}
    store.observe(NODE, body)
    kept = store.get(NODE, "n1")
    assert kept["systemUUID"] == "U"
    assert kept["metadata"]["labels"] == {"hymcache.io/blade-b1": "cabled"}
    assert "images" not in str(kept)
