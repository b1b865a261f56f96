"""A real Kubernetes control plane without a cluster, for tests that need a true API server and scheduler.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler run as ordinary processes on loopback, in one folder,
with RBAC on and no kubelet. Nodes are objects that nobody serves; a pod that the scheduler has bound stays Pending
until the test says otherwise (`workloads`). Used by `e2e/controlplane/tests` and by the tests of the operator and the
plugin; `fixtures` has what their conftest.py imports.
"""

from controlplane.api import CLAIM, CLASS, CRD, EVENT, NAMESPACE, NODE, POD, SLICE, Api, ApiException, Kind
from controlplane.plane import ControlPlane
from controlplane.waiting import wait

__all__ = [
    "CLAIM",
    "CLASS",
    "CRD",
    "EVENT",
    "NAMESPACE",
    "NODE",
    "POD",
    "SLICE",
    "Api",
    "ApiException",
    "ControlPlane",
    "Kind",
    "wait",
]
