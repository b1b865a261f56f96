"""examples/01-shared-kv on the cluster, twice: two engines on two workers, one region, one prefix.

The tests of one life run in order on the engines that `life` started; what they leave is checked when it ends.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cluster import kind
from cluster.settings import NAMESPACE
from cluster.world import BLADE, CXLNODE, REGION, World
from controlplane.api import CLAIM, NODE, Object
from controlplane.waiting import holds, wait

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CHUNK_TOKENS = 256
ENGINES = "app=engine"
TEXT = " ".join(
    f"Paragraph {n} of the manual says that part {n * 7 % 101} belongs to shelf {n * 13 % 47}." for n in range(60)
)
IDENTITY = """
import json, mmap, os
from hymcache.region.handover import receive
fd, reply = receive(os.environ["HYMCACHE_REGION"].removeprefix("unix:"))
with mmap.mmap(fd, 4096, prot=mmap.PROT_READ) as first:
    print(json.dumps({"inode": os.fstat(fd).st_ino, "device": os.fstat(fd).st_dev, "head": first[:64].hex(),
        "bytes": os.fstat(fd).st_size, "uuid": os.environ["HYMCACHE_REGION_UUID"], "user": os.getuid()}))
"""


@dataclass
class Life:
    """One run of the example."""

    world: World
    number: int
    pods: list[Object]


@pytest.fixture(scope="module", params=[1, 2], ids=["first life", "second life"])
def life(request: pytest.FixtureRequest, world: World) -> Iterator[Life]:
    started = time.monotonic()
    world.apply("01-shared-kv")
    pods = world.ready_pods(ENGINES, 2, seconds=600)
    print(f"\nengines ready {time.monotonic() - started:.0f} s after apply (life {request.param})")
    yield Life(world, request.param, pods)
    kind.kubectl("delete", "--filename", "examples/01-shared-kv", "--ignore-not-found", "--wait=true", seconds=180)


def region(world: World) -> dict[str, Any]:
    body = world.region_of("kv-cache")
    assert body, "claim kv-cache has no region"
    return body


def free_bytes(world: World) -> dict[str, Any]:
    return {b["metadata"]["name"]: b.get("status", {}).get("allocatableBytes") for b in world.api.list(BLADE)}


def test_region_is_ready_on_both_hosts(life: Life) -> None:
    assert {pod["spec"]["nodeName"] for pod in life.pods} == set(kind.workers())

    def attached() -> bool:
        status = region(life.world)["status"]
        ready = {h["node"] for h in status.get("hosts", []) if h.get("state") == "Ready"}
        phases = {a["node"]: a["phase"] for a in status.get("attachments", [])}
        return status["phase"] == "Ready" and ready == set(phases) == set(kind.workers())

    wait("a Ready region with two hosts", attached, seconds=60)
    print("\n" + kind.kubectl("get", "cxlregions"))


def test_both_pods_have_the_same_memory_under_the_same_name(life: Life) -> None:
    seen = [json.loads(life.world.python(pod, IDENTITY)) for pod in life.pods]
    assert seen[0] == seen[1]
    assert seen[0]["bytes"] == 2 * 2**30
    assert seen[0]["user"] == 65532
    names = [re.findall(r"hymcache\S*\.json", kind.on_node(node, "ls", "/var/run/cdi")) for node in kind.workers()]
    assert names[0] == names[1]
    assert len(names[0]) == 1


def test_second_engine_loads_what_the_first_computed(life: Life) -> None:
    prompt = f"Life {life.number}. {TEXT} Question: which shelf holds part 7? Answer:"
    one, two = life.pods
    hits = [life.world.metric(two, "vllm:external_prefix_cache_hits_total")]
    cold = life.world.complete(one, prompt)
    time.sleep(2)
    cross = life.world.complete(two, prompt)
    hits.append(life.world.metric(two, "vllm:external_prefix_cache_hits_total"))
    bound = cold.prompt_tokens // CHUNK_TOKENS * CHUNK_TOKENS
    print(
        f"\n{cold.prompt_tokens} prompt tokens, {hits[1] - hits[0]:.0f} loaded: first token after "
        f"{cold.first_seconds:.2f} s cold, {cross.first_seconds:.2f} s on the other node"
    )
    assert bound >= 4 * CHUNK_TOKENS
    assert hits[1] - hits[0] == bound
    assert cross.text == cold.text


def test_engines_serve_on_while_operator_and_plugin_are_killed(life: Life) -> None:
    ready = [pod["metadata"]["uid"] for pod in life.pods]
    life.world.restart("operator")
    life.world.restart("plugin")
    for pod in life.pods:
        assert life.world.complete(pod, "The quick brown fox", tokens=4).text
    life.world.ready_pods("app.kubernetes.io/name=hymcache-plugin", 2, namespace=NAMESPACE, seconds=120)
    life.world.ready_pods("app.kubernetes.io/name=hymcache-operator", 1, namespace=NAMESPACE, seconds=120)
    assert [pod["metadata"]["uid"] for pod in life.world.ready_pods(ENGINES, 2)] == ready
    assert region(life.world)["status"]["phase"] == "Ready"


def test_new_process_in_a_running_pod_opens_the_region_after_a_plugin_restart(life: Life) -> None:
    before = life.world.python(life.pods[0], IDENTITY)
    life.world.restart("plugin")
    life.world.ready_pods("app.kubernetes.io/name=hymcache-plugin", 2, namespace=NAMESPACE, seconds=120)
    after = wait("the socket to answer", lambda: life.world.python(life.pods[0], IDENTITY), seconds=60)
    assert json.loads(after) == json.loads(before)


def test_claim_that_is_prepared_while_both_are_killed_converges(life: Life) -> None:
    name = f"crash-{life.number}"
    claim = kind_free_claim(name)
    life.world.api.create(claim)
    pod = probe_pod(name, claim=name)
    life.world.api.create(pod)
    wait("an allocation", lambda: life.world.region_of(name) or allocated(life.world, name), seconds=60)
    life.world.restart("operator")
    life.world.restart("plugin")
    life.world.ready_pods(f"app={name}", 1, seconds=240)
    life.world.api.delete(POD_KIND, name, "default", grace_seconds=0)
    life.world.api.delete(CLAIM, name, "default")


def test_pod_without_the_claim_sees_no_region(life: Life) -> None:
    name = f"stranger-{life.number}"
    life.world.api.create(probe_pod(name))
    (pod,) = life.world.ready_pods(f"app={name}", 1, seconds=120)
    code = "import os; print(os.path.exists('/run/hymcache'), [k for k in os.environ if k.startswith('HYMCACHE')])"
    assert life.world.python(pod, code).strip() == "False []"
    life.world.api.delete(POD_KIND, name, "default", grace_seconds=0)


def test_uninstall_with_the_claim_alive_is_refused_and_names_it(life: Life) -> None:
    done = life.world.uninstall()
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "claim default/kv-cache is allocated, used by engine-" in said
    for pod in life.pods:
        assert life.world.complete(pod, "The quick brown fox", tokens=4).text


def test_everything_is_released_when_the_example_goes(life: Life) -> None:
    world = life.world
    name = region(world)["metadata"]["name"]
    assert world.on_fabric()
    world.scale("engine", 0)
    wait("the pods to be gone", lambda: not world.pods(ENGINES), seconds=120, pause=1)
    world.api.delete(CLAIM, "kv-cache", "default")
    wait("the region to be gone", lambda: world.api.find(REGION, name) is None, seconds=120, pause=1)
    wait("the fabric to be empty", lambda: world.on_fabric() == [], seconds=60, pause=1)
    wait("the nodes to be clean", lambda: not any(world.left_on_nodes().values()), seconds=60, pause=1)
    holds("no region", lambda: not world.api.list(REGION), seconds=5)


def test_uninstall_leaves_nothing_behind(world: World) -> None:
    wait("all regions to be gone", lambda: not world.api.list(REGION), seconds=120, pause=1)
    done = world.uninstall()
    assert done.returncode == 0, done.stdout + done.stderr
    found = kind.kubectl(
        "get", "crds,deviceclasses,resourceslices,validatingadmissionpolicies,clusterroles", "-o", "name"
    )
    assert "hymcache" not in found
    assert not kind.kubectl(
        "--namespace", NAMESPACE, "get", "all,secrets,leases,serviceaccounts", "-o", "name"
    ).replace("serviceaccount/default\n", "")
    labels = {key for node in world.api.list(NODE) for key in node["metadata"]["labels"]}
    assert not {key for key in labels if key.startswith("hymcache.io/")}


POD_KIND = CXLNODE._replace(api_version="v1", name="Pod")


def allocated(world: World, name: str) -> bool:
    return bool(world.api.get(CLAIM, name, "default").get("status", {}).get("allocation"))


def kind_free_claim(name: str) -> dict[str, Any]:
    request = {"deviceClassName": "hymcache-shared", "capacity": {"requests": {"memory": "1Gi"}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "region", "exactly": request}]}},
    }


def probe_pod(name: str, *, claim: str = "") -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": "hymcache/engine:0.1.0",
        "command": ["sleep", "3600"],
        "securityContext": {"runAsUser": 65532},
    }
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if claim:
        spec["resourceClaims"] = [{"name": "region", "resourceClaimName": claim}]
        container["resources"] = {"claims": [{"name": "region"}]}
    meta = {"name": name, "namespace": "default", "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
