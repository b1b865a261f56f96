"""HyMCache on the cluster: nodes prepared as machines with a cabled appliance, images loaded, the chart installed."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from cluster import images, kind
from cluster.command import CommandError, run, step
from cluster.settings import (
    APPLIANCE_ON_NODE,
    BOOT_ID_ON_NODE,
    CABLES_ON_NODE,
    CHART,
    KUBECONFIG,
    NAMESPACE,
    RELEASE,
    RUN,
)

ROLLOUT_SECONDS = 120
CAPACITY = "8Gi"
WORKERS_ONLY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"}]}
            ]
        }
    }
}
"""The control plane is not cabled."""
HELM_FOLDERS = dict.fromkeys(
    ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR"), str(RUN / "helm")
)

PREPARE = """set -eu
mkdir -p {appliance}/{uuid} {cables} $(dirname {boot_id})
mountpoint -q {cables} || mount --bind {appliance}/{uuid} {cables}
cat /proc/sys/kernel/random/uuid > {boot_id}"""


def system_uuids() -> dict[str, str]:
    """System UUIDs of the workers by node name, as the kubelets report them."""
    found = json.loads(kind.kubectl("get", "nodes", "--output=json"))["items"]
    uuids = {node["metadata"]["name"]: node["status"]["nodeInfo"]["systemUUID"] for node in found}
    return {name: uuids[name] for name in kind.workers()}


def prepare_node(node: str, system_uuid: str) -> None:
    """What a machine has and a container lacks: a cable of its own, and a boot id. Again after every restart."""
    names = {"appliance": APPLIANCE_ON_NODE, "cables": CABLES_ON_NODE, "boot_id": BOOT_ID_ON_NODE}
    kind.on_node(node, "bash", "-c", PREPARE.format(uuid=system_uuid, **names))


def helm(*words: str | Path, seconds: float = 300) -> str:
    """Run helm against the cluster, in the release's namespace; standard output."""
    where: list[str | Path] = ["--kubeconfig", KUBECONFIG, "--namespace", NAMESPACE]
    return run([kind.program("helm"), *words, *where], env=HELM_FOLDERS, seconds=seconds)


def values() -> Path:
    """Values file of this cluster: the emulated appliance, cabled to the two workers."""
    hosts = [{"name": name, "systemUUID": system_uuid} for name, system_uuid in system_uuids().items()]
    path = RUN / "values.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "plugin": {"bootIdFile": BOOT_ID_ON_NODE, "cableDir": CABLES_ON_NODE, "affinity": WORKERS_ONLY},
                "appliance": {
                    "enabled": True,
                    "capacity": CAPACITY,
                    "cableRoot": APPLIANCE_ON_NODE,
                    "hosts": hosts,
                },
            }
        )
    )
    return path


def install() -> None:
    """Load the images, prepare the nodes, install the chart, wait until all parts are ready."""
    archive = images.archive()
    with step("loading the images into the workers"):
        kind.load(archive)
    for node, system_uuid in system_uuids().items():
        prepare_node(node, system_uuid)
    if NAMESPACE not in kind.kubectl("get", "namespaces", "--output=name"):
        kind.kubectl("create", "namespace", NAMESPACE)
    kind.kubectl("label", "--overwrite", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")
    apply_chart()


def apply_chart() -> None:
    """Install or upgrade the release, wait until all parts are ready."""
    with step("installing the chart"):
        helm("upgrade", "--install", RELEASE, CHART, "--values", values())
    wait_ready()


def wait_ready() -> None:
    """Wait until operator, plugins and appliance serve."""
    with step("waiting for operator, plugin and appliance"):
        for part in ("deployment/hymcache-appliance", "deployment/hymcache-operator", "daemonset/hymcache-plugin"):
            words = ["rollout", "status", part, f"--timeout={ROLLOUT_SECONDS}s"]
            try:
                kind.kubectl("--namespace", NAMESPACE, *words, seconds=ROLLOUT_SECONDS + 5)
            except CommandError as error:
                pods = kind.kubectl("--namespace", NAMESPACE, "get", "pods", "--output=wide")
                raise CommandError(f"{part} is not ready after {ROLLOUT_SECONDS} s: {error}\n{pods}") from error
