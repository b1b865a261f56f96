"""The chart on a real API server: every object is accepted as it stands, and what may not be installed is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane import POD, Api, ApiException, ControlPlane, Kind, wait
from controlplane import workloads as w

from .conftest import CHART, Helm

pytestmark = pytest.mark.controlplane

DEPLOYMENT = Kind("apps/v1", "Deployment")
DAEMONSET = Kind("apps/v1", "DaemonSet")
FABRIC = Kind("hymcache.io/v1alpha1", "CXLFabric")
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}


def make_namespace(api: Api, name: str, **labels: str) -> None:
    keys = {f"pod-security.kubernetes.io/{key}": value for key, value in labels.items()}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": keys}})


@pytest.fixture
def plane(own_control_plane: ControlPlane) -> ControlPlane:
    """A control plane with two nodes and a namespace `hymcache` as the documentation has it."""
    make_namespace(own_control_plane.api, "hymcache", enforce="privileged")
    for name in ("node-a", "node-b"):
        w.add_node(own_control_plane.api, name)
    return own_control_plane


def install(helm: Helm, plane: ControlPlane, *words: str | Path, namespace: str = "hymcache") -> Any:
    return helm("install", "hymcache", CHART, "--namespace", namespace, "--kubeconfig", plane.kubeconfig(), *words)


def test_install_runs_the_plugin_on_every_node_and_the_appliance_knows_them(helm: Helm, plane: ControlPlane) -> None:
    done = install(helm, plane, "--set", "appliance.enabled=true")
    assert done.returncode == 0, done.stderr
    api = plane.api

    def scheduled() -> bool:
        return bool(api.get(DAEMONSET, "hymcache-plugin", "hymcache")["status"].get("currentNumberScheduled") == 2)

    wait("a plugin pod for each node", scheduled)
    wait("pods of all three parts", lambda: len(api.list(POD, "hymcache")) == 4)
    uuids = {n["metadata"]["name"]: n["status"]["nodeInfo"]["systemUUID"] for n in api.list(Kind("v1", "Node"))}
    args = api.get(DEPLOYMENT, "hymcache-appliance", "hymcache")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert {a for a in args if a.startswith("--host=")} == {f"--host={name}={uuid}" for name, uuid in uuids.items()}
    assert api.get(FABRIC, "blade-1")["spec"]["credentialsSecret"] == "hymcache-appliance"


def test_upgrade_keeps_the_appliance_s_password(helm: Helm, plane: ControlPlane) -> None:
    words = ("--set", "appliance.enabled=true", "--no-hooks")
    assert install(helm, plane, *words).returncode == 0
    secret = Kind("v1", "Secret")
    before = plane.api.get(secret, "hymcache-appliance", "hymcache")["data"]
    kubeconfig = ("--kubeconfig", plane.kubeconfig())
    done = helm("upgrade", "hymcache", CHART, "--namespace", "hymcache", *kubeconfig, *words)
    assert done.returncode == 0, done.stderr
    assert plane.api.get(secret, "hymcache-appliance", "hymcache")["data"] == before


def test_operator_is_admitted_where_pod_security_is_restricted(helm: Helm, plane: ControlPlane) -> None:
    assert install(helm, plane).returncode == 0
    make_namespace(plane.api, "strict", enforce="restricted")
    template = plane.api.get(DEPLOYMENT, "hymcache-operator", "hymcache")["spec"]["template"]
    spec = {**template["spec"], "serviceAccountName": "default"}
    wait("its service account", lambda: plane.api.find(Kind("v1", "ServiceAccount"), "default", "strict"))
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator", "namespace": "strict"}, "spec": spec}
    plane.api.create(body, dry_run=True)
    privileged = {**spec, "containers": [{**spec["containers"][0], "securityContext": {"privileged": True}}]}
    with pytest.raises(ApiException) as refusal:
        plane.api.create({**body, "spec": privileged}, dry_run=True)
    assert refusal.value.status == 403


def test_namespace_that_enforces_less_than_privileged_is_refused_with_the_command_to_run(
    helm: Helm, plane: ControlPlane
) -> None:
    make_namespace(plane.api, "strict", enforce="baseline")
    done = install(helm, plane, namespace="strict")
    assert done.returncode != 0
    assert "kubectl label --overwrite namespace strict pod-security.kubernetes.io/enforce=privileged" in done.stderr


def test_second_installation_is_refused_and_names_the_first(helm: Helm, plane: ControlPlane) -> None:
    assert install(helm, plane).returncode == 0
    make_namespace(plane.api, "other", enforce="privileged")
    done = install(helm, plane, namespace="other")
    assert done.returncode != 0
    assert "installed in namespace hymcache already" in done.stderr


def test_uninstall_without_hooks_leaves_nothing_but_the_kinds(helm: Helm, plane: ControlPlane) -> None:
    assert install(helm, plane, "--set", "appliance.enabled=true").returncode == 0
    kubeconfig = ("--kubeconfig", plane.kubeconfig())
    done = helm("uninstall", "hymcache", "--namespace", "hymcache", "--no-hooks", *kubeconfig)
    assert done.returncode == 0, done.stderr
    left = [
        (kind.name, body["metadata"]["name"])
        for kind in (
            DEPLOYMENT,
            DAEMONSET,
            FABRIC,
            Kind("resource.k8s.io/v1", "DeviceClass"),
            Kind("rbac.authorization.k8s.io/v1", "ClusterRole"),
            Kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            Kind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
            Kind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
        )
        for body in plane.api.list(kind)
        if body["metadata"]["name"].startswith(("hymcache", "blade-"))
    ]
    assert not left
