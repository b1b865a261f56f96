"""The end of an installation: nothing of it is left in the cluster. Runs last: it takes HyMCache away."""

from __future__ import annotations

import os

import pytest

from cluster import containers, install, kind, traces
from cluster.settings import NAMESPACE
from cluster.world import REGION, World
from controlplane.api import NODE
from controlplane.waiting import wait

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

CLUSTER_KINDS = "crds,deviceclasses,resourceslices,validatingadmissionpolicies,clusterroles,clusterrolebindings"
NAMESPACED_KINDS = "deployments,daemonsets,jobs,pods,services,secrets,leases,serviceaccounts,roles,rolebindings"


def left() -> list[str]:
    found = kind.kubectl("get", CLUSTER_KINDS, "--output=name").split()
    found += kind.kubectl("--namespace", NAMESPACE, "get", NAMESPACED_KINDS, "--output=name").split()
    return [name for name in found if "hymcache" in name]


def test_uninstall_leaves_nothing_behind_and_an_installation_works_again(world: World) -> None:
    wait("all regions to be gone", lambda: not world.api.list(REGION), seconds=120, pause=1)
    done = world.uninstall()
    assert done.returncode == 0, done.stdout + done.stderr
    wait("the pods to be gone", lambda: not left(), seconds=90, pause=2)
    labels = {key for node in world.api.list(NODE) for key in node["metadata"]["labels"]}
    assert not {key for key in labels if key.startswith("hymcache.io/")}
    install.apply_chart()
    world.parts_ready()


def test_nothing_of_the_cluster_is_left_on_the_machine(world: World) -> None:
    """Processes, mounts, network namespaces, interfaces, firewall chains, files in /run, /tmp, /dev/shm and at home."""
    if os.environ.get("E2E_KEEP"):
        pytest.skip("E2E_KEEP: the cluster stays")
    before = containers.before()
    assert any(name.startswith("process ") for name in traces.seen() - before), "the cluster is not seen at all"
    kind.down()
    wait("the machine to be clean", lambda: not (traces.seen() - before) or _report(traces.seen() - before))


def _report(left: set[str]) -> bool:
    raise LookupError(sorted(left))
