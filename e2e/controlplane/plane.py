"""Start and stop of the control plane: five files, four processes, one folder."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from controlplane import credentials, programs
from controlplane.api import NAMESPACE, POD, SERVICE_ACCOUNT, Api, Object
from controlplane.process import Process
from controlplane.settings import Settings
from controlplane.waiting import wait

START_ATTEMPTS = 3


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now; another process may take one before it is used."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler under one folder. A context manager.

    Attributes:
        folder: everything it writes; logs are `folder/*.log`.
        server: URL of the API server. The certificate that proves it is `ca`.
        api: the admin's view.
        etcd, apiserver, manager, scheduler: the processes; stop, kill or SIGSTOP them to see what others do about it,
            and `start()` them again on the same ports.
    """

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.folder = folder
        self.settings = settings or Settings()
        folder.mkdir(parents=True, exist_ok=True)
        self.credentials = credentials.create(folder / "credentials")
        self.ca = folder / "apiserver" / "apiserver.crt"
        self._views: list[Api] = []

    # --- life --------------------------------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        for attempt in range(START_ATTEMPTS):
            self._configure(*free_ports(3))
            try:
                self._start()
            except BaseException as error:
                self.stop()
                taken = "address already in use" in self.etcd.tail() + self.apiserver.tail()
                if attempt + 1 == START_ATTEMPTS or not taken or not isinstance(error, Exception):
                    raise
            else:
                return self
        raise AssertionError("unreachable")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End all four; what they wrote stays in the folder. Nothing needs a graceful end: the data is thrown away."""
        for view in self._views:
            view.close()
        for process in (self.scheduler, self.manager, self.apiserver, self.etcd):
            process.kill()

    def _start(self) -> None:
        seconds = self.settings.ready_seconds
        self.etcd.start()
        self.apiserver.start()
        wait(
            "the API server's certificate",
            self._has_certificate,
            seconds=seconds,
        )
        self.api = self.api_as(self.credentials.tokens[credentials.ADMIN])
        wait("the API server to be ready", self._ready, seconds=seconds)
        for name, process in ((credentials.MANAGER, self.manager), (credentials.SCHEDULER, self.scheduler)):
            self.kubeconfig(name)
            process.start()
        wait("the controllers to run", lambda: self.api.find(SERVICE_ACCOUNT, "default", "default"), seconds=seconds)
        for process in (self.manager, self.scheduler):
            process.require_running()

    def _has_certificate(self) -> bool:
        self.apiserver.require_running()
        return self.ca.exists()

    def _ready(self) -> bool:
        for process in (self.etcd, self.apiserver):
            process.require_running()
        return self.api.raw("/readyz") == "ok"

    # --- identities --------------------------------------------------------------------------------------------------
    def api_as(self, token: str) -> Api:
        """The API server as the owner of a token sees it."""
        view = Api.with_token(self.server, self.ca, token, self.folder / "discovery.json")
        self._views.append(view)
        return view

    def kubeconfig(self, user: str = credentials.ADMIN, token: str | None = None) -> Path:
        """A kubeconfig file of the admin, of a component, or of whoever owns `token`."""
        return self.credentials.kubeconfig(user, self.server, self.ca, token)

    def token(self, namespace: str, service_account: str, *, node: str | None = None) -> str:
        """A real service-account token, as a pod of that account gets it; account and namespace are made when missing.

        Args:
            namespace: of the account.
            service_account: its name.
            node: name of an existing Node object: the token is bound to a pod there, and the API server sees the node
                in the extra `authentication.kubernetes.io/node-name`, as with a DaemonSet's pod.
        """
        if self.api.find(NAMESPACE, namespace) is None:
            self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        account = {"name": service_account, "namespace": namespace}
        if self.api.find(SERVICE_ACCOUNT, **account) is None:
            self.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        pod = self._bound_pod(namespace, service_account, node) if node else None
        return self.api.mint_token(namespace, service_account, pod)

    def _bound_pod(self, namespace: str, service_account: str, node: str) -> Object:
        name = f"{service_account}-on-{node}"
        spec = {
            "serviceAccountName": service_account,
            "nodeName": node,
            "containers": [{"name": "main", "image": "none"}],
        }
        meta = {"name": name, "namespace": namespace}
        return self.api.find(POD, **meta) or self.api.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        )

    # --- command lines -----------------------------------------------------------------------------------------------
    def _configure(self, etcd_port: int, peer_port: int, api_port: int) -> None:
        self.server = f"https://127.0.0.1:{api_port}"
        store = f"http://127.0.0.1:{etcd_port}"
        self.etcd = self._process("etcd", self._etcd(store, f"http://127.0.0.1:{peer_port}"))
        self.apiserver = self._process("kube-apiserver", self._apiserver(store, api_port))
        self.manager = self._process("kube-controller-manager", self._manager())
        self.scheduler = self._process("kube-scheduler", self._scheduler())

    def _process(self, name: str, arguments: dict[str, str]) -> Process:
        gates = ",".join(f"{gate}={str(on).lower()}" for gate, on in self.settings.feature_gates.items())
        if gates and name != "etcd":
            arguments = {**arguments, "feature-gates": gates}
        argv = [str(programs.folder("control-plane") / name), *(f"--{key}={value}" for key, value in arguments.items())]
        return Process(name, argv, self.folder / f"{name}.log")

    def _etcd(self, store: str, peer: str) -> dict[str, str]:
        return {
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": store,
            "advertise-client-urls": store,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }

    def _apiserver(self, store: str, port: int) -> dict[str, str]:
        return {
            "etcd-servers": store,
            "bind-address": "127.0.0.1",
            "secure-port": str(port),
            "cert-dir": str(self.ca.parent),
            "token-auth-file": str(self.credentials.token_file),
            "authorization-mode": "Node,RBAC",
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": str(self.credentials.key_file),
            "service-account-signing-key-file": str(self.credentials.key_file),
            "service-cluster-ip-range": "10.96.0.0/16",
            "endpoint-reconciler-type": "none",
            "allow-privileged": "true",
            # Nobody runs the node lifecycle controller, which would take the not-ready taint off a new node again.
            "disable-admission-plugins": "TaintNodesByCondition",
            "profiling": "false",
        }

    def _manager(self) -> dict[str, str]:
        return {
            "kubeconfig": str(self.credentials.folder / "system_kube-controller-manager.kubeconfig"),
            "controllers": ",".join(self.settings.controllers),
            "use-service-account-credentials": "true",
            "service-account-private-key-file": str(self.credentials.key_file),
            "root-ca-file": str(self.ca),
            "leader-elect": "false",
            "secure-port": "0",
        }

    def _scheduler(self) -> dict[str, str]:
        config = self.folder / "scheduler.json"
        version = "kubescheduler.config.k8s.io/v1"
        profile: Object = {"schedulerName": "default-scheduler"}
        if self.settings.binding_timeout_seconds:
            timeout = {"bindingTimeout": f"{self.settings.binding_timeout_seconds}s"}
            arguments = {"apiVersion": version, "kind": "DynamicResourcesArgs", **timeout}
            profile["pluginConfig"] = [{"name": "DynamicResources", "args": arguments}]
        body = {
            "apiVersion": version,
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(self.credentials.folder / "system_kube-scheduler.kubeconfig"),
            },
            "leaderElection": {"leaderElect": False},
            "profiles": [profile],
        }
        config.write_text(json.dumps(body))
        return {"config": str(config), "secure-port": "0"}
