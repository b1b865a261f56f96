"""Data that outlives its pods: kept while nobody needs the bytes, adopted by its own claim, evicted for others."""

from __future__ import annotations

import pytest

from controlplane import CLAIM, wait
from controlplane.operators import REGION
from controlplane.stage import Stage
from controlplane.waiting import holds

pytestmark = pytest.mark.controlplane


def ready(stage: Stage, **options: str) -> None:
    stage.build(**options)  # type: ignore[arg-type]
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()


def serve(stage: Stage, claim: str, pod: str, node: str | None = None) -> str:
    """A pod of a claim, bound and ready; returns the region's name."""
    stage.pod(pod, claim, node=node)
    stage.wait_bound(pod)
    name = f"r-{stage.allocation(claim)['shareID']}"
    wait("a plugin to be ready", lambda: any(name in a.ready for a in stage.actors.values()))
    return name


def retained(stage: Stage, name: str) -> bool:
    region = stage.api.find(REGION, name)
    conditions = region["status"]["conditions"] if region else []
    return any(c["type"] == "Retained" and c["status"] == "True" for c in conditions)


def test_a_claim_that_comes_back_finds_its_own_memory(stage: Stage) -> None:
    ready(stage)
    stage.claim("kv", "4Gi", reclaimPolicy="Retain")
    first = serve(stage, "kv", "p1", "n1")
    inode = stage.actors["n1"].inodes[first]
    before = stage.api.get(REGION, first)["spec"]
    stage.remove_pods("p1")
    wait("the data to be retained", lambda: retained(stage, first))
    assert stage.appliances["b1"].regions()[0]["bytes"] == 4 << 30

    second = serve(stage, "kv", "p2", "n2")
    assert second != first
    assert stage.actors["n2"].inodes[second] == inode, "the claim was given other memory"
    after = stage.api.get(REGION, second)["spec"]
    assert {k: after[k] for k in ("uuid", "epoch", "domains", "fabricName")} == {
        k: before[k] for k in ("uuid", "epoch", "domains", "fabricName")
    }
    assert {h["node"][-2:]: h["domain"] for h in after["hosts"]} == {"n1": 0, "n2": 1}
    wait("the old object to go", lambda: stage.api.find(REGION, first) is None)
    holds("the bytes stay", lambda: len(stage.appliances["b1"].regions()) == 1, seconds=2)
    stage.remove_pods("p2")
    wait("retained again", lambda: retained(stage, second))
    third = serve(stage, "kv", "p3", "n1")
    assert stage.actors["n1"].inodes[third] == inode
    stage.remove_pods("p3")
    stage.api.delete(CLAIM, "kv", stage.namespace)
    stage.wait_nothing_left()


def test_retained_data_makes_room_the_oldest_first_and_says_so(stage: Stage) -> None:
    ready(stage, capacity="12Gi")
    names = {}
    for claim in ("old", "young"):
        stage.claim(claim, "4Gi", reclaimPolicy="Retain")
        names[claim] = serve(stage, claim, f"p-{claim}")
        stage.remove_pods(f"p-{claim}")
        wait(f"{claim} to be retained", lambda c=claim: retained(stage, names[c]))
    body = stage.wait_slice("b1", lambda devices: bool(devices))
    assert body["spec"]["devices"][0]["capacity"]["memory"]["value"] == "12Gi"

    stage.claim("needs", "8Gi")
    serve(stage, "needs", "p-needs")
    assert stage.api.find(REGION, names["old"]) is None
    assert stage.api.find(REGION, names["young"]) is not None
    note = wait("the event", lambda: stage.events("RetainedDataDropped"))[0]["note"]
    assert "the data was dropped" in note


def test_a_deleted_claim_leaves_nothing_retained(stage: Stage) -> None:
    ready(stage)
    stage.claim("kv", "4Gi", reclaimPolicy="Retain")
    name = serve(stage, "kv", "p1")
    stage.remove_pods("p1")
    wait("the data to be retained", lambda: retained(stage, name))
    stage.api.delete(CLAIM, "kv", stage.namespace)
    stage.wait_nothing_left()
