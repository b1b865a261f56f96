"""The whole life of a claim on two nodes, through real sockets."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
from hymcache.region import Region

from controlplane.kubelet import ClaimKey, NotPreparedError
from controlplane.waiting import wait
from dra_world.api import MemoryApi
from dra_world.appliance import Appliance, is_clean, same_memory
from dra_world.nodes import NodeUnderTest
from dra_world.operator import PREFIX, Operator

MakeNode = Callable[..., NodeUnderTest]


def test_two_nodes_prepare_one_claim_as_one_device_and_one_memory(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    a, b = make_node("node-a"), make_node("node-b")
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    container_a, container_b = a.prepare(claim), b.prepare(claim)
    uid = claim["metadata"]["uid"]
    assert a.kubelet.claims[uid].cdi_ids == b.kubelet.claims[uid].cdi_ids
    share = claim["status"]["allocation"]["devices"]["results"][0]["shareID"]
    assert [device.share_id for device in a.kubelet.claims[uid].devices] == [share]
    assert container_a.env["HYMCACHE_REGION"] == "unix:/run/hymcache/region.sock"
    assert container_a.env["HYMCACHE_DOMAIN"] != container_b.env["HYMCACHE_DOMAIN"]
    fd_a, reply = container_a.region()
    fd_b, _ = container_b.region()
    try:
        assert reply["bytes"] == int(container_a.env["HYMCACHE_REGION_BYTES"]) == os.fstat(fd_a).st_size
        assert same_memory(fd_a, fd_b)
    finally:
        os.close(fd_a)
        os.close(fd_b)
    wait("both hosts ready", lambda: [api.host(region, n)["state"] for n in ("node-a", "node-b")] == ["Ready"] * 2)


def test_nothing_is_left_when_the_last_pod_has_gone(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node()
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    node.prepare(claim, "pod-1")
    node.prepare(claim, "pod-2")
    node.kubelet.unprepare("pod-1")
    assert node.left_behind(), "another pod still uses the claim"
    node.kubelet.unprepare("pod-2")
    assert node.left_behind() == []
    wait("no lock to be left", lambda: not node.lock_files())
    assert (api.host(region, "node-a")["desired"], api.host(region, "node-a")["state"]) == ("Detached", "Released")
    wait("the fabric to detach", lambda: not operator.appliance.connections)


def test_memory_of_another_owner_is_cleared_before_anybody_gets_it(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    operator.hosts_scrub = appliance.dirty = True
    a, b = make_node("node-a"), make_node("node-b")
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    for node in (a, b):
        os.close(node.prepare(claim).region()[0])
    assert is_clean(appliance.regions[PREFIX + region])
    wait("the record", lambda: api.read("CXLRegion", region)["status"].get("scrub"))
    assert api.read("CXLRegion", region)["status"]["scrub"]["by"] == "node-a"
    wait("counters", lambda: "usedBytes" in api.host(region, "node-a"))
    assert [api.host(region, node).get("scrubbed") for node in ("node-a", "node-b")] == [True, None]
    a.restart()
    wait("the new process", lambda: api.host(region, "node-a")["state"] == "Ready")
    assert api.host(region, "node-a")["scrubbed"] is True


def test_region_is_not_given_back_while_it_is_cleared(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    real = Region.format
    monkeypatch.setattr(Region, "format", lambda *args, **options: go.wait(60) and real(*args, **options))
    operator.hosts_scrub = True
    node = make_node(prepare_wait_seconds=2)
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    with pytest.raises(NotPreparedError, match="not formatted yet"):
        node.prepare(claim)
    with pytest.raises(NotPreparedError, match="is being cleared on node node-a"):
        node.kubelet.unprepare_claim(ClaimKey.of(claim))
    assert (PREFIX + region, "node-a") in appliance.connections
    go.set()
    wait("the fabric to detach", lambda: not appliance.connections)
    assert node.left_behind() == []


def test_attachment_that_comes_late_is_waited_for(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node(prepare_wait_seconds=0.6)
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    operator.hold.clear()
    with pytest.raises(NotPreparedError, match="not attached to node node-a yet: waiting for the operator"):
        node.prepare(claim)
    operator.hold.set()
    wait("the attachment", lambda: api.read("CXLRegion", region)["status"].get("attachments"))
    node.prepare(claim)


def test_host_that_cannot_be_attached_says_why(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    a, b = make_node("node-a", prepare_wait_seconds=2), make_node("node-b")
    operator.failing.add("node-a")
    claim = api.add_claim("kv")
    operator.region_of(claim)
    with pytest.raises(NotPreparedError, match="which is Failed: no free port on the switch"):
        a.prepare(claim)
    b.prepare(claim)


def test_unknown_claim_is_unprepared_already(make_node: MakeNode) -> None:
    node = make_node()
    node.kubelet.unprepare_claim(ClaimKey("team", "never", "5f0b7d0a-0000-4000-8000-000000000000"))
    node.kubelet.unprepare_claim(ClaimKey("team", "never", "../../etc/passwd"))
    assert node.left_behind() == []


def test_unprepare_does_not_need_the_api_server(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    node = make_node()
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    node.prepare(claim)
    api.down = True
    node.kubelet.unprepare("pod-1")
    assert not list(node.settings.cdi_dir.iterdir())
    api.down = False
    wait("the operator to be told", lambda: api.host(region, "node-a")["state"] == "Released")
    wait("nothing to be left", lambda: node.left_behind() == [])


def test_region_that_another_claim_uses_is_not_given_back(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node()
    operator.make_region("models", allowedNamespaces=["team"])
    one, other = (api.add_claim(name, share=None, device="models") for name in ("one", "other"))
    node.prepare(one, "pod-1")
    node.prepare(other, "pod-2")
    node.contents.users_now = 1  # whose process it is cannot be told
    node.kubelet.unprepare("pod-1")
    assert api.host("models", "node-a")["desired"] == "Attached"
    container = node.runtime.container(node.kubelet.claims[other["metadata"]["uid"]].cdi_ids)
    os.close(container.region()[0])
    node.contents.users_now = 0
    node.kubelet.unprepare("pod-2")
    assert api.host("models", "node-a")["state"] == "Released"
    assert node.left_behind() == []
