"""Two operators, one acts; and what an old leader can still do, which is nothing."""

from __future__ import annotations

import signal
import time
import urllib.request
from typing import Any

import pytest

from controlplane import SLICE, Kind, wait
from controlplane.operators import ACCOUNTS, REGION, Operator
from controlplane.stage import Stage

pytestmark = pytest.mark.controlplane

LEASE = Kind("coordination.k8s.io/v1", "Lease")
QUICK_LEASE = {"lease_seconds": "6", "renew_seconds": "1", "renew_deadline_seconds": "5"}


def lease(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = stage.api.get(LEASE, stage.lease, ACCOUNTS.namespace)["spec"]
    return found


def leads(operator: Operator) -> bool:
    return "leading with generation" in operator.log


def test_of_two_operators_one_acts_and_the_other_follows_when_it_is_killed(stage: Stage) -> None:
    stage.build()
    one = stage.start_operator(name="one", identity="pod-one", **QUICK_LEASE)
    wait("the first to lead", lambda: leads(one))
    two = stage.start_operator(name="two", identity="pod-two", **QUICK_LEASE)
    stage.add_fabrics()
    stage.wait_published()
    stage.claim("a", "4Gi")
    stage.pod("pa", "a")
    stage.wait_bound("pa")
    wait("the second to be up", lambda: "candidate" in two.log)
    assert not leads(two)
    assert lease(stage)["holderIdentity"].startswith("pod-one_")

    one.process.kill()
    begun = time.monotonic()
    wait("the second to lead", lambda: leads(two))
    print(f"the other leads {time.monotonic() - begun:.1f} s after a kill (lease of 6 s)")
    stage.claim("b", "4Gi")
    stage.pod("pb", "b")
    stage.wait_bound("pb")
    generation = str(lease(stage)["leaseTransitions"])
    assert generation == "2"
    for body in [*stage.slices(), *stage.api.list(REGION)]:
        assert body["metadata"]["annotations"]["hymcache.io/lease-generation"] == generation
    assert len(stage.appliances["b1"].regions()) == 2


def test_a_leader_that_hung_stops_when_it_wakes_up(stage: Stage) -> None:
    stage.build()
    one = stage.start_operator(name="one", identity="pod-one", **QUICK_LEASE)
    stage.add_fabrics()
    stage.wait_published()
    one.process.send(signal.SIGSTOP)
    two = stage.start_operator(name="two", identity="pod-two", **QUICK_LEASE)
    wait("the second to lead", lambda: leads(two))
    stage.claim("kv", "4Gi")
    stage.pod("p", "kv")
    one.process.send(signal.SIGCONT)
    wait("the first to end itself", lambda: not one.process.running)
    assert "no longer the leader" in one.log
    stage.wait_bound("p")
    assert len(stage.api.list(REGION)) == len(stage.appliances["b1"].regions()) == 1


def test_a_leader_that_stops_cleanly_leaves_the_lease_free(stage: Stage) -> None:
    stage.build(nodes=("n1",))
    one = stage.start_operator(name="one", identity="pod-one", **QUICK_LEASE)
    stage.add_fabrics()
    stage.wait_published()
    one.process.stop(seconds=20)
    assert lease(stage)["holderIdentity"] == ""
    assert "the lease is free" in one.log


def test_a_slice_that_is_deleted_or_changed_by_hand_comes_back(stage: Stage) -> None:
    stage.build(nodes=("n1",))
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    name = f"hymcache-{stage.blade_name('b1')}"
    first = stage.api.get(SLICE, name)
    stage.api.delete(SLICE, name)
    again = wait("the slice to come back", lambda: stage.api.find(SLICE, name))
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert again["spec"]["devices"] == first["spec"]["devices"]


def test_probes_and_metrics_answer(stage: Stage) -> None:
    stage.build(nodes=("n1",))
    stage.start_operator()
    stage.add_fabrics()
    stage.wait_published()
    url = wait("the health server", lambda: _url(stage.operator))

    def read(path: str) -> str:
        with urllib.request.urlopen(url + path, timeout=30) as reply:
            return str(reply.read().decode())

    assert read("/healthz") == "ok"
    assert read("/readyz") == "ok"
    metrics = read("/metrics")
    assert "hymcache_operator_leader 1.0" in metrics
    assert f'hymcache_blade_offered_bytes{{blade="{stage.blade_name("b1")}"}}' in metrics
    assert 'hymcache_fabric_up{fabric="' in metrics


def _url(operator: Operator) -> str | None:
    line = next((line for line in operator.log.splitlines() if "health on" in line), None)
    return line.rsplit(" ", 1)[1] if line else None
