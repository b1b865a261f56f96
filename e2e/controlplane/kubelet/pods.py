"""Pods of one node on a real API server: prepared and said to run, unprepared and removed, as a kubelet does it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from controlplane import workloads
from controlplane.api import CLAIM, POD, Api, ApiException, Object
from controlplane.kubelet.kubelet import ClaimKey, Kubelet, NotPreparedError
from controlplane.kubelet.runtime import Container, CreateContainerError, Runtime

POLL_SECONDS = 0.1


@dataclass
class Running:
    """One pod on the node. `containers` is what its container got, once it was created; `events` what went wrong."""

    pod: Object
    container: Container | None = None
    events: list[str] = field(default_factory=list)
    next_sync: float = 0.0
    ending: bool = False


class PodRunner:
    """Runs every pod bound to `node` until closed. A failed Prepare is tried again after `retry_seconds`.

    A real kubelet waits 60-90 s for that; tests that do not measure it wait less.
    """

    def __init__(self, api: Api, node: str, kubelet: Kubelet, runtime: Runtime, *, retry_seconds: float = 2.0) -> None:
        self.pods: dict[str, Running] = {}
        self._api = api
        self._node = node
        self._kubelet = kubelet
        self._runtime = runtime
        self._retry_seconds = retry_seconds
        self._busy: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._workers = ThreadPoolExecutor(32, thread_name_prefix=f"pods of {node}")
        self._thread = threading.Thread(target=self._loop, name=f"pod runner {node}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        self._workers.shutdown(wait=True)

    def find(self, name: str) -> Running | None:
        """The pod of that name."""
        with self._lock:
            return next((one for one in self.pods.values() if one.pod["metadata"]["name"] == name), None)

    def _loop(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                bound = [pod for pod in self._api.list(POD) if pod["spec"].get("nodeName") == self._node]
            except (ApiException, OSError):
                continue
            self._look(bound)

    def _look(self, bound: list[Object]) -> None:
        now = {pod["metadata"]["uid"]: pod for pod in bound}
        with self._lock:
            for uid, pod in now.items():
                self.pods.setdefault(uid, Running(pod)).pod = pod
            for uid, running in self.pods.items():
                gone = uid not in now
                terminal = running.pod["status"].get("phase") in {"Succeeded", "Failed"}
                running.ending = gone or terminal or "deletionTimestamp" in running.pod["metadata"]
                due = running.next_sync <= time.monotonic()
                if uid not in self._busy and due and (running.ending or running.container is None):
                    self._busy.add(uid)
                    self._workers.submit(self._sync, uid, running, gone)

    def _sync(self, uid: str, running: Running, gone: bool) -> None:
        try:
            if running.ending:
                self._end(uid, running, gone)
            else:
                self._begin(uid, running)
        except (NotPreparedError, CreateContainerError, ApiException, OSError) as error:
            running.events.append(str(error))
            running.next_sync = time.monotonic() + self._retry_seconds
        finally:
            with self._lock:
                self._busy.discard(uid)

    def _begin(self, uid: str, running: Running) -> None:
        meta = running.pod["metadata"]
        names: list[str] = []
        for name in claims_of(running.pod):
            claim = self._api.get(CLAIM, name, meta["namespace"])
            reserved = {entry["uid"] for entry in claim.get("status", {}).get("reservedFor", [])}
            if uid not in reserved:
                raise NotPreparedError(f"pod {meta['name']} is not allowed to use claim {name}")
            names += self._kubelet.prepare(uid, ClaimKey.of(claim)).cdi_ids
        running.container = self._runtime.container(names)
        workloads.run(self._api, meta["name"], meta["namespace"])

    def _end(self, uid: str, running: Running, gone: bool) -> None:
        running.container = None
        self._kubelet.unprepare(uid)
        meta = running.pod["metadata"]
        if "deletionTimestamp" in meta and not gone:
            workloads.remove(self._api, meta["name"], meta["namespace"])
        if gone or "deletionTimestamp" in meta:
            with self._lock:
                self.pods.pop(uid, None)
        else:
            running.next_sync = float("inf")  # a pod that has ended stays as an object


def claims_of(pod: Object) -> list[str]:
    """Names of the ResourceClaims that a pod uses, generated ones too."""
    generated = {
        entry["name"]: entry.get("resourceClaimName") for entry in pod["status"].get("resourceClaimStatuses") or []
    }
    found = []
    for entry in pod["spec"].get("resourceClaims") or []:
        name = entry.get("resourceClaimName") or generated.get(entry["name"])
        if name:
            found.append(name)
    return found
