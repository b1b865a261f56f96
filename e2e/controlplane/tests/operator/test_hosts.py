"""Hosts that die, reboot, lose their cable or do not let go."""

from __future__ import annotations

import pytest

from controlplane import NODE, POD, wait
from controlplane import workloads as w
from controlplane.operators import CXLNODE, REGION
from controlplane.stage import Stage
from controlplane.waiting import holds

pytestmark = pytest.mark.controlplane


def shared(stage: Stage) -> str:
    """A region that two nodes use; returns its name."""
    stage.build()
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    stage.claim("kv", "4Gi")
    stage.pod("p1", "kv", node="n1")
    stage.pod("p2", "kv", node="n2")
    stage.wait_bound("p1", "p2")
    name = f"r-{stage.allocation('kv')['shareID']}"
    wait("both to be ready", lambda: all(name in a.ready for a in stage.actors.values()))
    return name


def label(stage: Stage, node: str) -> str | None:
    labels = stage.api.get(NODE, stage.node_name(node))["metadata"].get("labels") or {}
    found: str | None = labels.get(f"hymcache.io/blade-{stage.blade_name('b1')}")
    return found


def phases(stage: Stage, name: str) -> dict[str, str]:
    attachments = stage.api.get(REGION, name)["status"].get("attachments") or []
    return {a["node"].rsplit("-", 1)[1]: a["phase"] for a in attachments}


def test_a_node_whose_plugin_falls_silent_loses_its_label_and_gets_it_back(stage: Stage) -> None:
    name = shared(stage)
    stage.actors["n2"].silent = True
    wait("the label to go", lambda: label(stage, "n2") is None)
    assert label(stage, "n1") == "cabled"
    assert phases(stage, name) == {"n1": "Attached", "n2": "Attached"}, "running pods stay"
    stage.pod("p3", "kv", node="n2")
    holds("no new pod there", lambda: not stage.bound("p3"), seconds=3)
    stage.actors["n2"].silent = False
    stage.wait_bound("p3")


def test_a_dead_host_is_fenced_and_the_region_released(stage: Stage) -> None:
    name = shared(stage)
    stage.actors["n2"].stop()
    stage.remove_pods("p1", "p2")
    wait("n1 to be detached", lambda: phases(stage, name).get("n1") == "Detached")
    stage.wait_nothing_left()
    assert any(stage.node_name("n2") in event["note"] for event in stage.events("HostFenced"))


def test_a_deleted_node_takes_its_cxlnode_along_and_the_others_stay(stage: Stage) -> None:
    name = shared(stage)
    stage.actors["n2"].stop()
    stage.remove_pods("p2")
    stage.api.delete(NODE, stage.node_name("n2"))
    wait("its CXLNode to go", lambda: stage.api.find(CXLNODE, stage.node_name("n2")) is None)
    wait("n2 to be fenced", lambda: phases(stage, name).get("n2") == "Fenced")
    region = wait("its entry to be removed", lambda: _without(stage, name, "n2"))
    assert [h["node"] for h in region["status"]["hosts"]] == [stage.node_name("n1")]
    assert phases(stage, name)["n1"] == "Attached"


def _without(stage: Stage, name: str, node: str) -> dict | None:  # type: ignore[type-arg]
    region = stage.api.get(REGION, name)
    nodes = [h["node"] for h in region["status"].get("hosts") or []]
    return region if stage.node_name(node) not in nodes else None


def test_a_reboot_counts_as_letting_go(stage: Stage) -> None:
    name = shared(stage)
    actor = stage.actors["n2"]
    actor.stubborn = True
    stage.remove_pods("p2")
    holds("n2 is not detached", lambda: phases(stage, name)["n2"] in {"Attached", "Detaching"}, seconds=3)
    actor.reboot()
    wait("n2 to be detached", lambda: phases(stage, name)["n2"] == "Detached")
    assert phases(stage, name)["n1"] == "Attached"


def test_a_live_host_that_holds_on_blocks_the_release_with_a_condition(stage: Stage) -> None:
    name = shared(stage)
    stage.actors["n2"].stubborn = True
    stage.remove_pods("p1", "p2")

    def blocked() -> str | None:
        conditions = stage.api.get(REGION, name)["status"]["conditions"]
        return next((c["message"] for c in conditions if c["type"] == "ReleaseBlocked"), None)

    message = wait("the condition", blocked)
    assert stage.node_name("n2") in message
    assert "end the pods there" in message
    body = stage.wait_slice("b1", lambda d: d[0]["capacity"]["memory"]["value"] == "60Gi")
    assert body["spec"]["devices"]
    assert stage.appliances["b1"].regions()
    stage.actors["n2"].stubborn = False
    stage.wait_nothing_left()
    stage.wait_slice("b1", lambda d: d[0]["capacity"]["memory"]["value"] == "64Gi")


def test_a_pulled_cable_takes_the_label_away(stage: Stage) -> None:
    shared(stage)
    blade = stage.appliances["b1"]
    blade.admin("POST", "links", {"host": "n2", "state": "down"})
    wait("the label to go", lambda: label(stage, "n2") is None)
    blade.admin("POST", "links", {"host": "n2", "state": "up"})
    wait("the label to come back", lambda: label(stage, "n2") == "cabled")


def test_a_third_pod_joins_later_on_a_node_that_was_not_there(stage: Stage) -> None:
    name = shared(stage)
    stage.uuids["n3"] = "3c3c3c3c-0000-4000-8000-00000000000" + stage.namespace[-1]
    w.add_node(stage.api, stage.node_name("n3"), system_uuid=stage.uuids["n3"])
    stage.appliances["b1"].admin("POST", "hosts", {"name": "n3", "uuid": stage.uuids["n3"]})
    actor = stage.add_actor("n3")
    wait("its label", lambda: label(stage, "n3") == "cabled")
    stage.pod("p3", "kv", node="n3")
    stage.wait_bound("p3")
    wait("n3 to be ready", lambda: name in actor.ready)
    assert actor.inodes[name] == stage.actors["n1"].inodes[name]
    assert stage.api.get(POD, "p3", stage.namespace)["spec"]["nodeName"] == stage.node_name("n3")


def test_a_node_that_asks_without_a_pod_gets_nothing(stage: Stage) -> None:
    stage.build(nodes=("n1", "n2"))
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    stage.claim("kv", "4Gi")
    stage.pod("p1", "kv", node="n1")
    stage.wait_bound("p1")
    name = f"r-{stage.allocation('kv')['shareID']}"
    thief = stage.actors["n2"]
    thief._say(name, desired="Attached", state="Attaching")
    holds("not attached", lambda: "n2" not in phases(stage, name), seconds=4)
    hosts = {h["node"] for h in stage.api.get(REGION, name)["spec"]["hosts"]}
    assert stage.node_name("n2") not in hosts
