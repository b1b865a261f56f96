"""A region on two workers, with pods that do nothing else: what is shared, what survives crashes, what is left."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import kind
from cluster.command import CommandError
from cluster.settings import NAMESPACE, ROOT
from cluster.world import REGION, World, is_ready, probe_pod, small_claim
from controlplane.api import CLAIM, POD, ApiException, Object
from controlplane.waiting import wait

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

CLAIM_NAME = "region"
LABEL = "group=region"
IDENTITY = """
import json, mmap, os
from hymcache.region.handover import receive
fd, reply = receive(os.environ["HYMCACHE_REGION"].removeprefix("unix:"))
with mmap.mmap(fd, 4096, prot=mmap.PROT_READ) as first:
    print(json.dumps({"inode": os.fstat(fd).st_ino, "device": os.fstat(fd).st_dev, "bytes": os.fstat(fd).st_size,
        "head": first[:64].hex(), "uuid": os.environ["HYMCACHE_REGION_UUID"], "user": os.getuid()}))
"""
STRANGER = """
import json, os, socket
def outcome(path):
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
        return "connected"
    except OSError as error:
        return type(error).__name__
print(json.dumps({"sockets": {path: outcome(path) for path in %r},
    "devices": [name for name in os.listdir("/dev") if name.startswith(("dax", "cxl", "mem"))],
    "variables": [name for name in os.environ if name.startswith("HYMCACHE")]}))
"""
PROVOKED = """
import pytest

@pytest.mark.cluster
def test_that_fails(world):
    assert False, "provoked"
"""


@pytest.fixture(scope="module")
def pods(world: World) -> Iterator[list[Object]]:
    """One claim and a pod of it on each worker."""
    world.api.create(small_claim(CLAIM_NAME))
    for number, node in enumerate(kind.workers()):
        world.api.create(probe_pod(f"region-{number}", claim=CLAIM_NAME, node=node, labels={"group": "region"}))
    yield world.ready_pods(LABEL, 2, seconds=180)
    for pod in world.pods(LABEL):
        world.api.delete(POD, pod["metadata"]["name"], "default", grace_seconds=0)
    world.api.delete(CLAIM, CLAIM_NAME, "default")


def identity(world: World, pod: Object) -> dict[str, object]:
    found: dict[str, object] = json.loads(world.python(pod, IDENTITY))
    return found


def test_region_is_ready_on_both_hosts(world: World, pods: list[Object]) -> None:
    wait("a Ready region with two hosts", lambda: world.hosts_ready(CLAIM_NAME) == set(kind.workers()), seconds=60)


def test_both_pods_have_the_same_memory_under_the_same_name(world: World, pods: list[Object]) -> None:
    one, two = (identity(world, pod) for pod in pods)
    assert one == two
    assert one["bytes"] == 2**30
    assert one["user"] == 65532
    names = [re.findall(r"\S*hymcache\S*", kind.on_node(node, "ls", "/var/run/cdi")) for node in kind.workers()]
    assert names[0] == names[1]
    assert names[0]


def test_what_one_pod_writes_the_other_reads(world: World, pods: list[Object]) -> None:
    code = """
import mmap, os
from hymcache.region.handover import receive
fd, _ = receive(os.environ["HYMCACHE_REGION"].removeprefix("unix:"))
end = os.fstat(fd).st_size
with mmap.mmap(fd, 0) as region:
    %s
"""
    world.python(pods[0], code % "region[end - 16 : end] = b'written by one .'")
    assert world.python(pods[1], code % "print(region[end - 16 : end].decode())").strip() == "written by one ."


def test_new_process_in_a_running_pod_opens_the_region_after_a_plugin_restart(world: World, pods: list[Object]) -> None:
    before = identity(world, pods[0])
    world.kill("plugin")
    world.parts_ready()

    def answer() -> dict[str, object] | None:
        try:
            return identity(world, pods[0])
        except CommandError:
            return None

    assert wait("the socket to answer", answer, seconds=60) == before


def test_claim_that_is_prepared_while_operator_and_plugin_are_killed_converges(world: World) -> None:
    """The operator dies while the fabric is at the attachment, the plugin while the kubelet waits for its answer."""
    slow = {"method": "POST", "path": "Connections$", "fault": "slow", "seconds": 25, "times": None}
    world.appliance("faults", "PUT", [slow])
    world.api.create(small_claim("crash"))
    world.api.create(probe_pod("crash", claim="crash"))
    try:
        wait("the fabric to be asked", lambda: world.appliance("faults")["faults"][0]["met"] > 0, seconds=60)
        world.kill("operator")
        status = (world.region_of("crash") or {}).get("status", {})
        assert "Attached" not in {attachment["phase"] for attachment in status.get("attachments", [])}
        world.appliance("faults", "DELETE")
        world.signal("plugin", "STOP")
        wait("a node for the pod", lambda: scheduled(world, "crash"), seconds=120)
        time.sleep(2)  # the kubelet calls, and nobody answers
        assert world.hosts_ready("crash") == set()
        assert not is_ready(world.api.get(POD, "crash", "default"))
        world.kill("plugin")
        (pod,) = world.ready_pods("app=crash", 1, seconds=300)
        assert identity(world, pod)["bytes"] == 2**30
    finally:
        world.signal("plugin", "CONT")
        world.appliance("faults", "DELETE")
        world.api.delete(POD, "crash", "default", grace_seconds=0)
        world.api.delete(CLAIM, "crash", "default")
    world.parts_ready()


def scheduled(world: World, name: str) -> Object | None:
    """The pod, once it has a node."""
    pod = world.api.get(POD, name, "default")
    return pod if pod["spec"].get("nodeName") else None


def test_pod_without_the_claim_opens_no_socket_and_no_device(world: World, pods: list[Object]) -> None:
    node = pods[0]["spec"]["nodeName"]
    world.api.create(probe_pod("stranger", node=node))
    (pod,) = world.ready_pods("app=stranger", 1, seconds=120)
    sockets = kind.on_node(node, "find", "/run", "/var/lib", "-type", "s", "-path", "*hymcache*").split()
    assert any(path.endswith("region.sock") for path in sockets), sockets
    assert any("/cables/" in path for path in sockets), sockets
    code = STRANGER % [*sockets, "/run/hymcache/region.sock"]
    seen = json.loads(world.python(pod, code))
    assert set(seen["sockets"].values()) == {"FileNotFoundError"}, seen
    assert seen["devices"] == []
    assert seen["variables"] == []
    world.api.delete(POD, "stranger", "default", grace_seconds=0)


def test_plugins_token_writes_its_own_hosts_entry_alone_and_no_claims_status(world: World, pods: list[Object]) -> None:
    mine, other = kind.workers()
    api = world.seen_by(world.plugin_on(mine))
    region = world.region_of(CLAIM_NAME)
    assert region
    entries = {host["node"]: host for host in region["status"]["hosts"]}

    def write(node: str) -> None:
        body = {"apiVersion": REGION.api_version, "kind": REGION.name, "metadata": {"name": region["metadata"]["name"]}}
        body["status"] = {"hosts": [{**entries[node], "problem": "written by a test"}]}
        api.apply(body, subresource="status", dry_run=True)

    write(mine)
    with pytest.raises(ApiException, match="may change only its own entry of status"):
        write(other)
    with pytest.raises(ApiException) as refused:
        api.merge(CLAIM, CLAIM_NAME, {"status": {"devices": []}}, "default", subresource="status")
    assert refused.value.status == 403


def test_failed_test_leaves_state_and_logs_in_a_folder_that_the_last_line_names(
    world: World, pods: list[Object], tmp_path: Path
) -> None:
    (tmp_path / "test_provoked.py").write_text(PROVOKED)
    words = ["-m", "pytest", "-p", "cluster.conftest", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml"]
    done = subprocess.run(
        [sys.executable, *words, "--rootdir", tmp_path, tmp_path],
        env={**os.environ, "E2E_KEEP": "1", "PYTHONPATH": str(ROOT / "e2e")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    folder = Path(done.stdout.strip().splitlines()[-1].rpartition(" ")[2])
    assert folder.is_dir(), done.stdout
    text = {path.name: path.read_text() for path in folder.iterdir()}
    shutil.rmtree(folder)
    uid = world.api.get(CLAIM, CLAIM_NAME, "default")["metadata"]["uid"]
    assert uid in text["ResourceClaim.yaml"]
    assert "hymcache.io" in text["ResourceSlice.yaml"]
    assert "CXLRegion" in text["CXLRegion.yaml"]
    assert "region-0" in text["events.txt"]
    assert {name for name in text if name.endswith(".log")} >= {
        f"hymcache.{pod['metadata']['name']}.log" for pod in world.api.list(POD, NAMESPACE)
    }
    for node in kind.workers():
        kept = text[f"{node}.files.txt"]
        assert f"=== /var/run/cdi/hymcache.io-region_{uid}.json" in kept
        assert f"/claims/{uid}.json" in kept
        assert "kubelet" in text[f"{node}.journal.txt"]


def test_uninstall_is_refused_and_names_claim_and_pods(world: World, pods: list[Object]) -> None:
    done = world.uninstall()
    assert done.returncode != 0
    assert f"claim default/{CLAIM_NAME} is allocated, used by region-0, region-1" in done.stdout + done.stderr
    assert identity(world, pods[0])


def test_everything_is_released_with_the_last_pod(world: World, pods: list[Object]) -> None:
    for pod in pods:
        world.api.delete(POD, pod["metadata"]["name"], "default", grace_seconds=0)
    wait("the claim to be freed", lambda: not world.allocated(CLAIM_NAME), seconds=60)
    world.wait_clean()
