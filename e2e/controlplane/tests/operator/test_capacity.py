"""Bytes are counted by the scheduler: never too many, never stuck, and the operator makes it look again."""

from __future__ import annotations

import time

import pytest
from hymcache.crds.quantity import parse_bytes

from controlplane import CLAIM, POD, wait
from controlplane.rounds import best_round
from controlplane.stage import SETTLED_SECONDS, Stage
from controlplane.waiting import holds

pytestmark = pytest.mark.controlplane

GIB = 1 << 30
SLOW = {"fault": "slow", "method": "POST", "path": "MemoryChunks$", "seconds": 2, "times": None}


def allocated(stage: Stage) -> int:
    """Bytes that claims of the test hold by the API server's books."""
    total = 0
    for claim in stage.api.list(CLAIM, stage.namespace):
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        total += sum(parse_bytes(r["consumedCapacity"]["memory"]) for r in results)
    return total


def bound(stage: Stage) -> set[str]:
    return {p["metadata"]["name"] for p in stage.api.list(POD, stage.namespace) if p["spec"].get("nodeName")}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twenty_claims_of_4_gib_on_64_sixteen_run_and_four_wait(stage: Stage) -> None:
    stage.build()
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    blade = stage.appliances["b1"]
    blade.faults(SLOW)
    names = [f"{n:02d}" for n in range(20)]
    for name in names:
        stage.claim(f"kv{name}", "4Gi")
    most = 0
    for name in names:
        stage.pod(f"p{name}", f"kv{name}")

    def sixteen() -> bool:
        nonlocal most
        most = max(most, allocated(stage))
        return len(bound(stage)) == 16

    wait("sixteen pods to be bound", sixteen, seconds=SETTLED_SECONDS, pause=0.3)
    touches = stage.operator.log.count("slice touched")
    print(f"16 bound after {touches} touches, at most {most / GIB:.0f} GiB allocated")
    assert most <= 64 * GIB
    holds("four wait", lambda: len(bound(stage)) == 16 and allocated(stage) <= 64 * GIB, seconds=3)
    assert sum(r["bytes"] for r in blade.regions()) <= 64 * GIB

    leaver = min(bound(stage))
    stage.remove_pods(leaver)
    wait("a waiting pod to follow", lambda: len(bound(stage)) == 16, seconds=SETTLED_SECONDS)


@pytest.mark.timeout(600)
def test_two_claims_that_fill_a_blade_exactly_both_run(stage: Stage) -> None:
    stage.build()
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    stage.appliances["b1"].faults({**SLOW, "seconds": 3})

    def life(number: int) -> float:
        first, second = f"a{number}", f"b{number}"
        stage.claim(first, "4Gi")
        stage.pod(first, first)
        wait("the first to be allocated", lambda: stage.allocation(first))
        begun = time.monotonic()
        stage.claim(second, "60Gi")
        stage.pod(second, second)  # while the first composes: counted twice by the scheduler until its pod has a node
        stage.wait_bound(first, second)
        took = time.monotonic() - begun
        stage.remove_pods(first, second)
        stage.wait_nothing_left()
        return took

    best_round("both bound after the second was made", life, below=20)


def test_a_blade_that_has_less_than_it_says_is_shrunk_before_the_claim_is_failed(stage: Stage) -> None:
    stage.build(nodes=("n1",), capacity="8Gi")
    blade = stage.appliances["b1"]
    blade.faults(
        {"fault": "lie-capacity", "method": "GET", "path": "MemoryDomains/1$", "bytes": 56 * GIB, "times": None}
    )
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    stage.claim("kv", "16Gi")
    stage.pod("p1", "kv")

    def memory(devices: list[dict]) -> bool:  # type: ignore[type-arg]
        return not devices or parse_bytes(devices[0]["capacity"]["memory"]["value"]) < 16 * GIB

    stage.wait_slice("b1", memory)
    wait("the allocation to be given up", lambda: not allocated(stage))
    stage.claim("small", "4Gi")
    stage.pod("p2", "small")
    stage.wait_bound("p2")


def test_bytes_of_somebody_else_are_not_offered(stage: Stage) -> None:
    stage.build(nodes=("n1",))
    blade = stage.appliances["b1"]
    _compose_by_hand(blade.url, "not-ours", 60)
    stage.start_operator()
    stage.add_fabrics()
    body = stage.wait_slice("b1", lambda devices: bool(devices))
    assert body["spec"]["devices"][0]["capacity"]["memory"]["value"] == "4Gi"
    time.sleep(4)  # longer than the grace for orphans
    assert [r["region"] if "region" in r else r["name"] for r in blade.regions()] == ["not-ours"]


def _compose_by_hand(url: str, name: str, gib: int) -> None:
    import base64
    import json
    import urllib.request

    from controlplane.appliances import PASSWORD, USER

    chassis = url + "/redfish/v1/Chassis"
    token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}

    def call(where: str, body: dict[str, object] | None = None) -> dict[str, object]:
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(where, data=data, headers=headers)
        with urllib.request.urlopen(request) as reply:
            return dict(json.loads(reply.read()))

    members = call(chassis)["Members"]
    assert isinstance(members, list)
    where = f"{url}{members[0]['@odata.id']}/MemoryDomains/1/MemoryChunks"
    call(where, {"Name": name, "MemoryChunkSizeMiB": gib << 10, "AddressRangeType": "Volatile"})
