"""What the chart renders: no privilege anywhere, only the node folders of the design, images of one version."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from .conftest import CHART, Helm

pytestmark = pytest.mark.controlplane

NODE_FOLDERS = {
    "hymcache-plugin": {
        "/var/lib/kubelet/plugins_registry",
        "/var/lib/kubelet/plugins/hymcache.io",
        "/var/run/cdi",
        "/var/lib/hymcache/cables",
    },
    "hymcache-appliance": {"/var/lib/hymcache/appliance"},
}
ROOT_USERS = set(NODE_FOLDERS)


def render(helm: Helm, *words: str) -> list[dict[str, Any]]:
    done = helm("template", "release", CHART, "--namespace", "hymcache", "--kube-version", "1.37.2", *words)
    assert done.returncode == 0, done.stderr
    return [body for body in yaml.safe_load_all(done.stdout) if body]


@pytest.fixture(scope="module")
def manifests(helm: Helm) -> list[dict[str, Any]]:
    return render(helm, "--set", "appliance.enabled=true", "--set", "appliance.hosts[0].name=a",
                  "--set", "appliance.hosts[0].systemUUID=6f1a4dd8-5b0a-4a44-9d2c-0d3b8e6a0001")  # fmt: skip


@pytest.fixture(scope="module")
def pods(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Pod specs by the name of their owner."""
    owners = {"Deployment", "DaemonSet", "Job"}
    return {b["metadata"]["name"]: b["spec"]["template"]["spec"] for b in manifests if b["kind"] in owners}


def test_all_parts_are_rendered(pods: dict[str, Any]) -> None:
    assert set(pods) == {
        "hymcache-operator",
        "hymcache-plugin",
        "hymcache-appliance",
        "hymcache-crds",
        "hymcache-uninstall-check",
        "hymcache-uninstall-retire",
        "hymcache-uninstall-clean",
    }


def test_no_container_has_a_privilege(pods: dict[str, Any]) -> None:
    for name, spec in pods.items():
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["privileged"] is False, name
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name


def test_only_those_who_need_the_kubelet_s_folders_run_as_root(pods: dict[str, Any]) -> None:
    assert {name for name, spec in pods.items() if spec["securityContext"].get("runAsUser") == 0} == ROOT_USERS


def test_only_the_folders_of_the_design_are_mounted_from_the_node(pods: dict[str, Any]) -> None:
    for name, spec in pods.items():
        mounted = {v["hostPath"]["path"] for v in spec.get("volumes", []) if "hostPath" in v}
        assert mounted == NODE_FOLDERS.get(name, set()), name


def test_plugin_follows_a_moved_kubelet(helm: Helm) -> None:
    moved = render(helm, "--set", "plugin.kubeletDir=/data/kubelet/")
    spec = next(b for b in moved if b["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    environment = {e["name"]: e.get("value") for e in spec["containers"][0]["env"]}
    assert environment["HYMCACHE_DRA_REGISTRY_DIR"] == "/data/kubelet/plugins_registry"
    assert {m["mountPath"] for m in spec["containers"][0]["volumeMounts"]} >= {
        "/data/kubelet/plugins_registry",
        "/data/kubelet/plugins/hymcache.io",
    }


def test_images_carry_the_chart_s_version_and_the_registry(helm: Helm) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    for body in render(helm, "--set", "images.registry=registry.example.com/mirror/"):
        for container in body.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            assert container["image"].startswith("registry.example.com/mirror/hymcache/")
            assert container["image"].endswith(f":{chart['appVersion']}")


def test_policies_name_the_accounts_that_the_pods_use(manifests: list[dict[str, Any]], pods: dict[str, Any]) -> None:
    policies = [b for b in manifests if b["kind"] == "ValidatingAdmissionPolicy"]
    text = yaml.safe_dump(policies)
    assert len(policies) == 4
    for owner in ("hymcache-operator", "hymcache-plugin"):
        assert f"system:serviceaccount:hymcache:{pods[owner]['serviceAccountName']}" in text


def test_no_appliance_unless_asked_for(helm: Helm) -> None:
    assert not [b for b in render(helm) if "appliance" in b["metadata"]["name"] or b["kind"] == "CXLFabric"]


def test_uninstall_hooks_follow_the_values(helm: Helm) -> None:
    bodies = render(helm, "--set", "uninstall.check=false", "--set", "uninstall.deleteCRDs=false")
    jobs = {b["metadata"]["name"]: b["spec"]["template"]["spec"]["containers"][0] for b in bodies if b["kind"] == "Job"}
    assert set(jobs) == {"hymcache-crds", "hymcache-uninstall-clean"}
    assert jobs["hymcache-uninstall-clean"]["args"] == ["clean"]


@pytest.mark.parametrize(
    ("owner", "setting", "variable", "value"),
    [
        ("operator", "leaseSeconds", "HYMCACHE_OPERATOR_LEASE_SECONDS", 20),
        ("operator", "fabricPrefix", "HYMCACHE_OPERATOR_FABRIC_PREFIX", "blue-"),
        ("operator", "renewSeconds", "HYMCACHE_OPERATOR_RENEW_SECONDS", 2.5),
        ("plugin", "prepareWaitSeconds", "HYMCACHE_DRA_PREPARE_WAIT_SECONDS", 30),
    ],
)
def test_setting_reaches_the_program_under_the_name_it_reads(
    owner: str, setting: str, variable: str, value: object, helm: Helm
) -> None:
    bodies = render(helm, "--set-json", f"{owner}.settings.{setting}={json.dumps(value)}")
    pod = next(b for b in bodies if b["kind"] in {"Deployment", "DaemonSet"} and b["metadata"]["name"].endswith(owner))
    environment = {e["name"]: e.get("value") for e in pod["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert environment[variable] == str(value)


def test_setting_out_of_its_limits_is_refused(helm: Helm) -> None:
    done = helm("template", "release", CHART, "--set", "plugin.settings.prepareWaitSeconds=60")
    assert done.returncode != 0
    assert "prepareWaitSeconds" in done.stderr
