"""A node's plugin and kubelet, played by a thread: it writes what they write and opens what they open.

For tests of the operator; the real plugin has its own. It uses a token bound to a pod of its node, so RBAC and
admission policies apply to every write.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from hymcache.region import handover

from controlplane.api import CLAIM, POD, Api, ApiException, Object
from controlplane.operators import ACCOUNTS, CXLNODE, REGION
from controlplane.plane import ControlPlane

PAUSE = 0.15


class NodeActor:
    """One node.

    Attributes:
        inodes: inode of each region's memory by region name, as the cable handed it over.
        stubborn: it does not let go of regions, whatever happens to the pods.
    """

    def __init__(self, plane: ControlPlane, node: str, system_uuid: str, cables: list[Path]) -> None:
        self.node = node
        self.boot_id = str(uuid.uuid4())
        self.inodes: dict[str, int] = {}
        self.ready: dict[str, float] = {}
        self.stubborn = False
        self.silent = False
        self.errors: list[str] = []
        self._api: Api = plane.api_as(plane.token(ACCOUNTS.namespace, ACCOUNTS.plugin, node=node))
        self._admin = plane.api
        self._cables = [folder / system_uuid for folder in cables]
        self._states: dict[str, dict[str, Any]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"node-{node}", daemon=True)

    def start(self) -> None:
        """Begin to report and to serve pods."""
        self._thread.start()

    def stop(self) -> None:
        """End, as a node does that loses power: nothing is said."""
        self._stop.set()
        self._thread.join()

    def reboot(self) -> None:
        """Everything is gone, and the boot id is another."""
        self._states.clear()
        self.boot_id = str(uuid.uuid4())

    def _run(self) -> None:
        beat = 0.0
        while not self._stop.is_set():
            try:
                if not self.silent and time.monotonic() - beat > 1.0:
                    self._heartbeat()
                    beat = time.monotonic()
                if not self.silent:
                    self._serve()
            except ApiException as error:
                if error.status not in {404, 409}:
                    self.errors.append(f"{error.status} {error.body}")
            except Exception as error:
                self.errors.append(repr(error))
            self._stop.wait(PAUSE)

    def _heartbeat(self) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 10**9 // 1000:06d}Z"
        head = {"apiVersion": CXLNODE.api_version, "kind": CXLNODE.name, "metadata": {"name": self.node}}
        if self._api.find(CXLNODE, self.node) is None:
            self._api.create(head)
        status = {"bootID": self.boot_id, "heartbeat": stamp, "registered": True, "pluginVersion": "actor"}
        self._api.apply({**head, "status": status}, manager=f"plugin-{self.node}", subresource="status")

    def _serve(self) -> None:
        """Prepare regions of claims whose pods are bound here; release those whose pods are gone."""
        wanted = self._wanted()
        for region in wanted:
            if self._states.get(region, {}).get("state") != "Ready":
                self._prepare(region)
        for region in [name for name in self._states if name not in wanted]:
            if self._states[region]["state"] != "Released" and not self.stubborn:
                self._say(region, desired="Detached", state="Released")

    def _wanted(self) -> set[str]:
        bound = {
            (pod["metadata"]["namespace"], use["resourceClaimName"])
            for pod in self._admin.list(POD)
            if pod["spec"].get("nodeName") == self.node and not pod["metadata"].get("deletionTimestamp")
            for use in pod["spec"].get("resourceClaims") or []
        }
        found = set()
        for claim in self._admin.list(CLAIM):
            meta, status = claim["metadata"], claim.get("status", {})
            if (meta["namespace"], meta["name"]) in bound:
                results = status.get("allocation", {}).get("devices", {}).get("results", [])
                found |= {f"r-{r['shareID']}" for r in results if r.get("shareID")}
        return found

    def _prepare(self, name: str) -> None:
        """Say what is wanted first; the reply of that very write is what is believed about the attachment."""
        region = self._say(name, desired="Attached", state="Attaching")
        attachments = (region.get("status") or {}).get("attachments") or []
        mine = next((a for a in attachments if a["node"] == self.node), None)
        if mine is None or mine["phase"] != "Attached":
            return
        identity = mine["identity"]
        sockets = [folder / f"{identity['blade']}.sock" for folder in self._cables]
        socket = next((path for path in sockets if path.exists()), sockets[0])
        descriptor, _ = handover.receive(socket, region=identity["region"], timeout=5.0)
        self.inodes[name] = os.fstat(descriptor).st_ino
        os.close(descriptor)
        self._say(name, desired="Attached", state="Ready", epoch=region["spec"].get("epoch", 1))
        self.ready[name] = time.monotonic()

    def _say(self, name: str, **entry: Any) -> Object:
        """Apply the own hosts entry; returns the region as the API server answered."""
        epoch = {"epoch": self._states[name]["epoch"]} if "epoch" in self._states.get(name, {}) else {}
        entry = {"node": self.node, "bootID": self.boot_id, **epoch, **entry}
        if self._states.get(name) == entry:
            return self._api.get(REGION, name)
        body = {
            "apiVersion": REGION.api_version,
            "kind": REGION.name,
            "metadata": {"name": name},
            "status": {"hosts": [entry]},
        }
        if self._api.find(REGION, name) is None:
            self._states.pop(name, None)
            return {}
        answer = self._api.apply(body, manager=f"plugin-{self.node}", subresource="status")
        self._states[name] = entry
        return answer
