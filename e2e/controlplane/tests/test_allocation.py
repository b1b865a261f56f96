"""The control plane allocates, waits, binds and frees as a cluster does."""

from __future__ import annotations

import pytest

from controlplane import CLAIM, POD, Api, Kind, wait
from controlplane import workloads as w
from controlplane.manifests import apply_all
from controlplane.tests.pools import POOL

pytestmark = pytest.mark.controlplane


@pytest.fixture
def pool(api: Api, namespace: str):
    """Two nodes that reach a pool of 64 GiB, on whose device a claim waits for a condition."""
    apply_all(api, POOL.format(name=namespace))
    for node in ("a", "b"):
        w.add_node(api, f"{namespace}-{node}", labels={"example.com/pool": namespace})
    yield namespace
    api.delete(Kind("resource.k8s.io/v1", "ResourceSlice"), namespace)
    api.delete(Kind("resource.k8s.io/v1", "DeviceClass"), namespace)


def claim(api: Api, name: str, size: str, namespace: str):
    return api.create(w.claim(name, size, namespace=namespace, device_class=namespace))


def allocated(api: Api, name: str, namespace: str):
    return wait(
        f"claim {name} to be allocated",
        lambda: (body := api.get(CLAIM, name, namespace)) and w.allocation(body) and body,
    )


def bound(api: Api, name: str, namespace: str) -> str:
    return wait(f"pod {name} to be bound", lambda: api.get(POD, name, namespace)["spec"].get("nodeName"))


def test_claim_waits_for_its_condition_then_binds_two_pods_with_one_share(api: Api, pool: str) -> None:
    claim(api, "kv", "4Gi", pool)
    api.create(w.pod("one", namespace=pool, claims=("kv",), node=f"{pool}-a"))
    api.create(w.pod("two", namespace=pool, claims=("kv",), node=f"{pool}-b"))
    body = allocated(api, "kv", pool)
    device = w.allocation(body)
    assert device["consumedCapacity"]["memory"] == "4Gi"
    assert device["shareID"]
    assert "nodeName" not in api.get(POD, "one", pool)["spec"], "bound before its condition was set"

    w.set_condition(api, body, "example.com/Composed")
    assert {bound(api, "one", pool), bound(api, "two", pool)} == {f"{pool}-a", f"{pool}-b"}
    after = api.get(CLAIM, "kv", pool)
    assert w.allocation(after)["shareID"] == device["shareID"]
    assert {user["name"] for user in after["status"]["reservedFor"]} == {"one", "two"}


def test_claim_is_freed_when_its_last_pod_goes(api: Api, pool: str) -> None:
    claim(api, "kv", "4Gi", pool)
    api.create(w.pod("one", namespace=pool, claims=("kv",)))
    w.set_condition(api, allocated(api, "kv", pool), "example.com/Composed")
    bound(api, "one", pool)
    w.remove(api, "one", pool)
    wait("the claim to be freed", lambda: not api.get(CLAIM, "kv", pool).get("status", {}).get("allocation"))


def test_failure_condition_moves_the_claim_to_a_new_share(api: Api, pool: str) -> None:
    claim(api, "kv", "4Gi", pool)
    api.create(w.pod("one", namespace=pool, claims=("kv",)))
    first = allocated(api, "kv", pool)
    w.set_condition(api, first, "example.com/Failed")
    share = w.allocation(first)["shareID"]

    def another() -> bool:
        device = w.allocation(api.get(CLAIM, "kv", pool))
        return bool(device and device["shareID"] != share)

    wait("a new share", another)


def test_claim_larger_than_the_pool_stays_pending_with_the_scheduler_s_reason(api: Api, pool: str) -> None:
    claim(api, "kv", "65Gi", pool)
    api.create(w.pod("one", namespace=pool, claims=("kv",)))

    def reason() -> str | None:
        conditions = api.get(POD, "one", pool)["status"].get("conditions", [])
        return next((c["message"] for c in conditions if c.get("reason") == "Unschedulable"), None)

    assert "cannot allocate all claims" in wait("the scheduler's reason", reason)
    assert w.allocation(api.get(CLAIM, "kv", pool)) is None
