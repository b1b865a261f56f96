"""Fake nodes, claims and pods, and what a kubelet would say about them."""

from __future__ import annotations

import uuid
from typing import Any

from controlplane.api import NODE, POD, Api, Object

READY = {
    "type": "Ready",
    "status": "True",
    "reason": "KubeletReady",
    "message": "set by the test",
    "lastHeartbeatTime": "2026-01-01T00:00:00Z",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "500"}
SHARED_CLASS = "hymcache-shared"


def add_node(
    api: Api,
    name: str,
    *,
    system_uuid: str | None = None,
    boot_id: str | None = None,
    labels: dict[str, str] | None = None,
) -> Object:
    """Create a Node that is Ready and stays so; `systemUUID` and `bootID` are random when not given."""
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})}}
    made = api.create({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}})
    info = {
        "systemUUID": system_uuid or str(uuid.uuid4()),
        "bootID": boot_id or str(uuid.uuid4()),
        "machineID": made["metadata"]["uid"],
        "architecture": "amd64",
        "operatingSystem": "linux",
        "kernelVersion": "0",
        "osImage": "none",
        "containerRuntimeVersion": "none://0",
        "kubeletVersion": "v0",
        "kubeProxyVersion": "",
    }
    status = {"conditions": [READY], "nodeInfo": info, "capacity": CAPACITY, "allocatable": CAPACITY}
    return api.merge(NODE, name, {"status": status}, subresource="status")


def reboot(api: Api, name: str, boot_id: str | None = None) -> Object:
    """Give a node another boot id, as its kubelet does after a reboot."""
    info = {"nodeInfo": {"bootID": boot_id or str(uuid.uuid4())}}
    return api.merge(NODE, name, {"status": info}, subresource="status")


def claim(name: str, size: str, *, namespace: str, device_class: str = SHARED_CLASS, **exactly: Any) -> Object:
    """A ResourceClaim with one request for `size` bytes (a quantity such as `4Gi`); `exactly` adds to the request."""
    request = {"deviceClassName": device_class, "capacity": {"requests": {"memory": size}}, **exactly}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": [{"name": "region", "exactly": request}]}},
    }


def pod(
    name: str,
    *,
    namespace: str,
    claims: tuple[str, ...] = (),
    node: str | None = None,
    labels: dict[str, str] | None = None,
) -> Object:
    """A pod that uses claims of its namespace; `node` pins it by hostname, through the scheduler."""
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": one} for one in claims]}}
    spec: Object = {
        "containers": [container],
        "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
        "terminationGracePeriodSeconds": 0,
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    meta = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def run(api: Api, name: str, namespace: str) -> Object:
    """Say that a bound pod runs, as its kubelet does once its containers are up."""
    return _phase(api, name, namespace, "Running", ready="True")


def finish(api: Api, name: str, namespace: str) -> Object:
    """Say that a pod has ended well: the claim controller frees what it held."""
    return _phase(api, name, namespace, "Succeeded", ready="False")


def _phase(api: Api, name: str, namespace: str, phase: str, *, ready: str) -> Object:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": phase, "conditions": [condition]}
    return api.merge(POD, name, {"status": status}, namespace, subresource="status")


def remove(api: Api, name: str, namespace: str) -> None:
    """Delete a pod at once, as its kubelet does at the end of the grace period."""
    api.delete(POD, name, namespace, grace_seconds=0)


def allocation(body: Object) -> Object | None:
    """First device of a claim's allocation (driver, pool, device, shareID, consumedCapacity), or None before it."""
    results = body.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return results[0] if results else None


def set_condition(api: Api, body: Object, kind: str, *, status: str = "True", manager: str = "e2e") -> Object:
    """Server-side apply of one condition on the allocated device of a claim, as the operator sets it."""
    device = allocation(body)
    assert device, f"claim {body['metadata']['name']} has no allocation yet"
    condition = {
        "type": kind,
        "status": status,
        "reason": "SetByTest",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    key: Object = {name: device[name] for name in ("driver", "pool", "device", "shareID") if name in device}
    meta: Object = {name: body["metadata"][name] for name in ("name", "namespace")}
    change = {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "metadata": meta,
        "status": {"devices": [{**key, "conditions": [condition]}]},
    }
    return api.apply(change, manager=manager, subresource="status")
