"""A region on two workers, with pods that do nothing else: what is shared, what survives crashes, what is left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from cluster import kind
from cluster.command import CommandError
from cluster.world import World, probe_pod, small_claim
from controlplane.api import CLAIM, POD, Object
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
    world.api.create(small_claim("crash"))
    world.api.create(probe_pod("crash", claim="crash"))
    wait("an allocation", lambda: world.allocated("crash"), seconds=60)
    world.kill("operator")
    world.kill("plugin")
    world.ready_pods("app=crash", 1, seconds=300)
    world.api.delete(POD, "crash", "default", grace_seconds=0)
    world.api.delete(CLAIM, "crash", "default")


def test_pod_without_the_claim_sees_no_region(world: World, pods: list[Object]) -> None:
    world.api.create(probe_pod("stranger"))
    (pod,) = world.ready_pods("app=stranger", 1, seconds=120)
    code = "import os; print(os.path.exists('/run/hymcache'), [k for k in os.environ if k.startswith('HYMCACHE')])"
    assert world.python(pod, code).strip() == "False []"
    world.api.delete(POD, "stranger", "default", grace_seconds=0)


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
