"""A blade without power: its regions are lost, and made anew under a new epoch while a claim still holds them."""

from __future__ import annotations

import pytest

from controlplane import CLAIM, wait
from controlplane.operators import REGION
from controlplane.stage import Stage

pytestmark = pytest.mark.controlplane


@pytest.mark.parametrize("after", ["forget", "empty"], ids=["regions-gone", "regions-listed-over-zeros"])
def test_a_power_cycle_gives_the_claim_new_memory_without_anybodys_help(stage: Stage, after: str) -> None:
    stage.build(after_power_loss=after)
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    stage.claim("kv", "4Gi")
    stage.pod("p1", "kv", node="n1")
    stage.wait_bound("p1")
    name = f"r-{stage.allocation('kv')['shareID']}"
    actor = stage.actors["n1"]
    wait("n1 to be ready", lambda: name in actor.ready)
    first = actor.inodes[name]
    stage.appliances["b1"].admin("POST", "power-cycle", {"keep": False})

    def again() -> dict | None:  # type: ignore[type-arg]
        region = stage.api.get(REGION, name)
        attachments = region["status"].get("attachments") or [{}]
        here = attachments[0].get("phase") == "Attached" and attachments[0]["epoch"] == region["spec"]["epoch"] > 1
        return region if here and region["status"]["phase"] == "Ready" else None

    region = wait("the region under a new epoch", again)
    assert region["status"]["scrub"]
    assert [e for e in stage.events("RegionLost") if e["regarding"]["name"] == name]
    claim = stage.api.get(CLAIM, "kv", stage.namespace)
    conditions = claim["status"]["devices"][0]["conditions"]
    assert [(c["type"], c["status"]) for c in conditions] == [("hymcache.io/RegionComposed", "True")]
    actor._states.clear()  # the plugin looks again, as the real one does when the epoch moves
    wait("other memory", lambda: actor.inodes[name] != first)
    stage.remove_pods("p1")
    stage.wait_nothing_left()


def test_an_orphan_with_our_prefix_goes_after_a_grace(stage: Stage) -> None:
    stage.build(nodes=("n1",))
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    stage.claim("kv", "4Gi")
    stage.pod("p1", "kv")
    stage.wait_bound("p1")
    name = f"r-{stage.allocation('kv')['shareID']}"
    stage.operator.process.stop()
    stage.remove_pods("p1")
    stage.api.merge(REGION, name, {"metadata": {"finalizers": None}})
    stage.api.delete(REGION, name)
    wait("the object to be gone", lambda: stage.api.find(REGION, name) is None)
    assert stage.appliances["b1"].regions()
    stage.start_operator(name="next")
    stage.wait_nothing_left()
    wait("the log line", lambda: "orphan" in stage.operator.log)
