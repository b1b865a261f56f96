"""The operator as a process with the rights of its service account, and everything it needs to be installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hymcache.crds.classes import device_classes
from hymcache.crds.policies import policies
from hymcache.crds.rbac import Accounts, roles
from hymcache.crds.render import KINDS, crd

from controlplane.api import Api, ApiException, Kind, Object
from controlplane.appliances import PASSWORD, USER, Appliance
from controlplane.manifests import apply_all
from controlplane.plane import ControlPlane
from controlplane.process import Process
from controlplane.waiting import wait
from controlplane.workloads import claim

ACCOUNTS = Accounts(namespace="hymcache", operator="hymcache-operator", plugin="hymcache-plugin")
FABRIC, BLADE, REGION, CXLNODE = (Kind("hymcache.io/v1alpha1", kind.KIND) for kind in KINDS)
SECRET = Kind("v1", "Secret")
QUICK = {
    "renew-seconds": "1",
    "health-address": "127.0.0.1:0",
    "log-format": "text",
    "heartbeat-stale-seconds": "8",
    "fence-seconds": "5",
    "orphan-grace-seconds": "2",
}
"""Settings of a test: times that a test can wait for, on a machine that does other things too."""


def install(plane: ControlPlane) -> None:
    """CRDs, classes, RBAC and policies, as the chart carries them."""
    accounts: list[Object] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": ACCOUNTS.namespace}}
        for name in (ACCOUNTS.operator, ACCOUNTS.plugin)
    ]
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ACCOUNTS.namespace}}
    apply_all(plane.api, [namespace, *accounts])
    apply_all(plane.api, [crd(kind) for kind in KINDS])
    apply_all(plane.api, [*device_classes(), *roles(ACCOUNTS), *policies(ACCOUNTS)])
    wait("the policies to be enforced", lambda: _enforced(plane.api))


def _enforced(api: Api) -> bool:
    """Whether the last one of the policies refuses: the API server reads them in order, about once a second."""
    two = claim("two-devices", "1Gi", namespace="default", count=2)
    try:
        api.create(two, dry_run=True)
    except ApiException as error:
        return "count 1" in str(error.body)
    return False


class Operator:
    """One operator process under the operator's service account."""

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        *,
        lease: str,
        settings: Mapping[str, str] | None = None,
        entry: str = "hymcache.operator.main:main",
        name: str = "operator",
        env: Mapping[str, str] | None = None,
    ) -> None:
        token = plane.token(ACCOUNTS.namespace, ACCOUNTS.operator)
        kubeconfig = plane.kubeconfig(f"{lease}-{name}", token)
        options = {**QUICK, "kubeconfig": str(kubeconfig), "lease-name": lease, "identity": lease, **(settings or {})}
        argv = [f"--{key}={value}" for key, value in options.items()]
        self.process = Process(name, argv, folder / f"{name}.log", dict(env or {}), entry)

    def start(self) -> None:
        """Start it, or start it again."""
        self.process.start()

    @property
    def log(self) -> str:
        """All that it has logged."""
        return self.process.log.read_text() if self.process.log.exists() else ""


def add_fabric(api: Api, appliance: Appliance, **spec: object) -> str:
    """Make the Secret and the CXLFabric of an appliance; returns the fabric's name. Again: tell it the new address."""
    name = f"fabric-{appliance.blade}"
    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": ACCOUNTS.namespace},
        "stringData": {"username": USER, "password": PASSWORD},
    }
    fabric: Object = {
        "apiVersion": "hymcache.io/v1alpha1",
        "kind": "CXLFabric",
        "metadata": {"name": name},
        "spec": {
            "backend": "emulated",
            "endpoint": appliance.url,
            "credentialsSecret": name,
            "pollIntervalSeconds": 2,
            "scrub": "Fabric",
            **spec,
        },
    }
    apply_all(api, [secret, fabric])
    return name


def remove_all(api: Api) -> None:
    """Take every object of ours away, finalizers too: the end of a test whose operator is stopped."""
    for kind in (REGION, FABRIC, BLADE, CXLNODE):
        for body in api.list(kind):
            if body["metadata"].get("finalizers"):
                api.merge(kind, body["metadata"]["name"], {"metadata": {"finalizers": None}})
            api.delete(kind, body["metadata"]["name"])
    wait("objects of ours to go", lambda: not any(api.list(kind) for kind in (REGION, FABRIC, BLADE, CXLNODE)))
