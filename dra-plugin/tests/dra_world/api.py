"""An API server of dicts with what the plugin uses: reads, waits, its own entry, faults."""

from __future__ import annotations

import copy
import threading
import time
import uuid
from typing import Any

from hymcache.dra.clients import ApiError

Object = dict[str, Any]


class MemoryApi:
    """Shared by all nodes; `of(node)` is one node's view, with its own field manager."""

    def __init__(self) -> None:
        self.claims: dict[tuple[str, str], Object] = {}
        self.objects: dict[tuple[str, str], Object] = {}
        self.writes: list[tuple[str, str, Object]] = []
        self.down = False
        self.hung: dict[str, threading.Event] = {}  # region: its writes wait for the event
        self.hanging = 0
        self._version = 0
        self._changed = threading.Condition()

    # --- what users, the scheduler and the operator do ---------------------------------------------------------------
    def add_claim(
        self, name: str, *, namespace: str = "team", share: str | None = "", device: str = "dram-shared", **result: Any
    ) -> Object:
        """An allocated claim; `share` is its shareID, random when empty, absent when None."""
        share_id = str(uuid.uuid4()) if share == "" else share
        entry = {"request": "region", "driver": "hymcache.io", "pool": "blade-1", "device": device, **result}
        if share_id:
            entry["shareID"] = share_id
        claim = {
            "metadata": {"namespace": namespace, "name": name, "uid": str(uuid.uuid4())},
            "status": {"allocation": {"devices": {"results": [entry], "config": []}}},
        }
        with self._changed:
            self.claims[namespace, name] = claim
        return copy.deepcopy(claim)

    def put(self, kind: str, name: str, **parts: Any) -> Object:
        """Create or replace parts of a cluster-scoped object."""
        with self._changed:
            found = self.objects.setdefault((kind, name), {"metadata": {"name": name, "uid": str(uuid.uuid4())}})
            found.update(copy.deepcopy(parts))
            self._bump(found)
            return copy.deepcopy(found)

    def drop(self, kind: str, name: str) -> None:
        """Delete an object."""
        with self._changed:
            self.objects.pop((kind, name), None)
            self._changed.notify_all()

    def edit(self, kind: str, name: str, change: Any) -> None:
        """Let `change` alter an object in place, if it exists."""
        with self._changed:
            found = self.objects.get((kind, name))
            if found is not None:
                change(found)
                self._bump(found)

    def read(self, kind: str, name: str) -> Object:
        """An object, as it is; an empty one if it does not exist."""
        with self._changed:
            return copy.deepcopy(self.objects.get((kind, name), {}))

    def host(self, region: str, node: str) -> Object:
        """A node's entry in a region's status, empty if there is none."""
        hosts = self.read("CXLRegion", region).get("status", {}).get("hosts", [])
        return next((entry for entry in hosts if entry["node"] == node), {})

    def _bump(self, found: Object) -> None:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self._changed.notify_all()

    # --- what the plugin does ----------------------------------------------------------------------------------------
    def _up(self) -> None:
        if self.down:
            raise ApiError("the API server did not answer (switched off by the test)")

    def claim(self, namespace: str, name: str) -> Object | None:
        self._up()
        with self._changed:
            return copy.deepcopy(self.claims.get((namespace, name)))

    def region(self, name: str) -> Object | None:
        self._up()
        return self.read("CXLRegion", name) or None

    def regions(self) -> list[Object]:
        self._up()
        with self._changed:
            return [copy.deepcopy(found) for (kind, _), found in self.objects.items() if kind == "CXLRegion"]

    def region_after(self, name: str, version: str, seconds: float) -> Object | None:
        self._up()
        deadline = time.monotonic() + seconds
        with self._changed:
            while (found := self.objects.get(("CXLRegion", name))) is not None:
                left = deadline - time.monotonic()
                if found["metadata"]["resourceVersion"] != version or left <= 0:
                    return copy.deepcopy(found)
                self._changed.wait(left)
        return None

    def apply_host(self, region: str, entry: Object) -> None:
        self._up()

        def change(found: Object) -> None:
            status = found.setdefault("status", {})
            others = [host for host in status.get("hosts", []) if host["node"] != entry["node"]]
            status["hosts"] = [*others, copy.deepcopy(entry)]

        if (until := self.hung.get(region)) is not None:
            self.hanging += 1
            until.wait(60)
        self.writes.append(("host", region, copy.deepcopy(entry)))
        self.edit("CXLRegion", region, change)

    def node(self, name: str) -> Object | None:
        self._up()
        return self.read("CXLNode", name) or None

    def apply_node(self, name: str, status: Object) -> None:
        self._up()
        self.put("CXLNode", name, status=status)
