"""What holds without a call of the kubelet: restarts, reboots, lost files, power cycles, fences, heartbeats."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hymcache.dra.keys import claim_uid
from hymcache.dra.locks import ClaimLocks, ReportLocks
from hymcache.region import Region
from hymcache.region.handover import HandoverError

from controlplane.kubelet import CreateContainerError, NotPreparedError
from controlplane.kubelet.plugins import watch_health
from controlplane.waiting import holds, wait
from dra_world.api import MemoryApi, Object
from dra_world.appliance import Appliance, has_mark, same_memory, write_mark
from dra_world.nodes import NodeUnderTest
from dra_world.operator import PREFIX, Operator

MakeNode = Callable[..., NodeUnderTest]


def prepared(api: MemoryApi, operator: Operator, node: NodeUnderTest, **spec: Any) -> tuple[Object, str]:
    claim = api.add_claim("kv")
    region = operator.region_of(claim, **spec)
    node.prepare(claim)
    return claim, region


def container_of(node: NodeUnderTest, claim: Object) -> Any:
    return node.runtime.container(node.kubelet.claims[claim["metadata"]["uid"]].cdi_ids)


def opens(node: NodeUnderTest, claim: Object) -> bool:
    try:
        os.close(container_of(node, claim).region()[0])
    except (HandoverError, CreateContainerError):
        return False
    return True


# --- restarts --------------------------------------------------------------------------------------------------------
def test_new_containers_of_running_pods_start_after_a_plugin_restart(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node()
    claim, _ = prepared(api, operator, node)
    before, _ = container_of(node, claim).region()
    node.restart()
    wait("the socket", lambda: opens(node, claim))
    after, _ = container_of(node, claim).region()
    assert same_memory(before, after)
    os.close(before)
    os.close(after)


def test_plugin_restart_does_not_need_the_api_server(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node()
    claim, _ = prepared(api, operator, node)
    api.down = True
    node.restart()
    wait("the socket", lambda: opens(node, claim))
    api.down = False


def test_emptied_cdi_folder_is_filled_again(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node()
    claim, _ = prepared(api, operator, node)
    shutil.rmtree(node.settings.cdi_dir)
    wait("the CDI file", lambda: opens(node, claim))


def test_reboot_is_told_and_nothing_is_formatted_again(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    node = make_node()
    claim, region = prepared(api, operator, node)
    write_mark(appliance.regions[PREFIX + region])
    node.stop()
    shutil.rmtree(node.settings.cdi_dir)
    node.settings.boot_id_path.write_text("second-boot\n")
    again = NodeUnderTest(node.settings.plugin_dir.parent, node.name, api, appliance)
    again.start()
    try:
        wait("the new boot id", lambda: api.host(region, "node-a").get("bootID") == "second-boot")
        again.prepare(claim, "pod-after-reboot")
        assert has_mark(appliance.regions[PREFIX + region])
        assert api.read("CXLNode", "node-a")["status"]["bootID"] == "second-boot"
    finally:
        again.close()


def test_left_over_files_of_a_lost_checkpoint_are_removed(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node()
    prepared(api, operator, node)
    node.stop()
    shutil.rmtree(node.settings.plugin_dir / "claims")
    other = node.settings.cdi_dir / "vendor.example.com-gpu_1.json"
    other.write_text("{}")
    node.start()
    wait("the left-overs to go", lambda: node.left_behind() == [str(other)])


def test_lock_that_a_killed_process_left_is_removed_and_a_held_one_is_not(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node()
    for name in ("gone", "held"):
        (node.settings.plugin_dir / "locks" / f"{name}.lock").touch()
    locks = ClaimLocks(node.settings.plugin_dir / "locks")
    with locks.hold(claim_uid("held"), seconds=5):
        wait("the lock to go", lambda: [path.name for path in node.lock_files()] == ["held.lock"])
        holds("the held lock stays", lambda: "held.lock" in [path.name for path in node.lock_files()], seconds=0.5)
    wait("the lock to go", lambda: node.lock_files() == [])


def test_killed_generation_leaves_no_socket_behind(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    import socket

    node = make_node(start=False, pod_uid="11111111-0000-4000-8000-000000000000")
    for path in (
        node.settings.registry_dir / "hymcache.io-22222222-0000-4000-8000-000000000000-reg.sock",
        node.settings.plugin_dir / "dra-22222222-0000-4000-8000-000000000000.sock",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    node.start()
    found = sorted(path.name for path in node.settings.registry_dir.iterdir())
    assert found == ["hymcache.io-11111111-0000-4000-8000-000000000000-reg.sock"]


# --- rolling update --------------------------------------------------------------------------------------------------
def test_two_generations_serve_side_by_side_and_hand_over(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node(pod_uid="11111111-0000-4000-8000-000000000000")
    claim, region = prepared(api, operator, node)
    new = node.another(node.settings.model_copy(update={"pod_uid": "22222222-0000-4000-8000-000000000000"}))
    try:
        wait("both to register", lambda: len(node.kubelet.watcher.generations("hymcache.io")) == 2)
        wait("the new one to be ready", lambda: new.ready() is None)
        assert opens(node, claim)
        node.stop()  # the old one goes
        wait("one to be left", lambda: len(node.kubelet.watcher.generations("hymcache.io")) == 1)
        holds("the pods' socket", lambda: opens(node, claim), seconds=0.5)
        node.kubelet.unprepare("pod-1")
        assert api.host(region, "node-a")["state"] == "Released"
        assert node.left_behind() == []
    finally:
        new.close()


def test_old_generation_takes_over_again_when_the_new_one_dies(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node(pod_uid="11111111-0000-4000-8000-000000000000")
    claim, _ = prepared(api, operator, node)
    new = node.another(node.settings.model_copy(update={"pod_uid": "22222222-0000-4000-8000-000000000000"}))
    wait("both to register", lambda: len(node.kubelet.watcher.generations("hymcache.io")) == 2)
    wait("the new one to be ready", lambda: new.ready() is None)
    new.close()
    wait("one to be left", lambda: len(node.kubelet.watcher.generations("hymcache.io")) == 1)
    wait("the socket", lambda: opens(node, claim))
    node.kubelet.unprepare("pod-1")
    assert node.left_behind() == []


# --- the fabric changes ----------------------------------------------------------------------------------------------
def test_power_cycle_gives_an_empty_region_of_the_next_epoch(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    node = make_node()
    claim, region = prepared(api, operator, node)
    lost, _ = container_of(node, claim).region()
    appliance.power_cycle()
    api.edit("CXLRegion", region, lambda raw: raw["spec"].update(epoch=2))
    wait("the new epoch", lambda: api.host(region, "node-a").get("epoch") == 2)
    fresh, _ = container_of(node, claim).region()
    assert not same_memory(lost, fresh)
    with Region.attach(fresh, read_only=True, epoch=2):
        pass
    os.close(lost)
    os.close(fresh)


def test_fenced_host_hands_nothing_out_any_more(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    node = make_node()
    claim, region = prepared(api, operator, node)
    operator.hold.clear()
    appliance.disconnect(PREFIX + region, "node-a")
    api.edit("CXLRegion", region, lambda raw: raw["status"]["attachments"][0].update(phase="Fenced"))
    wait("the refusal", lambda: not opens(node, claim))
    assert api.host(region, "node-a")["state"] == "Failed"
    assert "Fenced" in api.host(region, "node-a")["problem"]
    with pytest.raises(HandoverError, match="not attached to this node now"):
        container_of(node, claim).region()
    operator.hold.set()
    wait("the region to come back", lambda: opens(node, claim))


def test_deleted_region_is_withdrawn_and_unprepare_still_works(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node()
    claim, region = prepared(api, operator, node)
    api.drop("CXLRegion", region)
    wait("the refusal", lambda: not opens(node, claim))
    node.kubelet.unprepare("pod-1")
    assert node.left_behind() == []


def test_entry_that_somebody_removed_is_written_again(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node(counters_seconds=3600)
    _, region = prepared(api, operator, node)
    wait("the entry", lambda: api.host(region, "node-a").get("state") == "Ready")
    api.edit("CXLRegion", region, lambda raw: raw["status"].update(hosts=[]))
    wait("the entry again", lambda: api.host(region, "node-a").get("state") == "Ready")


def test_unchanged_entry_is_not_written_again(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node(counters_seconds=3600)
    _, region = prepared(api, operator, node)
    wait("the counters", lambda: "usedBytes" in api.host(region, "node-a"))
    count = len(api.writes)
    holds("the number of writes", lambda: len(api.writes) == count, seconds=0.6)


def test_region_in_use_is_not_given_back(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node()
    _, region = prepared(api, operator, node)
    node.contents.users_now = 2
    with pytest.raises(NotPreparedError, match="still open in 2 processes"):
        node.kubelet.unprepare("pod-1")
    holds("the attachment", lambda: api.host(region, "node-a")["desired"] == "Attached", seconds=0.4)
    node.contents.users_now = 0
    node.kubelet.unprepare("pod-1")
    assert node.left_behind() == []


# --- an API server that hangs ----------------------------------------------------------------------------------------
def test_report_that_hangs_does_not_hold_up_the_end_of_a_pod(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node(counters_seconds=0.01, unprepare_wait_seconds=0.5)
    _, region = prepared(api, operator, node)
    api.hung[region] = threading.Event()
    wait("a report to hang", lambda: api.hanging)
    node.kubelet.unprepare("pod-1")
    assert not list(node.settings.cdi_dir.iterdir())
    api.hung.pop(region).set()
    wait("the operator to be told", lambda: api.host(region, "node-a")["state"] == "Released")
    wait("nothing to be left", lambda: node.left_behind() == [])
    assert api.host(region, "node-a")["state"] == "Released"


def test_report_that_waited_for_its_turn_is_dropped_once_the_region_was_given_back(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node(counters_seconds=0.01)
    _, region = prepared(api, operator, node)
    turns = ReportLocks(node.settings.plugin_dir / "reports")
    with turns.hold(region, seconds=5):
        node.kubelet.unprepare("pod-1")  # gives up its turn, the keeper tells
        told = len(api.writes)
        holds("no word", lambda: not any(kind == "host" for kind, *_ in api.writes[told:]), seconds=1.5)
    wait("nothing to be left", lambda: node.left_behind() == [])
    assert [entry["state"] for kind, _, entry in api.writes[told:] if kind == "host"] == ["Released"]


# --- checkpoint ------------------------------------------------------------------------------------------------------
def test_damaged_checkpoint_is_one_claims_trouble(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node()
    claim, region = prepared(api, operator, node)
    other = api.add_claim("other")
    operator.region_of(other)
    node.prepare(other, "pod-2")
    node.stop()
    uid = claim["metadata"]["uid"]
    (node.settings.plugin_dir / "claims" / f"{uid}.json").write_bytes(b'{"format": "hymcache.io/dra-cl')
    node.start()
    wait("the other claim", lambda: opens(node, other))
    wait("the problem", lambda: "problems" in api.read("CXLNode", "node-a").get("status", {}))
    problem = api.read("CXLNode", "node-a")["status"]["problems"][0]
    assert problem["code"] == "CheckpointUnreadable"
    assert uid in problem["message"]
    node.kubelet.unprepare("pod-1")
    assert api.host(region, "node-a")["state"] == "Released"
    node.kubelet.unprepare("pod-2")
    assert node.left_behind() == []


def test_damaged_checkpoint_is_replaced_by_the_next_prepare(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node()
    claim, _ = prepared(api, operator, node)
    uid = claim["metadata"]["uid"]
    (node.settings.plugin_dir / "claims" / f"{uid}.json").write_bytes(b"")
    node.kubelet.restart()
    wait("the plugin to register again", lambda: node.kubelet.watcher.plugin("hymcache.io"))
    node.prepare(claim, "pod-2")
    assert opens(node, claim)
    assert [path.suffix for path in (node.settings.plugin_dir / "claims").iterdir()] == [".json"]


# --- what is told ----------------------------------------------------------------------------------------------------
def test_heartbeat_says_what_the_node_is_cabled_to(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    make_node()
    wait("the heartbeat", lambda: api.read("CXLNode", "node-a").get("status", {}).get("registered"))
    status = api.read("CXLNode", "node-a")["status"]
    assert status["ports"] == [{"blade": "blade-1", "state": "Up"}]
    assert (status["portsUp"], status["bootID"]) == ("1/1", "boot-of-node-a")
    assert "problems" not in status or status["problems"] == []
    first = status["heartbeat"]
    wait("the next one", lambda: api.read("CXLNode", "node-a")["status"]["heartbeat"] != first)


def test_cable_of_another_host_is_a_problem(api: MemoryApi, make_node: MakeNode) -> None:
    api.put("CXLNode", "node-a", spec={"systemUUID": "7C9E6679-7425-40DE-944B-E07FC1F90AE7"})
    make_node()
    wait("the problem", lambda: api.read("CXLNode", "node-a").get("status", {}).get("problems"))
    assert api.read("CXLNode", "node-a")["status"]["problems"][0]["code"] == "WrongCable"


def test_missing_cable_is_a_problem(api: MemoryApi, appliance: Appliance, make_node: MakeNode) -> None:
    node = make_node()
    appliance.cut("node-a")
    wait("the problem", lambda: api.read("CXLNode", "node-a").get("status", {}).get("problems"))
    assert api.read("CXLNode", "node-a")["status"]["message"].startswith("no cable socket")
    assert str(node.cables) in api.read("CXLNode", "node-a")["status"]["message"]


def test_health_stream_follows_the_link(
    api: MemoryApi, operator: Operator, appliance: Appliance, make_node: MakeNode
) -> None:
    node = make_node()
    prepared(api, operator, node)
    plugin = node.kubelet.watcher.plugin("hymcache.io")
    assert plugin
    assert plugin.health == "v1.DRAResourceHealth"
    seen = []
    for devices in watch_health(plugin, seconds=10):
        seen += [(device.device, device.health) for device in devices]
        if ("dram-shared", "HEALTHY") in seen:
            appliance.links_down.add("node-a")
        if ("dram-shared", "UNHEALTHY") in seen:
            assert "does not answer on its cable" in devices[0].message
            break
    assert ("dram-shared", "HEALTHY") in seen
    assert seen[-1] == ("dram-shared", "UNHEALTHY")


def test_counters_of_the_domain_are_reported(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node()
    claim, region = prepared(api, operator, node)
    wait("the counters", lambda: "usedBytes" in api.host(region, "node-a"))
    entry = api.host(region, "node-a")
    assert (entry["usedBytes"], entry["epoch"]) == (0, 1)
    descriptor, _ = container_of(node, claim).region()
    with Region.attach(descriptor, domain=0, host="node-a") as memory:
        memory.namespace(bytes(32)).put(b"key", bytes(5 << 20))
    os.close(descriptor)
    wait("the used bytes", lambda: api.host(region, "node-a")["usedBytes"] == 6 << 20)  # chunks of 2 MiB
