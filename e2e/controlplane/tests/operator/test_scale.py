"""Other people's claims, a race for the last bytes, and an API server that is away."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hymcache.crds.quantity import parse_bytes

from controlplane import CLAIM, NODE, POD, wait
from controlplane import workloads as w
from controlplane.operators import REGION
from controlplane.rounds import best_round
from controlplane.stage import SETTLED_SECONDS, Stage
from controlplane.waiting import holds

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

GIB = 1 << 30
FOREIGN = 600


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


@pytest.mark.timeout(900)
def test_hundreds_of_claims_of_others_cost_neither_memory_nor_time(stage: Stage) -> None:
    stage.build(nodes=("n1",))
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    before = resident_mib(stage.operator.process.pid)

    def flood_and_claim(number: int) -> float:
        def make(which: int) -> None:
            name = f"gpu{number}-{which}"
            stage.api.create(w.claim(name, "1Gi", namespace=stage.namespace, device_class="gpu.example.com"))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(make, range(FOREIGN)))
        stage.claim(f"kv{number}", "4Gi")
        begun = time.monotonic()
        stage.pod(f"p{number}", f"kv{number}")
        wait("the region", lambda: stage.region(f"kv{number}"))
        return time.monotonic() - begun

    best_round("from the pod to the region", flood_and_claim, below=10)
    after = resident_mib(stage.operator.process.pid)
    print(f"{FOREIGN} foreign claims: RSS {before:.0f} -> {after:.0f} MiB")
    assert after - before < 20


@pytest.mark.timeout(600)
def test_a_hundred_claims_that_race_for_the_last_bytes_never_overcommit(stage: Stage) -> None:
    stage.build()
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    blade = stage.appliances["b1"]

    def make(number: int) -> None:
        name = f"{number:03d}"
        stage.claim(f"kv{name}", "4Gi")
        stage.pod(f"p{name}", f"kv{name}")

    most = 0

    def settled() -> bool:
        nonlocal most
        held = 0
        for claim in stage.api.list(CLAIM, stage.namespace):
            results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
            held += sum(parse_bytes(r["consumedCapacity"]["memory"]) for r in results)
        most = max(most, held, sum(r["bytes"] for r in blade.regions()))
        return sum(bool(p["spec"].get("nodeName")) for p in stage.api.list(POD, stage.namespace)) == 16

    begun = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(100)))
    wait("sixteen pods to be bound", settled, seconds=SETTLED_SECONDS, pause=0.3)
    print(f"16 of 100 bound after {time.monotonic() - begun:.1f} s, at most {most / GIB:.0f} GiB held")
    assert most <= 64 * GIB
    holds("no more than sixteen", settled, seconds=3)


@pytest.mark.timeout(600)
def test_an_api_server_that_is_away_for_a_while_costs_no_label_and_no_region(stage: Stage) -> None:
    stage.build()
    stage.start_operator(lease_seconds="40", renew_deadline_seconds="35", heartbeat_stale_seconds="10")
    stage.add_fabrics()
    stage.wait_published()
    stage.claim("kv", "4Gi")
    stage.pod("p1", "kv", node="n1")
    stage.wait_bound("p1")
    wait("Ready", lambda: stage.phase("kv") == "Ready")
    before = {body["metadata"]["name"]: body["metadata"]["labels"] for body in stage.api.list(NODE)}
    stage.plane.apiserver.kill()
    time.sleep(15)
    stage.plane.apiserver.start()
    wait("the API server", lambda: stage.plane.api.raw("/readyz") == "ok")
    holds("labels stay", lambda: _labels(stage) == before, seconds=5)
    stage.operator.process.require_running()
    stage.claim("other", "4Gi")
    stage.pod("p2", "other")
    stage.wait_bound("p2")
    assert len(stage.api.list(REGION)) == 2


def _labels(stage: Stage) -> dict[str, dict[str, str]]:
    return {body["metadata"]["name"]: body["metadata"]["labels"] for body in stage.api.list(NODE)}
