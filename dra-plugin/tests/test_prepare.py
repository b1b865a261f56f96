"""Prepare: what it refuses, what it repeats, what it survives."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hymcache.dra._proto import dra_v1_pb2, dra_v1_pb2_grpc
from hymcache.dra.calls import Call
from hymcache.dra.claims import Claims
from hymcache.dra.errors import ClaimError
from hymcache.dra.keys import claim_uid
from hymcache.dra.plan import ClaimRef
from hymcache.dra.plugin import assemble
from hymcache.dra.releases import Releases

from controlplane.kubelet import ClaimKey, Kubelet, NotPreparedError
from controlplane.waiting import wait
from dra_world.api import MemoryApi, Object
from dra_world.appliance import Appliance, has_mark, write_mark
from dra_world.nodes import NodeUnderTest
from dra_world.operator import PREFIX, REGION_BYTES, Operator

MakeNode = Callable[..., NodeUnderTest]


def refused(node: NodeUnderTest, claim: Object) -> str:
    with pytest.raises(NotPreparedError) as caught:
        node.prepare(claim)
    text = str(caught.value)
    assert "\n" not in text
    assert "failed to" not in text, "the kubelet says that already"
    assert node.runtime.devices() == {}
    return text


# --- what is refused -----------------------------------------------------------------------------------------------
def test_recreated_claim_is_not_taken_for_the_old_one(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    claim = api.add_claim("kv")
    operator.region_of(claim)
    api.add_claim("kv")
    assert "was re-created" in refused(make_node(), claim)


def test_deleted_claim_is_refused(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    claim = api.add_claim("kv")
    api.claims.clear()
    assert "does not exist any more" in refused(make_node(), claim)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"driver": "gpu.example.com"}, "no allocated device of driver hymcache.io", id="other driver"),
        pytest.param({"adminAccess": True}, "admin access", id="admin access"),
    ],
)
def test_allocation_that_is_not_ours_is_refused(
    api: MemoryApi, operator: Operator, make_node: MakeNode, change: dict[str, Any], reason: str
) -> None:
    claim = api.add_claim("kv", **change)
    operator.region_of(claim)
    assert reason in refused(make_node(), claim)


def test_deallocated_claim_is_refused(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    claim = api.add_claim("kv")
    operator.region_of(claim)
    api.claims["team", "kv"]["status"] = {}
    assert "no allocated device" in refused(make_node(), claim)


def test_wrong_parameters_are_refused_by_name(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    claim = api.add_claim("kv")
    operator.region_of(claim)
    parameters = {"apiVersion": "hymcache.io/v1alpha1", "kind": "RegionConfig", "acess": "ReadOnly"}
    api.claims["team", "kv"]["status"]["allocation"]["devices"]["config"] = [
        {"source": "FromClaim", "opaque": {"driver": "hymcache.io", "parameters": parameters}}
    ]
    assert "RegionConfig.acess" in refused(make_node(), claim)


@pytest.mark.parametrize("allowed", [[], ["other"]])
def test_static_region_is_refused_to_a_namespace_that_is_not_allowed(
    api: MemoryApi, operator: Operator, make_node: MakeNode, allowed: list[str]
) -> None:
    operator.make_region("models", allowedNamespaces=allowed)
    claim = api.add_claim("kv", share=None, device="models")
    node = make_node()
    assert "may not use CXLRegion models" in refused(node, claim)
    assert api.host("models", "node-a") == {}, "a refused claim must not ask for an attachment"
    node.kubelet.unprepare("pod-1")
    assert api.host("models", "node-a") == {}, "nor detach what another claim may use"


def test_region_of_another_claim_is_refused(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    api.edit("CXLRegion", region, lambda raw: raw["spec"]["claimRef"].update(uid="another"))
    assert "may not use CXLRegion" in refused(make_node(), claim)


def test_static_region_has_no_share_and_works_in_an_allowed_namespace(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    operator.make_region("models", allowedNamespaces=["team"])
    claim = api.add_claim("kv", share=None, device="models")
    node = make_node()
    container = node.prepare(claim)
    os.close(container.region()[0])
    device = node.kubelet.claims[claim["metadata"]["uid"]].devices[0]
    assert not device.HasField("share_id")
    assert device.cdi_device_ids == [f"hymcache.io/region={claim['metadata']['uid']}-blade-1.models"]


def test_missing_region_is_waited_for_by_the_kubelet(api: MemoryApi, make_node: MakeNode) -> None:
    claim = api.add_claim("kv")
    assert "does not exist" in refused(make_node(), claim)


def test_api_server_away_is_said(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    claim = api.add_claim("kv")
    operator.region_of(claim)
    node = make_node()
    api.down = True
    assert "API server did not answer" in refused(node, claim)
    api.down = False


# --- what the fabric hands over --------------------------------------------------------------------------------------
def test_memory_that_can_shrink_is_refused(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    claim = api.add_claim("kv")
    share = claim["status"]["allocation"]["devices"]["results"][0]["shareID"]
    appliance.compose(f"{PREFIX}r-{share}", REGION_BYTES, sealed=False)
    region = operator.region_of(claim)
    assert "sealed against shrinking: expected True, found False" in refused(make_node(), claim)
    assert api.host(region, "node-a")["state"] == "Failed"
    assert "sealed" in api.host(region, "node-a")["problem"]


def test_memory_of_another_size_is_refused(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    claim = api.add_claim("kv")
    share = claim["status"]["allocation"]["devices"]["results"][0]["shareID"]
    appliance.compose(f"{PREFIX}r-{share}", REGION_BYTES // 2)
    operator.region_of(claim)
    assert f"size in bytes: expected {REGION_BYTES}, found {REGION_BYTES // 2}" in refused(make_node(), claim)


def test_hardware_coherence_is_not_believed_against_the_cable(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    claim = api.add_claim("kv")
    operator.region_of(claim, coherence="hardware")
    assert "declared coherence hardware, its cable says software" in refused(make_node(), claim)


def test_read_only_cable_is_no_home_for_a_writer(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    appliance.access = "ro"
    claim = api.add_claim("kv")
    operator.region_of(claim)
    assert "access: expected rw, found ro" in refused(make_node(), claim)


def test_link_that_is_down_is_named_and_heals(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    node = make_node()
    appliance.links_down.add("node-a")
    claim = api.add_claim("kv")
    operator.region_of(claim)
    assert "(link-down)" in refused(node, claim)
    appliance.links_down.clear()
    node.prepare(claim)


def test_bytes_of_another_region_are_not_touched(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    foreign = b"kv of somebody else " * 300
    os.pwrite(appliance.regions[PREFIX + region], foreign, 0)
    assert "foreign" in refused(make_node(), claim)
    assert os.pread(appliance.regions[PREFIX + region], len(foreign), 0) == foreign
    assert api.host(region, "node-a")["state"] == "Failed"


# --- order and repetition --------------------------------------------------------------------------------------------
def test_host_without_the_init_role_waits_for_the_superblock(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    a, b = make_node("node-a"), make_node("node-b")
    claim = api.add_claim("kv")
    hosts = [
        {"node": name, "systemUUID": name, "domain": number, "init": name == "node-b"}
        for number, name in enumerate(("node-a", "node-b"))
    ]
    operator.region_of(claim, hosts=hosts)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(a.prepare, claim)
        wait("node-a to wait", lambda: api.writes)
        assert not first.done()
        b.prepare(claim)
        assert first.result(60).env["HYMCACHE_DOMAIN"] == "0"


def test_host_that_never_formats_is_named(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    claim = api.add_claim("kv")
    hosts = [{"node": "node-a", "systemUUID": "node-a", "domain": 0, "init": False}]
    operator.region_of(claim, hosts=hosts)
    assert "not formatted yet" in refused(make_node(prepare_wait_seconds=2), claim)


def test_init_role_that_moves_here_while_waiting_is_taken_up(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    claim = api.add_claim("kv")
    hosts = [{"node": "node-a", "systemUUID": "node-a", "domain": 0, "init": False}]
    region = operator.region_of(claim, hosts=hosts)
    node = make_node()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(node.prepare, claim)
        wait("the wait", lambda: api.host(region, "node-a"))
        api.edit("CXLRegion", region, lambda raw: raw["spec"]["hosts"][0].update(init=True))
        future.result(60)


def test_region_is_formatted_once_however_often_it_is_prepared(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    node = make_node()
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    first = node.prepare(claim)
    write_mark(appliance.regions[PREFIX + region])
    node.kubelet.restart()
    wait("the plugin to register again", lambda: node.kubelet.watcher.plugin("hymcache.io"))
    assert node.prepare(claim, "pod-2") == first
    assert has_mark(appliance.regions[PREFIX + region])
    assert node.metrics.registry.get_sample_value("hymcache_dra_regions_formatted_total") == 1


def test_concurrent_prepares_of_one_claim_give_one_answer(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node()
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    operator.hold.clear()
    start = threading.Barrier(9)

    def prepare() -> Any:
        start.wait()
        return node.kubelet._call("NodePrepareResources", ClaimKey.of(claim), 10)

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(prepare) for _ in range(8)]
        start.wait()
        wait("the wish", lambda: api.host(region, "node-a"))
        operator.hold.set()
        answers = [future.result(60) for future in futures]
    assert all(not answer.error for answer in answers), [answer.error for answer in answers]
    assert len({answer.SerializeToString(deterministic=True) for answer in answers}) == 1
    assert node.metrics.registry.get_sample_value("hymcache_dra_regions_formatted_total") == 1


def test_claims_do_not_wait_for_one_another(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node()
    slow, quick = api.add_claim("slow"), api.add_claim("quick")
    hosts = [{"node": "node-a", "systemUUID": "node-a", "domain": 0, "init": False}]
    region = operator.region_of(slow, hosts=hosts)
    operator.region_of(quick)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(node.prepare, slow)
        wait("the slow one to wait", lambda: api.writes)
        node.kubelet.prepare("pod-2", ClaimKey.of(quick))
        assert not future.done()
        node.kubelet.unprepare("pod-2")
        api.edit("CXLRegion", region, lambda raw: raw["spec"]["hosts"][0].update(init=True))
        future.result(60)


def test_prepare_that_was_cut_off_leaves_nothing_behind_unprepare(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node()
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    operator.hold.clear()
    plugin = node.kubelet.watcher.plugin("hymcache.io")
    assert plugin
    request = dra_v1_pb2.NodePrepareResourcesRequest(
        claims=[dra_v1_pb2.Claim(**ClaimKey.of(claim)._asdict())],
    )
    call = dra_v1_pb2_grpc.DRAPluginStub(plugin.channel).NodePrepareResources.future(request, timeout=30)
    wait("the wish", lambda: api.host(region, "node-a"))
    call.cancel()
    node.kubelet.unprepare_claim(ClaimKey.of(claim))
    operator.hold.set()
    wait("the released entry", lambda: api.host(region, "node-a").get("state") == "Released")
    assert node.left_behind() == []


def test_unprepare_overtakes_a_waiting_prepare(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node()
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    operator.hold.clear()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(node.prepare, claim)
        wait("the wish", lambda: api.host(region, "node-a"))
        node.kubelet.unprepare_claim(ClaimKey.of(claim))
        operator.hold.set()
        with pytest.raises(NotPreparedError, match="unprepared on this node meanwhile"):
            future.result(60)
    assert node.left_behind() == []
    assert api.host(region, "node-a")["state"] == "Released"


def test_prepare_that_slept_through_an_unprepare_and_another_prepare_stops(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    under_test = make_node(start=False)
    node = assemble(under_test.settings, api, under_test.contents, under_test.metrics)
    claims = Claims(node, Releases(node))
    claim = api.add_claim("kv")
    operator.region_of(claim)
    meta = claim["metadata"]
    ref = ClaimRef(meta["namespace"], meta["name"], claim_uid(meta["uid"]))
    call = Call(time.monotonic() + 10, lambda: None)
    slept = claims._begin(ref, call)
    claims.unprepare(ref)
    last = claims._begin(ref, call)
    with pytest.raises(ClaimError, match="unprepared on this node meanwhile"):
        claims._check_current(slept, call)
    assert claims._check_current(last, call) == last
    node.dax.stop()


def test_reallocated_claim_gets_the_new_region_and_gives_the_old_one_back(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node()
    claim = api.add_claim("kv")
    old = operator.region_of(claim)
    node.prepare(claim)
    again = api.add_claim("kv")
    again["metadata"] = api.claims["team", "kv"]["metadata"] = claim["metadata"]
    new = operator.region_of(again)
    node.kubelet.claims.clear()  # the kubelet has cleaned up by itself, without a call
    container = node.prepare(again)
    assert container.env["HYMCACHE_REGION_UUID"] == api.read("CXLRegion", new)["spec"]["uuid"]
    wait("the old region to be released", lambda: api.host(old, "node-a")["state"] == "Released")
    assert len(list((node.settings.plugin_dir / "pods").iterdir())) == 1


def test_read_only_claim_gets_a_descriptor_that_cannot_write(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    claim = api.add_claim("kv")
    operator.region_of(claim)
    parameters = {"apiVersion": "hymcache.io/v1alpha1", "kind": "RegionConfig", "access": "ReadOnly"}
    api.claims["team", "kv"]["status"]["allocation"]["devices"]["config"] = [
        {"source": "FromClaim", "opaque": {"driver": "hymcache.io", "parameters": parameters}}
    ]
    descriptor, reply = make_node().prepare(claim).region()
    try:
        assert reply["access"] == "ro"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(descriptor, b"x", 0)
    finally:
        os.close(descriptor)


def test_older_kubelet_prepares_by_v1beta1(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node(start=False)
    node.kubelet.close()
    node.kubelet = Kubelet(
        node.settings.registry_dir, driver="hymcache.io", known=("v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth")
    )
    node.start()
    claim = api.add_claim("kv")
    operator.region_of(claim)
    os.close(node.prepare(claim).region()[0])
    node.kubelet.unprepare("pod-1")
    assert node.left_behind() == []
