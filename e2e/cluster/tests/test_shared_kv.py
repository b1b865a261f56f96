"""examples/01-shared-kv on the cluster, twice: two engines on two workers, one region, one prefix.

The tests of one life run in order on the engines that `life` started; the last one ends it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cluster import kind
from cluster.settings import NAMESPACE
from cluster.world import REGION, World
from controlplane.api import CLAIM, Object
from controlplane.waiting import wait

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

CHUNK_TOKENS = 256
ENGINES = "app=engine"
STORES = "hymcache:stores_total"
CLAIM_BYTES = 2 * 2**30
START_SECONDS = 1200
TEXT = " ".join(f"Paragraph {n} says that part {n * 7 % 101} belongs to shelf {n * 13 % 47}." for n in range(90))


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
    pods = world.ready_pods(ENGINES, 2, seconds=START_SECONDS)
    print(f"\nlife {request.param}: engines ready {time.monotonic() - started:.0f} s after apply")
    yield Life(world, request.param, pods)
    world.delete("01-shared-kv")


def test_region_is_ready_on_both_hosts(life: Life) -> None:
    assert {pod["spec"]["nodeName"] for pod in life.pods} == set(kind.workers())
    wait("a Ready region with two hosts", lambda: life.world.hosts_ready("kv-cache") == set(kind.workers()), seconds=60)
    print("\n" + kind.kubectl("get", "cxlregions"))


def test_second_engine_loads_what_the_first_computed(life: Life) -> None:
    prompt = f"Life {life.number}. {TEXT} Question: which shelf holds part 7? Answer:"
    one, two = life.pods
    counter = "vllm:external_prefix_cache_hits_total"
    before, stored = life.world.metric(two, counter), life.world.metric(one, STORES)
    cold = life.world.complete(one, prompt)
    bound = cold.prompt_tokens // CHUNK_TOKENS * CHUNK_TOKENS
    chunks = bound // CHUNK_TOKENS
    wait("the stores behind the answer", lambda: life.world.metric(one, STORES) - stored >= chunks, pause=0.5)
    cross = life.world.complete(two, prompt)
    loaded = life.world.metric(two, counter) - before
    print(
        f"\nlife {life.number}: {cold.prompt_tokens} prompt tokens, {loaded:.0f} loaded on the other node; first token "
        f"after {cold.first_seconds:.2f} s cold, {cross.first_seconds:.2f} s there"
    )
    assert bound >= 4 * CHUNK_TOKENS
    assert loaded == bound
    assert cross.text == cold.text


def test_engines_serve_on_while_operator_and_plugin_are_killed(life: Life) -> None:
    before = [pod["metadata"]["uid"] for pod in life.pods]
    life.world.kill("operator")
    life.world.kill("plugin")
    for pod in life.pods:
        assert life.world.complete(pod, "The quick brown fox", tokens=4).text
    life.world.parts_ready()
    assert [pod["metadata"]["uid"] for pod in life.world.ready_pods(ENGINES, 2)] == before
    wait("the region to be Ready", lambda: life.world.hosts_ready("kv-cache") == set(kind.workers()), seconds=60)


def test_uninstall_is_refused_while_engines_run_and_names_claim_and_pods(life: Life) -> None:
    done = life.world.uninstall()
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "claim default/kv-cache is allocated, used by engine-" in said
    for pod in life.pods:
        assert life.world.complete(pod, "The quick brown fox", tokens=4).text


def test_scaled_to_nothing_everything_is_released(life: Life) -> None:
    world = life.world
    body = world.region_of("kv-cache")
    assert body is not None
    assert world.on_fabric()
    wait("the blade to count them", lambda: world.taken_bytes() == CLAIM_BYTES, seconds=60)
    world.scale("engine", 0)
    wait("the pods to be gone", lambda: not world.pods(ENGINES), seconds=120, pause=1)
    world.api.delete(CLAIM, "kv-cache", "default")
    name = body["metadata"]["name"]
    wait("the region to be gone", lambda: world.api.find(REGION, name) is None, seconds=120, pause=1)
    world.wait_clean()
    wait("the blade to have its bytes back", lambda: world.taken_bytes() == 0, seconds=60)
    assert NAMESPACE in kind.kubectl("get", "namespaces", "--output=name")
