"""The end of an installation: nothing of it is left in the cluster. Runs last: it takes HyMCache away."""

from __future__ import annotations

import pytest

from cluster import install, kind
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
