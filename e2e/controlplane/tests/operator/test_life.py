"""From a claim to one memory on two nodes, and back to an empty blade."""

from __future__ import annotations

import pytest

from controlplane import CLAIM, wait
from controlplane.operators import REGION
from controlplane.rounds import best_round
from controlplane.stage import SETTLED_SECONDS, Stage
from controlplane.waiting import first_times

pytestmark = pytest.mark.controlplane


@pytest.mark.timeout(600)
def test_one_claim_two_pods_on_two_nodes_share_one_memory(stage: Stage) -> None:
    stage.build()
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    stage.claim("kv", "4Gi")

    def life(number: int) -> float:
        if number:
            stage.remove_pods("p1", "p2")
            stage.wait_nothing_left()
        stage.pod("p1", "kv", node="n1")
        stage.pod("p2", "kv", node="n2")
        took = first_times(
            {
                "allocated": lambda: stage.allocation("kv"),
                "RegionComposed": lambda: stage.composed("kv"),
                "bound (the scheduler looks every 5 s)": lambda: stage.bound("p1", "p2"),
                "both nodes ready": lambda: all(stage.region_name("kv") in a.ready for a in stage.actors.values()),
            },
            seconds=SETTLED_SECONDS,
        )
        print("\nfrom the pods: " + ", ".join(f"{what} {seconds:.1f} s" for what, seconds in took.items()))
        return took["both nodes ready"]

    best_round("both nodes ready", life, below=12)

    share = stage.allocation("kv")["shareID"]
    regions = stage.api.list(REGION)
    assert [r["metadata"]["name"] for r in regions] == [f"r-{share}"]
    inodes = {a.inodes[f"r-{share}"] for a in stage.actors.values()}
    assert len(inodes) == 1, "two nodes were handed two memories"
    wait("region Ready with 2/2 hosts", lambda: stage.region("kv")["status"].get("hostsAttached") == "2/2")
    region = wait("phase Ready", lambda: stage.region("kv") if stage.phase("kv") == "Ready" else None)
    assert {a["phase"] for a in region["status"]["attachments"]} == {"Attached"}
    assert sorted(h["domain"] for h in region["spec"]["hosts"]) == [0, 1]
    assert [h["init"] for h in region["spec"]["hosts"]].count(True) == 1
    assert region["status"]["scrub"]["by"] == stage.blade_name("b1")
    assert region["status"]["claim"] == f"{stage.namespace}/kv"
    assert region["status"]["size"] == "4Gi"
    assert not stage.api.get(CLAIM, "kv", stage.namespace)["metadata"].get("annotations")

    stage.remove_pods("p1", "p2")
    stage.wait_nothing_left()
    assert stage.errors() == []
