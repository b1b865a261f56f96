"""The chart's hooks against a real API server, with the rights that the chart gives them and no others."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from controlplane import CLAIM, CRD, NODE, SLICE, Api, ControlPlane, Kind, wait
from controlplane import workloads as w
from controlplane.api import LEASE

from .conftest import CHART, Helm

pytestmark = pytest.mark.controlplane

FABRIC = Kind("hymcache.io/v1alpha1", "CXLFabric")
REGION = Kind("hymcache.io/v1alpha1", "CXLRegion")
Run = Callable[..., subprocess.CompletedProcess[str]]

SLICE_OF_OURS: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "hymcache-blade-1"},
    "spec": {
        "driver": "hymcache.io",
        "pool": {"name": "blade-1", "generation": 1, "resourceSliceCount": 1},
        "allNodes": True,
        "devices": [
            {
                "name": "dram-shared",
                "allowMultipleAllocations": True,
                "attributes": {"mode": {"string": "shared"}},
                "capacity": {"memory": {"value": "64Gi"}},
            }
        ],
    },
}
REGION_BODY: dict[str, Any] = {
    "apiVersion": "hymcache.io/v1alpha1",
    "kind": "CXLRegion",
    "metadata": {"name": "static"},
    "spec": {"blade": "blade-1", "bytes": 2**30},
}


@pytest.fixture
def plane(own_control_plane: ControlPlane, helm: Helm) -> ControlPlane:
    """A control plane with the chart installed and a node."""
    own_control_plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hymcache"}})
    done = helm("install", "hymcache", CHART, "--namespace", "hymcache", "--kubeconfig", own_control_plane.kubeconfig())
    assert done.returncode == 0, done.stderr
    w.add_node(own_control_plane.api, "node-a", labels={"example.com/rack": "7", "hymcache.io/blade-blade-1": "cabled"})
    return own_control_plane


@pytest.fixture
def lifecycle(plane: ControlPlane, helm: Helm) -> Run:
    """Run a hook's command as the hook's service account."""
    rendered = helm("template", "hymcache", CHART, "--namespace", "hymcache", "--show-only", "templates/lifecycle.yaml")
    for body in yaml.safe_load_all(rendered.stdout):
        if body and body["kind"] != "Job":
            plane.api.apply(body)
    kubeconfig = plane.kubeconfig("lifecycle", plane.token("hymcache", "hymcache-lifecycle"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        code = "from hymcache.operator.lifecycle import main; main()"
        command = [sys.executable, "-c", code, "--kubeconfig", str(kubeconfig), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)

    return run


def publish_slice(plane: ControlPlane) -> None:
    plane.api_as(plane.token("hymcache", "hymcache-operator")).create(SLICE_OF_OURS)


def allocated_claim(plane: ControlPlane) -> None:
    publish_slice(plane)
    api = plane.api
    api.create(w.claim("kv", "4Gi", namespace="default"))
    api.create(w.pod("engine-0", namespace="default", claims=("kv",)))
    wait("an allocation", lambda: w.allocation(api.get(CLAIM, "kv", "default")))
    wait("the reservation", lambda: api.get(CLAIM, "kv", "default")["status"].get("reservedFor"))


def kinds(api: Api) -> set[str]:
    return {b["metadata"]["name"] for b in api.list(CRD) if b["spec"]["group"] == "hymcache.io"}


def test_uninstall_is_allowed_when_nothing_is_in_use(lifecycle: Run) -> None:
    done = lifecycle("check")
    assert done.returncode == 0, done.stderr


def test_uninstall_with_a_live_claim_is_refused_and_names_claim_and_pod(plane: ControlPlane, lifecycle: Run) -> None:
    allocated_claim(plane)
    done = lifecycle("check")
    assert done.returncode == 1
    assert "claim default/kv is allocated, used by engine-0" in done.stderr
    w.remove(plane.api, "engine-0", "default")
    wait("the claim to be freed", lambda: w.allocation(plane.api.get(CLAIM, "kv", "default")) is None)
    assert lifecycle("check").returncode == 0


def test_claim_of_another_driver_does_not_hold_the_uninstall(plane: ControlPlane, lifecycle: Run) -> None:
    allocated_claim(plane)
    api = plane.api
    api.delete(SLICE, "hymcache-blade-1")
    w.remove(api, "engine-0", "default")
    wait("the claim to be freed", lambda: w.allocation(api.get(CLAIM, "kv", "default")) is None)
    other = {**SLICE_OF_OURS, "metadata": {"name": "other"}, "spec": {**SLICE_OF_OURS["spec"], "driver": "example.com"}}
    api.create(other)
    expression = 'device.driver == "example.com"'
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    api.create({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "other"}, "spec": spec})
    api.create(w.claim("foreign", "4Gi", namespace="default", device_class="other"))
    api.create(w.pod("two", namespace="default", claims=("foreign",)))
    wait("an allocation", lambda: w.allocation(api.get(CLAIM, "foreign", "default")))
    assert lifecycle("check").returncode == 0


def test_region_of_no_claim_holds_the_uninstall(plane: ControlPlane, lifecycle: Run) -> None:
    plane.api.create(REGION_BODY)
    done = lifecycle("check")
    assert done.returncode == 1
    assert "region static of no claim is Pending" in done.stderr


def test_region_that_is_released_meanwhile_is_waited_for(plane: ControlPlane, lifecycle: Run) -> None:
    body = {**REGION_BODY, "metadata": {"name": "static", "finalizers": ["hymcache.io/region"]}}
    plane.api.create(body)
    plane.api.delete(REGION, "static")
    assert lifecycle("check", "--release-seconds", "1").returncode == 1

    def release() -> None:
        time.sleep(3)
        plane.api.merge(REGION, "static", {"metadata": {"finalizers": None}})

    thread = threading.Thread(target=release)
    thread.start()
    done = lifecycle("check")
    thread.join()
    assert done.returncode == 0, done.stderr


def test_clean_removes_what_the_operator_made_and_nothing_else(plane: ControlPlane, lifecycle: Run) -> None:
    api = plane.api
    publish_slice(plane)
    other = {**SLICE_OF_OURS, "metadata": {"name": "other"}, "spec": {**SLICE_OF_OURS["spec"], "driver": "example.com"}}
    api.create(other)
    api.create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "hymcache-operator", "namespace": "hymcache"},
            "spec": {"holderIdentity": "somebody"},
        }
    )
    make_fabric(api, "gone")
    done = lifecycle("clean", "--crds")
    assert done.returncode == 0, done.stderr
    labels = api.get(NODE, "node-a")["metadata"]["labels"]
    assert labels["example.com/rack"] == "7"
    assert not [key for key in labels if key.startswith("hymcache.io/")]
    assert [b["metadata"]["name"] for b in api.list(SLICE)] == ["other"]
    assert api.find(LEASE, "hymcache-operator", "hymcache") is None
    assert kinds(api) == set()


def make_fabric(api: Api, name: str, **labels: str) -> None:
    meta = {"name": name, "finalizers": ["hymcache.io/fabric"], "labels": labels}
    spec = {"backend": "emulated", "endpoint": "http://appliance:8000"}
    api.create({"apiVersion": FABRIC.api_version, "kind": FABRIC.name, "metadata": meta, "spec": spec})


def test_release_s_own_fabric_goes_while_the_operator_is_there_and_a_user_s_stays(
    plane: ControlPlane, lifecycle: Run
) -> None:
    api = plane.api
    make_fabric(api, "release", **{"app.kubernetes.io/managed-by": "Helm"})
    make_fabric(api, "user")
    stuck = lifecycle("retire", "--seconds", "1")
    assert stuck.returncode == 1
    assert "fabric release was deleted and is still there" in stuck.stderr
    api.merge(FABRIC, "release", {"metadata": {"finalizers": None}})
    done = lifecycle("retire")
    assert done.returncode == 0, done.stderr
    assert [body["metadata"]["name"] for body in api.list(FABRIC)] == ["user"]


def test_fabric_is_kept_while_regions_are_on_it(plane: ControlPlane, lifecycle: Run) -> None:
    plane.api.create(REGION_BODY)
    make_fabric(plane.api, "release", **{"app.kubernetes.io/managed-by": "Helm"})
    assert lifecycle("retire", "--seconds", "1").returncode == 0
    assert "deletionTimestamp" not in plane.api.get(FABRIC, "release")["metadata"]


def test_clean_keeps_the_kinds_when_told_so(plane: ControlPlane, lifecycle: Run) -> None:
    assert lifecycle("clean").returncode == 0
    assert len(kinds(plane.api)) == 4


def test_forced_uninstall_keeps_regions_for_the_next_installation(plane: ControlPlane, lifecycle: Run) -> None:
    publish_slice(plane)
    plane.api.create(REGION_BODY)
    done = lifecycle("clean", "--crds")
    assert done.returncode == 0, done.stderr
    assert "region static of no claim is Pending and was left" in done.stdout
    assert plane.api.find(REGION, "static")
    assert plane.api.find(SLICE, "hymcache-blade-1")
    assert len(kinds(plane.api)) == 4


def test_upgrade_brings_an_old_kind_up_to_date(plane: ControlPlane, lifecycle: Run) -> None:
    body = plane.api.get(CRD, "cxlregions.hymcache.io")
    columns = len(body["spec"]["versions"][0]["additionalPrinterColumns"])
    path = "/spec/versions/0/additionalPrinterColumns"
    plane.api.patch(CRD, "cxlregions.hymcache.io", [{"op": "remove", "path": path}])
    done = lifecycle("apply-crds")
    assert done.returncode == 0, done.stderr
    after = plane.api.get(CRD, "cxlregions.hymcache.io")
    assert len(after["spec"]["versions"][0]["additionalPrinterColumns"]) == columns
