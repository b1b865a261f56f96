"""An operator that does its part of the contract: hosts that want a region get a domain and a connection."""

from __future__ import annotations

import threading
import uuid
from typing import Any

from dra_world.api import MemoryApi, Object
from dra_world.appliance import Appliance

PREFIX = "hymcache-"
REGION_BYTES = 64 << 20


class Operator:
    """`step` reconciles every region once; `run` does so in a thread until closed. `hold` delays attachments.

    With `hosts_scrub` the fabric clears nothing: the record of it waits for a host's word.
    """

    def __init__(self, api: MemoryApi, appliance: Appliance) -> None:
        self.api = api
        self.appliance = appliance
        self.hold = threading.Event()
        self.hold.set()
        self.failing: set[str] = set()
        self.hosts_scrub = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="operator", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)

    def region_of(self, claim: Object, **spec: Any) -> str:
        """Compose the region of an allocated claim; its name."""
        meta, result = claim["metadata"], claim["status"]["allocation"]["devices"]["results"][0]
        name = f"r-{result['shareID']}" if "shareID" in result else result["device"]
        owner = {key: meta[key] for key in ("namespace", "name", "uid")}
        self.make_region(name, claimRef=owner, **spec)
        return name

    def make_region(self, name: str, **spec: Any) -> None:
        full = {
            "blade": self.appliance.blade,
            "bytes": REGION_BYTES,
            "domains": 4,
            "uuid": str(uuid.uuid4()),
            "epoch": 1,
            "coherence": "software",
            "media": "dram",
            "hosts": [],
            **spec,
        }
        self.appliance.compose(PREFIX + name, full["bytes"])
        status = {} if self.hosts_scrub else {"scrub": _scrub(self.appliance.blade)}
        self.api.put("CXLRegion", name, spec=full, status=status)

    def _loop(self) -> None:
        while not self._stop.wait(0.02):
            if self.hold.is_set():
                self.step()

    def step(self) -> None:
        for (kind, name), found in list(self.api.objects.items()):
            if kind == "CXLRegion":
                for host in list(found.get("status", {}).get("hosts", [])):
                    self._reconcile(name, host["node"], host)
                    if host.get("scrubbed") and host["epoch"] == found["spec"]["epoch"]:
                        record = _scrub(host["node"])
                        self.api.edit("CXLRegion", name, lambda raw, it=record: raw["status"].setdefault("scrub", it))

    def _reconcile(self, name: str, node: str, host: Object) -> None:
        found = self.api.read("CXLRegion", name)
        attachments = found.get("status", {}).get("attachments", [])
        epoch = found["spec"]["epoch"]
        now = next((entry for entry in attachments if entry["node"] == node), {})
        if host["desired"] == "Attached":
            if now.get("phase") == "Attached" and now.get("epoch") == epoch:
                return
            if node in self.failing:
                wanted = {"node": node, "phase": "Failed", "message": "no free port on the switch"}
            else:
                self.appliance.connect(PREFIX + name, node)
                identity = {"kind": "cable", "blade": self.appliance.blade, "region": PREFIX + name}
                wanted = {"node": node, "phase": "Attached", "identity": identity, "epoch": epoch}
        else:
            self.appliance.disconnect(PREFIX + name, node)
            wanted = {"node": node, "phase": "Detached"}
        if wanted != now:
            self.api.edit("CXLRegion", name, lambda raw: _attach(raw, wanted))


def _scrub(by: str) -> Object:
    return {"time": "2026-01-01T00:00:00Z", "by": by, "how": "cleared"}


def _attach(raw: Object, wanted: Object) -> None:
    hosts = raw["spec"]["hosts"]
    if wanted["phase"] == "Attached" and all(host["node"] != wanted["node"] for host in hosts):
        taken = {host["domain"] for host in hosts}
        domain = next(number for number in range(raw["spec"]["domains"]) if number not in taken)
        hosts.append({"node": wanted["node"], "systemUUID": wanted["node"], "domain": domain, "init": not hosts})
    others = [entry for entry in raw["status"].get("attachments", []) if entry["node"] != wanted["node"]]
    raw["status"]["attachments"] = [*others, wanted]
