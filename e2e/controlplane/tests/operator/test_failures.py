"""What goes wrong, and where the pods end up."""

from __future__ import annotations

import time
from typing import Any

import pytest

from controlplane import CLAIM, EVENT, POD, wait
from controlplane import workloads as w
from controlplane.operators import FABRIC, REGION
from controlplane.rounds import best_round
from controlplane.stage import Stage
from controlplane.waiting import holds

pytestmark = pytest.mark.controlplane

CHUNKS = "MemoryChunks$"
CONNECTIONS = "Connections$"


def rule(fault: str, method: str, path: str, **more: Any) -> dict[str, Any]:
    return {"fault": fault, "method": method, "path": path, **more}


@pytest.mark.timeout(900)
def test_compose_fails_on_one_blade_and_the_pods_land_on_the_other(stage: Stage) -> None:
    stage.build(blades=("b1", "b2"))
    stage.start_operator(blade_backoff_max_seconds="30")
    stage.add_fabrics()
    stage.wait_published()

    def life(number: int) -> float:
        for short, blade in stage.appliances.items():
            stage.wait_slice(short, lambda devices: not devices[0].get("taints"))
            blade.faults(rule("500", "POST", CHUNKS, times=None))
        claim, pods = f"kv{number}", (f"a{number}", f"b{number}")
        stage.claim(claim, "4Gi")
        for pod, node in zip(pods, ("n1", "n2"), strict=True):
            stage.pod(pod, claim, node=node)
        first = wait("an allocation", lambda: stage.allocation(claim))
        sick, other = ("b1", "b2") if first["pool"] == stage.blade_name("b1") else ("b2", "b1")
        stage.appliances[other].faults()  # the scheduler chose: the other one is well

        def failed_at() -> float | None:
            devices = stage.api.get(CLAIM, claim, stage.namespace)["status"].get("devices") or []
            failed = any(c["type"] == "hymcache.io/RegionFailed" for d in devices for c in d.get("conditions") or [])
            moved = stage.allocation(claim)["pool"] != first["pool"]
            return time.monotonic() if failed or moved else None

        begun = wait("the failure", failed_at)
        stage.wait_bound(*pods)
        took = time.monotonic() - begun
        assert stage.allocation(claim)["pool"] == stage.blade_name(other)
        body = stage.wait_slice(sick, lambda devices: bool(devices[0].get("taints")))
        assert body["spec"]["devices"][0]["taints"][0]["key"] == "hymcache.io/blade-unhealthy"
        wait("the old share to be torn down", lambda: len(stage.api.list(REGION)) == 1)
        about = {"namespace": stage.namespace, "name": claim}
        [event] = [e for e in stage.events("RegionFailed") if about.items() <= e["regarding"].items()]
        assert "tried 4 times" in event["note"]

        stage.appliances[sick].faults()
        stage.remove_pods(*pods)
        stage.wait_nothing_left()
        return took

    best_round("bound after the failure", life, below=15)


def test_attach_fails_on_one_host_and_the_other_runs(stage: Stage) -> None:
    stage.build()
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    blade = stage.appliances["b1"]
    stage.claim("kv", "4Gi")
    stage.pod("p1", "kv", node="n1")
    stage.wait_bound("p1")
    wait("n1 to be ready", lambda: stage.actors["n1"].ready)
    blade.faults(rule("500", "POST", CONNECTIONS, times=None))
    stage.pod("p2", "kv", node="n2")
    region = wait("the failure to show", lambda: _failed(stage))
    assert region["status"]["phase"] == "Degraded"
    assert "n2" in next(c["message"] for c in region["status"]["conditions"] if c["type"] == "Attached")
    assert {a["node"][-2:]: a["phase"] for a in region["status"]["attachments"]} == {"n1": "Attached", "n2": "Failed"}
    blade.faults()
    wait("n2 after the fabric is well again", lambda: stage.actors["n2"].ready)
    assert stage.actors["n1"].inodes == stage.actors["n2"].inodes


def _failed(stage: Stage) -> Any:
    region = stage.region("kv")
    phases = {a["phase"] for a in region["status"].get("attachments", [])}
    return region if "Failed" in phases else None


def test_a_claim_larger_than_any_blade_waits_with_the_schedulers_reason(stage: Stage) -> None:
    stage.build(nodes=("n1",))
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    stage.claim("huge", "65Gi")
    stage.pod("p1", "huge")

    def reason() -> str | None:
        notes = [e["note"] for e in stage.api.list(EVENT, stage.namespace) if e["reason"] == "FailedScheduling"]
        return next((note for note in notes if "cannot allocate all claims" in note), None)

    wait("the scheduler's reason", reason)
    holds("nothing composed", lambda: not stage.api.list(REGION), seconds=2)


def test_an_unreachable_fabric_says_what_was_tried(stage: Stage) -> None:
    stage.build(nodes=("n1",))
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    blade = stage.appliances["b1"]
    blade.process.kill()

    def condition() -> Any:
        body = stage.api.get(FABRIC, f"fabric-{blade.blade}")
        found = {c["type"]: c for c in body["status"]["conditions"]}
        return found["Reachable"] if found["Reachable"]["status"] == "False" else None

    found = wait("the condition", condition)
    assert blade.url in found["message"]
    assert "GET /redfish/v1/" in found["message"]
    assert "can be reached" in found["message"]
    tainted = stage.wait_slice("b1", lambda devices: bool(devices[0].get("taints")))
    assert tainted["spec"]["devices"][0]["taints"][0]["value"] == "unhealthy"
    blade.start()
    stage.add_fabrics()  # it listens on another port now
    stage.wait_slice("b1", lambda devices: not devices[0].get("taints"))
    stage.claim("kv", "4Gi")
    stage.pod("p1", "kv")
    stage.wait_bound("p1")


FAULTS = ("lost-reply", "500-but-done", "404", "500", "duplicate", "async-task", "reset")


@pytest.mark.timeout(600)
def test_a_fabric_that_lies_at_every_step_of_a_life_converges(stage: Stage, subtests: pytest.Subtests) -> None:
    stage.build()
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    for fault in FAULTS:
        with subtests.test(fault=fault):
            _life_with(stage, fault)


def _life_with(stage: Stage, fault: str) -> None:
    """One life in which every write to the fabric meets the fault once."""
    blade, claim, pods = stage.appliances["b1"], f"kv-{fault}", (f"a-{fault}", f"b-{fault}")
    blade.faults(
        rule(fault, "POST", CHUNKS),
        rule(fault, "POST", CONNECTIONS, times=2),
        rule(fault, "DELETE", "Connections/", times=2),
        rule(fault, "DELETE", "MemoryChunks/"),
    )
    stage.claim(claim, "4Gi")
    for pod, node in zip(pods, ("n1", "n2"), strict=True):
        stage.pod(pod, claim, node=node)
    stage.wait_bound(*pods)
    name = f"r-{stage.allocation(claim)['shareID']}"
    wait("both plugins to be ready", lambda: all(name in a.ready for a in stage.actors.values()))
    assert len({actor.inodes[name] for actor in stage.actors.values()}) == 1
    wait("one region on the blade", lambda: [r["bytes"] for r in blade.regions()] == [4 << 30])
    stage.remove_pods(*pods)
    stage.wait_nothing_left()
    assert stage.errors() == []


def test_a_bad_configuration_is_refused_late_and_by_name(stage: Stage) -> None:
    stage.build(nodes=("n1",))
    stage.start_operator(request_fault_seconds="6")
    stage.add_fabrics()
    stage.wait_published()
    stage.claim("kv", "4Gi", domains=0)
    stage.pod("p1", "kv")
    share = wait("an allocation", lambda: stage.allocation("kv"))["shareID"]
    event = wait("the event", lambda: stage.events("ClaimRefused"))[0]
    assert "RegionConfig.domains" in event["note"]
    holds("not failed at once", lambda: stage.allocation("kv")["shareID"] == share, seconds=3)
    wait("failed later", lambda: _moved(stage, share))
    assert stage.api.get(POD, "p1", stage.namespace)["spec"].get("nodeName") is None


def _moved(stage: Stage, share: str) -> bool:
    """The allocation was given up, or already made anew."""
    try:
        return bool(stage.allocation("kv")["shareID"] != share)
    except LookupError:
        return True


def test_parameters_in_any_order_of_keys_do_not_stop_a_claim(stage: Stage) -> None:
    stage.build(nodes=("n1",))
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    stage.claim("kv", "4Gi", reclaimPolicy="Delete", domains=2, access="ReadWrite")
    stage.pod("p1", "kv")
    stage.wait_bound("p1")
    assert stage.region("kv")["spec"]["domains"] == 2


def test_a_claim_whose_status_nobody_can_patch_is_told_by_an_event(stage: Stage) -> None:
    """Kubernetes compares opaque parameters byte by byte, and loses blanks between JSON tokens on the way."""
    stage.build(nodes=("n1",))
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    body = w.claim("kv", "4Gi", namespace=stage.namespace)
    config = {"apiVersion": "hymcache.io/v1alpha1", "kind": "RegionConfig"}
    body["spec"]["devices"]["config"] = [{"opaque": {"driver": "hymcache.io", "parameters": config}}]
    stage.api._resource(CLAIM).create(body=body, namespace=stage.namespace)  # the client's JSON has blanks
    stage.pod("p1", "kv")
    event = wait("the event", lambda: stage.events("ClaimUnwritable"))[0]
    assert "make the claim anew with kubectl" in event["note"]
