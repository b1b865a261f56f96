"""What objects mean, without effects: the same answer for the same objects, whatever their order."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from hymcache.crds import CXLRegion
from hymcache.crds.config import Access
from hymcache.dra import plan
from hymcache.dra.checkpoint.model import ClaimRecord, Phase
from hymcache.dra.claims import plan_record
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.keys import claim_uid
from hymcache.dra.plan import ClaimRef, Scrub, Share, Wanted
from hypothesis import given
from hypothesis import strategies as st

REF = ClaimRef("team", "kv", claim_uid("0d3a2f0e-6f0b-4f0a-9a55-6c6a7c1f1b11"))


def claim(*results: dict[str, Any]) -> dict[str, Any]:
    base = {"request": "region", "driver": "hymcache.io", "pool": "blade-1", "device": "dram-shared"}
    full = [{**base, **result} for result in results]
    return {"metadata": {"uid": REF.uid}, "status": {"allocation": {"devices": {"results": full}}}}


def region(**changes: Any) -> CXLRegion:
    spec = {
        "blade": "blade-1",
        "bytes": 1 << 30,
        "domains": 4,
        "uuid": str(uuid.UUID(int=1)),
        "epoch": 2,
        "coherence": "software",
        "hosts": [{"node": "a", "systemUUID": "A", "domain": 1, "init": True}],
        **changes.pop("spec", {}),
    }
    identity = {"kind": "cable", "blade": "blade-1", "region": "hymcache-r-1"}
    attachment = {"node": "a", "phase": "Attached", "identity": identity, "epoch": 2, **changes}
    return CXLRegion.read({"metadata": {"name": "r-1"}, "spec": spec, "status": {"attachments": [attachment]}})


def one(share_id: str = "s1") -> Share:
    return plan.shares_of(claim({"shareID": share_id}), REF, "hymcache.io")[0]


@given(st.lists(st.uuids().map(str), min_size=1, max_size=5, unique=True), st.randoms())
def test_order_of_results_does_not_matter(shares: list[str], rng: random.Random) -> None:
    results = [{"shareID": share} for share in shares]
    shuffled = rng.sample(results, len(results))
    assert plan.shares_of(claim(*results), REF, "hymcache.io") == plan.shares_of(claim(*shuffled), REF, "hymcache.io")


def test_sub_request_is_stripped_and_other_drivers_are_left_out() -> None:
    found = plan.shares_of(
        claim({"request": "region/fast", "shareID": "s1"}, {"driver": "gpu.example.com"}), REF, "hymcache.io"
    )
    assert [(share.request, share.region) for share in found] == [("region", "r-s1")]


def test_same_device_twice_is_refused() -> None:
    with pytest.raises(ClaimError, match="the same device twice"):
        plan.shares_of(claim({}, {}), REF, "hymcache.io")


def test_attached_region_says_what_to_open() -> None:
    found = plan.wanted(region(), one(), "a")
    assert isinstance(found, Wanted)
    assert (found.fabric_region, found.domain, found.init, found.epoch) == ("hymcache-r-1", 1, True, 2)


@pytest.mark.parametrize(
    ("changes", "node", "waits_for"),
    [
        pytest.param({"phase": "Pending"}, "a", "which is Pending", id="pending"),
        pytest.param({"phase": "Failed", "message": "no port"}, "a", "which is Failed: no port", id="failed"),
        pytest.param({"phase": "Fenced"}, "a", "which is Fenced", id="fenced"),
        pytest.param({"phase": "Detaching"}, "a", "which is Detaching", id="detaching"),
        pytest.param({"epoch": 1}, "a", "attachment of node a", id="attached for an older epoch"),
        pytest.param({"identity": None}, "a", "attachment of node a", id="attached without identity"),
        pytest.param({}, "b", "given the node no domain", id="unknown node"),
        pytest.param({"spec": {"hosts": []}}, "a", "attachment of node a", id="no domain"),
        pytest.param({"spec": {"uuid": None}}, "a", "fill in uuid", id="no uuid yet"),
    ],
)
def test_everything_else_is_waited_for_in_words(changes: dict[str, Any], node: str, waits_for: str) -> None:
    found = plan.wanted(region(**changes), one(), node)
    assert isinstance(found, str)
    assert waits_for in found


@pytest.mark.parametrize(
    ("status", "scrub"),
    [
        pytest.param({}, Scrub.DUE, id="nobody has cleared it"),
        pytest.param({"scrub": "blade-1"}, Scrub.NONE, id="the fabric has"),
        pytest.param({"scrub": "a", "hosts": [("a", 2, True)]}, Scrub.DONE, id="a host has"),
        pytest.param({"hosts": [("b", 2, True)]}, Scrub.DONE, id="a host says so, not recorded yet"),
        pytest.param({"hosts": [("a", 1, True)]}, Scrub.DUE, id="a host has in an older epoch"),
        pytest.param({"scrub": "blade-1", "hosts": [("a", 1, True)]}, Scrub.NONE, id="now the fabric has"),
        pytest.param({"hosts": [("a", 2, False)]}, Scrub.DUE, id="a host that did not"),
    ],
)
def test_scrub_is_due_until_fabric_or_host_has_cleared_this_epoch(status: dict[str, Any], scrub: Scrub) -> None:
    made = region()
    assert made.status is not None
    record = {"time": "2026-01-01T00:00:00Z", "by": status.get("scrub"), "how": "cleared"}
    changes = {
        "scrub": record if "scrub" in status else None,
        "hosts": [{"node": n, "epoch": epoch, "scrubbed": did} for n, epoch, did in status.get("hosts", [])],
    }
    told = CXLRegion.read({**made.dump(), "status": {**made.status.dump(), **changes}})
    found = plan.wanted(told, one(), "a")
    assert isinstance(found, Wanted)
    assert found.scrub is scrub
    assert found.vouched == (scrub is not Scrub.NONE), "node a has the init role"


def test_read_only_claim_is_not_writable() -> None:
    found = plan.shares_of(
        {
            **claim({"shareID": "s1"}),
        },
        REF,
        "hymcache.io",
    )[0]
    assert found.access is Access.READ_WRITE


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        pytest.param({"claimRef": {"namespace": "team", "name": "kv", "uid": REF.uid}}, True, id="own"),
        pytest.param({"claimRef": {"namespace": "team", "name": "kv", "uid": "other"}}, False, id="same name only"),
        pytest.param({"allowedNamespaces": ["team"]}, True, id="allowed"),
        pytest.param({"allowedNamespaces": ["other"]}, False, id="another namespace"),
        pytest.param({}, False, id="static, nobody allowed"),
    ],
)
def test_region_is_for_its_claim_and_for_allowed_namespaces(spec: dict[str, Any], allowed: bool) -> None:
    if allowed:
        plan.check_permission(region(spec=spec), REF)
        return
    with pytest.raises(ClaimError, match="may not use CXLRegion r-1") as caught:
        plan.check_permission(region(spec=spec), REF)
    assert caught.value.kind is Kind.REFUSED


def record(*shares: Share) -> ClaimRecord:
    return plan_record(None, REF, shares, "boot-1")


def test_same_claim_again_keeps_its_ticket() -> None:
    first = record(one())
    assert plan_record(first, REF, (one(),), "boot-1") == first


def test_new_share_releases_the_old_one() -> None:
    first = record(one("s1"))
    second = plan_record(first, REF, (one("s2"),), "boot-1")
    assert [(e.share.share_id, e.phase) for e in second.shares] == [("s2", Phase.WANTED), ("s1", Phase.RELEASING)]
    assert second.ticket == first.ticket


def test_claim_on_its_way_out_begins_anew_with_another_ticket() -> None:
    first = record(one())
    going = first.with_entry(first.shares[0].__class__(one(), Phase.RELEASING))
    again = plan_record(going, REF, (one(),), "boot-1")
    assert again.shares[0].phase is Phase.WANTED
    assert again.ticket != first.ticket
