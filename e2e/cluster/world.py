"""The cluster as its tests see it: the API, the pods of an example, their memory, what is left on nodes and fabric."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from cluster import install, kind
from cluster.settings import KUBECONFIG, NAMESPACE, RELEASE, ROOT, RUN
from controlplane.api import CLAIM, POD, Api, Kind, Object
from controlplane.waiting import wait

REGION = Kind("hymcache.io/v1alpha1", "CXLRegion")
BLADE = Kind("hymcache.io/v1alpha1", "CXLBlade")
CXLNODE = Kind("hymcache.io/v1alpha1", "CXLNode")
DEPLOYMENT = Kind("apps/v1", "Deployment")
SECRET = Kind("v1", "Secret")
SERVICE = Kind("v1", "Service")
EXAMPLES = ROOT / "examples"
PROGRAMS = {"operator": "operator", "plugin": "dra-plugin"}
"""What runs in the pods of our parts: the names after `hymcache-`."""
LEFTOVERS = """find /var/run/cdi -type f -name '*hymcache*'
find /var/lib/kubelet/plugins/hymcache.io -mindepth 2 -path '*/claims/*' -o -mindepth 2 -path '*/pods/*'
true"""
COMPLETE = """
import json, time, urllib.request
headers = {"Content-Type": "application/json"}
request = urllib.request.Request("http://127.0.0.1:8000/v1/completions", (%s).encode(), headers)
started, first, lines = time.monotonic(), None, []
with urllib.request.urlopen(request, timeout=110) as reply:
    for line in reply:
        if first is None and line.startswith(b"data: {"):
            first = time.monotonic() - started
        lines.append(line.decode())
print(json.dumps({"first": first, "lines": lines}))
"""
"""Asks the server of the pod it runs in; prints the seconds to the first token and the stream's lines."""


@dataclass(frozen=True)
class Completion:
    """One answer of an engine.

    Attributes:
        text: what it wrote.
        prompt_tokens: length of the prompt, in tokens.
        cached_tokens: of those, how many it did not compute, as it says itself.
        first_seconds: time to the first token.
    """

    text: str
    prompt_tokens: int
    cached_tokens: int
    first_seconds: float


class World:
    """A running cluster with HyMCache."""

    def __init__(self, api: Api) -> None:
        self.api = api

    @classmethod
    def connect(cls, discovery_cache: Path) -> Self:
        """The admin's view of the test cluster."""
        return cls(Api.from_kubeconfig(KUBECONFIG, discovery_cache))

    # --- objects -----------------------------------------------------------------------------------------------------
    def pods(self, label: str, namespace: str = "default") -> list[Object]:
        """Pods with a label that are not on their way out, by node."""
        found = [p for p in self.api.list(POD, namespace, labels=label) if "deletionTimestamp" not in p["metadata"]]
        return sorted(found, key=lambda pod: pod["spec"].get("nodeName", ""))

    def ready_pods(self, label: str, count: int, *, namespace: str = "default", seconds: float = 300) -> list[Object]:
        """Wait until so many pods with a label are ready; a container that keeps crashing ends the wait."""

        def probe() -> list[Object] | None:
            found = self.pods(label, namespace)
            for pod in found:
                for status in pod["status"].get("containerStatuses", []):
                    waiting = status.get("state", {}).get("waiting", {}).get("reason")
                    assert waiting != "CrashLoopBackOff", f"pod {pod['metadata']['name']} keeps crashing"
            ready = [p for p in found if is_ready(p)]
            return found if len(ready) == len(found) == count else None

        return wait(f"{count} ready pods with {label}", probe, seconds=seconds, pause=1)

    def region_of(self, claim: str, namespace: str = "default") -> Object | None:
        """The region of an allocated claim, or None."""
        results = self.api.get(CLAIM, claim, namespace).get("status", {}).get("allocation", {}).get("devices", {})
        shares = [result.get("shareID") for result in results.get("results", [])]
        return self.api.find(REGION, f"r-{shares[0]}") if shares else None

    def allocated(self, claim: str, namespace: str = "default") -> bool:
        """Whether a claim has an allocation."""
        return bool(self.api.get(CLAIM, claim, namespace).get("status", {}).get("allocation"))

    def hosts_ready(self, claim: str, namespace: str = "default") -> set[str]:
        """Nodes on which the Ready region of a claim is attached and ready; empty while the region is not Ready."""
        body = self.region_of(claim, namespace)
        status = body.get("status", {}) if body else {}
        if status.get("phase") != "Ready":
            return set()
        attached = {a["node"] for a in status.get("attachments", []) if a["phase"] == "Attached"}
        return attached & {h["node"] for h in status.get("hosts", []) if h.get("state") == "Ready"}

    def delete(self, example: str) -> None:
        """Delete an example's objects; what is gone already is fine."""
        kind.kubectl("delete", "--filename", EXAMPLES / example, "--ignore-not-found", "--wait=true", seconds=180)

    def apply(self, example: str) -> None:
        """Apply an example's manifests as they stand."""
        kind.kubectl("apply", "--filename", EXAMPLES / example)

    def scale(self, deployment: str, replicas: int, namespace: str = "default") -> None:
        """Change the number of a deployment's pods."""
        self.api.merge(DEPLOYMENT, deployment, {"spec": {"replicas": replicas}}, namespace)

    # --- pods --------------------------------------------------------------------------------------------------------
    def python(self, pod: Object, code: str) -> str:
        """Run Python in a pod, as its user; standard output."""
        meta = pod["metadata"]
        return kind.kubectl("--namespace", meta["namespace"], "exec", meta["name"], "--", "python3", "-c", code)

    def complete(self, pod: Object, prompt: str, tokens: int = 16) -> Completion:
        """Ask an engine, from its own pod, for a greedy completion."""
        body = {
            "model": "SmolLM2-135M-Instruct",
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "seed": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        answer = json.loads(self.python(pod, COMPLETE % json.dumps(json.dumps(body))))
        chunks = [json.loads(line[6:]) for line in answer["lines"] if line.startswith("data: {")]
        usage = next(c["usage"] for c in reversed(chunks) if c.get("usage"))
        return Completion(
            text="".join(choice["text"] for c in chunks for choice in c["choices"]),
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            first_seconds=answer["first"],
        )

    def metric(self, pod: Object, name: str) -> float:
        """Sum of a counter of an engine over its labels; 0 when it has none yet."""
        url = f"http://{pod['status']['podIP']}:8000/metrics"
        text = kind.on_node(pod["spec"]["nodeName"], "curl", "--silent", "--fail", url)
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.split("{")[0].split()[0:1] == [name])

    # --- what is left ------------------------------------------------------------------------------------------------
    def left_on_nodes(self) -> dict[str, list[str]]:
        """CDI files, sockets and checkpoint entries of ours per worker."""
        return {node: kind.on_node(node, "bash", "-c", LEFTOVERS).split("\n")[:-1] for node in kind.workers()}

    def appliance(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Call the appliance's admin API, from a worker; the answer's JSON."""
        data = self.api.get(SECRET, "hymcache-appliance", NAMESPACE)["data"]
        user, password = (base64.b64decode(data[key]).decode() for key in ("username", "password"))
        address = self.api.get(SERVICE, "hymcache-appliance", NAMESPACE)["spec"]["clusterIP"]
        words = ["curl", "--silent", "--show-error", "--fail", "--user", f"{user}:{password}", "--request", method]
        if body is not None:
            words += ["--header", "Content-Type: application/json", "--data", json.dumps(body)]
        answer = kind.on_node(kind.workers()[0], *words, f"http://{address}:8000/admin/v1/{path}")
        return json.loads(answer) if answer else None

    def on_fabric(self) -> list[Any]:
        """Regions that the appliance has."""
        found = self.appliance("regions")
        return list(found["regions"] if isinstance(found, dict) else found)

    def taken_bytes(self) -> int:
        """Bytes of the blade that are in use, as its CXLBlade says."""
        (blade,) = self.api.list(BLADE)
        return int(blade["status"]["bytes"]) - int(blade["status"]["freeBytes"])

    def signal(self, owner: str, name: str) -> None:
        """Send a signal to the processes of one of our parts, on all nodes."""
        command = f"pkill --signal {name} --full '/bin/[h]ymcache-{PROGRAMS[owner]}' || true"
        for node in kind.workers():
            kind.on_node(node, "bash", "-c", command)

    def kill(self, owner: str) -> None:
        """Kill the processes of one of our parts at once (SIGKILL); other pods come for theirs, without a back-off."""
        self.signal(owner, "KILL")
        selector = f"app.kubernetes.io/name=hymcache-{owner}"
        words = ["delete", "pods", "--selector", selector, "--grace-period=0", "--force", "--wait=false"]
        kind.kubectl("--namespace", NAMESPACE, *words)

    def plugin_on(self, node: str) -> Object:
        """The pod of the plugin on a node."""
        pods = self.pods("app.kubernetes.io/name=hymcache-plugin", NAMESPACE)
        return next(pod for pod in pods if pod["spec"]["nodeName"] == node)

    def seen_by(self, pod: Object) -> Api:
        """The API as a pod's service account sees it, with a token that names the pod and its node."""
        token = self.api.mint_token(pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"], pod)
        cluster = yaml.safe_load(KUBECONFIG.read_text())["clusters"][0]["cluster"]
        authority = RUN / "ca.crt"
        authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        return Api.with_token(cluster["server"], authority, token, RUN / "discovery.json")

    def parts_ready(self) -> None:
        """Wait until operator, plugins and appliance are ready."""
        for owner, count in (("plugin", len(kind.workers())), ("operator", 1), ("appliance", 1)):
            self.ready_pods(f"app.kubernetes.io/name=hymcache-{owner}", count, namespace=NAMESPACE, seconds=180)

    def wait_clean(self) -> None:
        """Wait until neither the fabric nor a node has anything of a region."""
        wait("the regions to be gone", lambda: not self.api.list(REGION), seconds=120, pause=1)
        wait("the fabric to be empty", lambda: self.on_fabric() == [], seconds=60, pause=1)
        wait("the nodes to be clean", lambda: not any(self.left_on_nodes().values()), seconds=60, pause=1)

    def uninstall(self) -> subprocess.CompletedProcess[str]:
        """`helm uninstall`, whatever comes of it."""
        words = ["uninstall", RELEASE, "--namespace", NAMESPACE, "--kubeconfig", str(KUBECONFIG), "--wait"]
        helm: list[str | Path] = [kind.program("helm"), *words]
        environment = {**os.environ, **install.HELM_FOLDERS}
        return subprocess.run(helm, capture_output=True, text=True, check=False, timeout=300, env=environment)


def is_ready(pod: Object) -> bool:
    """Whether a pod's Ready condition is true."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def small_claim(name: str) -> Object:
    """A claim of 1 GiB in the default namespace."""
    request = {"deviceClassName": "hymcache-shared", "capacity": {"requests": {"memory": "1Gi"}}}
    return {
        "apiVersion": CLAIM.api_version,
        "kind": CLAIM.name,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "region", "exactly": request}]}},
    }


def probe_pod(name: str, *, claim: str = "", node: str = "", labels: dict[str, str] | None = None) -> Object:
    """A pod of the engine's image that sleeps, labelled `app: NAME`; with a claim and on a node when they are named."""
    container: Object = {
        "name": "main",
        "image": "hymcache/engine:0.1.0",
        "command": ["sleep", "3600"],
        "securityContext": {"runAsUser": 65532},
    }
    spec: Object = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if claim:
        spec["resourceClaims"] = [{"name": "region", "resourceClaimName": claim}]
        container["resources"] = {"claims": [{"name": "region"}]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    meta = {"name": name, "namespace": "default", "labels": {"app": name, **(labels or {})}}
    return {"apiVersion": POD.api_version, "kind": POD.name, "metadata": meta, "spec": spec}
