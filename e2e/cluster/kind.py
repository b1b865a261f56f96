"""The cluster itself: kind with our node image, our network, our shared folder of cables."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster import containers
from cluster.command import run, step
from cluster.node_image import go_programs, node_archive
from cluster.settings import APPLIANCE, APPLIANCE_ON_NODE, CLUSTER, KUBECONFIG, KUBERNETES, NODE_IMAGE, RUN

WORKERS = 2
READY_SECONDS = 180

KUBELET_PATCH = """\
kind: KubeletConfiguration
failCgroupV1: false
"""
ETCD_PATCH = """\
kind: ClusterConfiguration
apiVersion: kubeadm.k8s.io/v1beta4
etcd:
  local:
    extraArgs:
      - name: unsafe-no-fsync
        value: "true"
"""


@dataclass(frozen=True)
class Mount:
    """A folder of this machine that every node gets."""

    host: Path
    node: str
    read_only: bool = False


def configuration(image: str, mounts: tuple[Mount, ...]) -> dict[str, Any]:
    """kind's configuration: one control plane, two workers, the same image and mounts on all."""
    extra = [{"hostPath": str(m.host), "containerPath": m.node, "readOnly": m.read_only} for m in mounts]
    node = {"image": image, "extraMounts": extra}
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": CLUSTER,
        "networking": {"kubeProxyMode": "nftables", "podSubnet": "10.244.0.0/16"},
        # A machine with cgroup v1 only is refused by the kubelet since 1.35 unless told otherwise. The data is thrown
        # away with the cluster, so etcd need not wait for the disk.
        "kubeadmConfigPatches": [KUBELET_PATCH, ETCD_PATCH],
        "nodes": [{"role": "control-plane", **node}, *({"role": "worker", **node} for _ in range(WORKERS))],
    }


NODE_CHANGES = (
    'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]',
    "ENV container=docker",
    "STOPSIGNAL SIGRTMIN+3",
)
"""What kind's own image says (kind images/base/Dockerfile)."""


@functools.cache
def program(name: str) -> Path:
    """kind, helm or kubectl, compiled here; verified at the first use, since that takes a second."""
    return go_programs({"kubectl": "control-plane", "helm": "helm"}.get(name, "cluster"))[0] / name


def kind(*arguments: str | Path, seconds: float = 300) -> str:
    """Run kind; standard output."""
    return run([program("kind"), *arguments], env=containers.environment(), seconds=seconds)


def kubectl(*arguments: str | Path, seconds: float = 120) -> str:
    """Run kubectl against the cluster; standard output."""
    where = (f"--kubeconfig={KUBECONFIG}", f"--cache-dir={RUN / 'kubectl'}")
    return run([program("kubectl"), *where, *arguments], seconds=seconds)


def node_image() -> str:
    """Reference of the node image in the engine's storage: the user's, or ours, imported when it is missing."""
    if NODE_IMAGE:
        return NODE_IMAGE
    archive = node_archive()
    reference = f"localhost/{CLUSTER}-node:{archive.parent.name.rpartition('-')[2]}"
    containers.import_once(archive, reference, NODE_CHANGES)
    return reference


def up(mounts: tuple[Mount, ...] = ()) -> None:
    """Create the cluster and wait until it serves; what an earlier run left is removed first."""
    down()
    nodes.cache_clear()
    image = node_image()
    Path("/lib/modules").mkdir(exist_ok=True)  # kind mounts it; a kernel with all built in has none
    APPLIANCE.mkdir(parents=True, exist_ok=True)
    containers.make_network()
    config = RUN / "kind.yaml"
    config.write_text(yaml.safe_dump(configuration(image, (Mount(APPLIANCE, APPLIANCE_ON_NODE), *mounts))))
    with step(f"creating the cluster {CLUSTER} ({1 + WORKERS} nodes, Kubernetes {KUBERNETES})"):
        kind("create", "cluster", "--config", config, "--kubeconfig", KUBECONFIG)
    with step("waiting for the nodes and for DNS"):
        kubectl(
            "wait", "--for=condition=Ready", "node", "--all", f"--timeout={READY_SECONDS}s", seconds=READY_SECONDS + 5
        )
        kubectl("-n", "kube-system", "rollout", "status", "deploy/coredns", f"--timeout={READY_SECONDS}s", seconds=185)


def down() -> None:
    """Remove the cluster, its containers, network and folders, and nothing else. Nothing to remove is fine."""
    if nodes_left := containers.containers():
        with step(f"removing the cluster {CLUSTER}"):
            containers.remove(nodes_left)
    containers.remove_network()
    containers.give_back()


@functools.cache
def nodes() -> list[str]:
    """Names of the node containers; they are the names of the nodes too. Read once for a cluster."""
    return sorted(kind("get", "nodes", "--name", CLUSTER).split())


def on_node(node: str, *command: str, stdin: Path | None = None, seconds: float = 300) -> str:
    """Run a command in a node; standard output."""
    options = ["--interactive"] if stdin else []
    return containers.call("exec", *options, node, *command, stdin=stdin, seconds=seconds)


def workers() -> list[str]:
    """Names of the nodes that run workloads."""
    return [node for node in nodes() if "control-plane" not in node]


def load(archive: Path) -> None:
    """Import an archive of images into every worker's container runtime, all workers at once."""

    def load_one(node: str) -> None:
        on_node(node, "ctr", "--namespace=k8s.io", "images", "import", "-", stdin=archive)

    with ThreadPoolExecutor() as pool:
        list(pool.map(load_one, workers()))


def give_every_container(paths: Sequence[str], variables: Mapping[str, str]) -> None:
    """Let every container of the workers see folders of its node, read-only, at the same paths, and have variables.

    This is how a test cluster gets what an image would carry elsewhere (gigabytes of a vLLM environment): the manifests
    stay those of a real cluster. The containers that run already are not touched.
    """
    mounts = [{"destination": p, "source": p, "type": "bind", "options": ["rbind", "ro"]} for p in paths]
    environment = [f"{name}={value}" for name, value in variables.items()]
    spec = "/etc/containerd/cri-base.json"
    script = f"""set -e
mkdir -p {" ".join(paths)}
jq --argjson mounts '{json.dumps(mounts)}' --argjson env '{json.dumps(environment)}' \
  '.mounts += $mounts | .process.env += $env' {spec} > {spec}.new
mv {spec}.new {spec}
systemctl restart containerd"""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: on_node(node, "bash", "-c", script), workers()))
