"""What the watches have shown, reduced to what reconciles ask for.

Filled by watch events and repaired by full lists; never a reason to destroy anything: who releases memory reads the
API server first. Claims and pods that have nothing to do with the driver are not kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hymcache.crds.names import CLASS_PREFIX, DRIVER
from hymcache.operator.clients.kinds import (
    CLAIM,
    CXLNODE,
    FABRIC,
    NODE,
    POD,
    REGION,
    SLICE,
    WATCHED,
    Kind,
    Object,
)
from hymcache.operator.workqueue import Key

Woken = dict[Key, float]
"""What to reconcile, and in how many seconds at the latest."""

COUNTERS = frozenset({"usedBytes", "hits", "misses", "heartbeat"})
COUNTERS_SECONDS = 10.0
"""Pause before a region is looked at because only its counters moved."""


@dataclass(frozen=True)
class Pod:
    """A pod that uses claims. `claims` are names of ResourceClaims of its namespace, generated ones resolved."""

    namespace: str
    name: str
    uid: str
    node: str | None
    nominated: str | None
    claims: frozenset[str]
    ended: bool

    @property
    def place(self) -> str | None:
        """The node that it is on, or that the scheduler means to put it on."""
        return self.node or self.nominated


def pod_of(body: Object) -> Pod | None:
    """The extract of a pod; None when it uses no claims."""
    spec, status, meta = body.get("spec", {}), body.get("status", {}), body["metadata"]
    generated = {s["name"]: s.get("resourceClaimName") for s in status.get("resourceClaimStatuses") or []}
    names = [c.get("resourceClaimName") or generated.get(c["name"]) for c in spec.get("resourceClaims") or []]
    if not names:
        return None
    return Pod(
        meta["namespace"],
        meta["name"],
        meta["uid"],
        spec.get("nodeName"),
        status.get("nominatedNodeName"),
        frozenset(name for name in names if name),
        status.get("phase") in {"Succeeded", "Failed"},
    )


def results_of(claim: Object) -> list[Object]:
    """Allocation results of our driver that hold capacity: an admin's view is not a region."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found = (allocation.get("devices") or {}).get("results") or []
    return [r for r in found if r.get("driver") == DRIVER and not r.get("adminAccess")]


def shares_of(claim: Object) -> set[str]:
    """`shareID`s that a claim's allocation has of our driver."""
    return {r["shareID"] for r in results_of(claim) if r.get("shareID")}


def is_ours(claim: Object) -> bool:
    """Whether a claim is allocated from our driver, or asks for one of our classes."""
    if results_of(claim):
        return True
    for request in (claim.get("spec", {}).get("devices") or {}).get("requests") or []:
        leaves = [request.get("exactly") or {}, *(request.get("firstAvailable") or [])]
        if any(leaf.get("deviceClassName", "").startswith(CLASS_PREFIX) for leaf in leaves):
            return True
    return False


def version_of(body: Object) -> int:
    """ResourceVersion as a number: they grow with every write, whatever the object (KEP-5504)."""
    text = str(body["metadata"].get("resourceVersion", "0"))
    return int(text) if text.isdigit() else 0


def name_of(kind: Kind, body: Object) -> str:
    """`name`, or `namespace/name` for namespaced kinds."""
    meta = body["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if kind.namespaced else str(meta["name"])


@dataclass
class Store:
    """Objects by kind and name."""

    objects: dict[Kind, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in WATCHED})
    synced: set[Kind] = field(default_factory=set)
    _versions: dict[tuple[Kind, str], int] = field(default_factory=dict)
    _pods_by_claim: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _claim_by_share: dict[str, str] = field(default_factory=dict)

    # --- reading -----------------------------------------------------------------------------------------------------
    @property
    def complete(self) -> bool:
        """Every kind was listed once: what is not here did not exist then."""
        return self.synced == set(WATCHED)

    def get(self, kind: Kind, name: str) -> Any:
        """The object (a `Pod` for pods), or None."""
        return self.objects[kind].get(name)

    def all(self, kind: Kind) -> Iterable[Any]:
        """All objects of a kind."""
        return list(self.objects[kind].values())

    def pods_of(self, claim: str) -> list[Pod]:
        """Pods that use the claim `namespace/name` and have not ended."""
        pods = (self.objects[POD].get(name) for name in self._pods_by_claim.get(claim, ()))
        return [pod for pod in pods if pod is not None and not pod.ended]

    def claim_of_share(self, share: str) -> Object | None:
        """The claim whose allocation carries `share`."""
        name = self._claim_by_share.get(share)
        return self.objects[CLAIM].get(name) if name else None

    def waiting_pods(self) -> list[Pod]:
        """Pods with claims of ours that the scheduler has not placed."""
        return [
            pod
            for pod in self.objects[POD].values()
            if not (pod.node or pod.ended)
            and any(f"{pod.namespace}/{claim}" in self.objects[CLAIM] for claim in pod.claims)
        ]

    def regions_on(self, blade: str) -> list[Object]:
        """CXLRegions of a blade."""
        return [region for region in self.all(REGION) if region["spec"].get("blade") == blade]

    # --- filling -----------------------------------------------------------------------------------------------------
    def observe(self, kind: Kind, body: Object, *, gone: bool = False) -> Woken:
        """Take an object in, or out; returns what is to be reconciled for it. A version older than known is ignored."""
        name, version = name_of(kind, body), version_of(body)
        known = self._versions.get((kind, name), -1)
        if version and version < known:
            return {}
        before = self.objects[kind].get(name)
        after = None if gone else self._extract(kind, body)
        self._versions[kind, name] = version  # of what is gone too, or a list that began earlier would bring it back
        if before == after:
            return {}
        self._put(kind, name, before, after)
        return self._woken(kind, name, before, after)

    def relist(self, kind: Kind, items: list[Object], version: int) -> tuple[Woken, int]:
        """Repair a kind from a full list that is complete at `version`.

        Returns what is to be reconciled, and how many objects the watch had missed or kept too long.
        """
        woken: Woken = {}
        repaired = 0
        names = set()
        for item in items:
            names.add(name_of(kind, item))
            known = self._versions.get((kind, name_of(kind, item)), -1)
            keys = self.observe(kind, item)
            repaired += bool(keys) and version_of(item) > known
            woken.update(keys)
        for known_kind, name in list(self._versions):
            if known_kind is not kind or name in names or self._versions[kind, name] > version:
                continue
            del self._versions[kind, name]
            if name in self.objects[kind]:
                before = self.objects[kind].get(name)
                self._put(kind, name, before, None)
                woken.update(self._woken(kind, name, before, None))
                repaired += 1
        self.synced.add(kind)
        return woken, repaired

    def _extract(self, kind: Kind, body: Object) -> Any:
        if kind is POD:
            return pod_of(body)
        if kind is CLAIM:
            return body if is_ours(body) else None
        if kind is SLICE:
            return body if body["spec"].get("driver") == DRIVER else None
        if kind is NODE:
            meta, info = body["metadata"], body.get("status", {}).get("nodeInfo", {})
            kept = {k: v for k, v in (meta.get("labels") or {}).items() if k.startswith(f"{DRIVER}/")}
            return {
                "metadata": {"name": meta["name"], "uid": meta["uid"], "labels": kept},
                "systemUUID": info.get("systemUUID", ""),
                "bootID": info.get("bootID", ""),
            }
        return body

    def _put(self, kind: Kind, name: str, before: Any, after: Any) -> None:
        if kind is POD:
            for claim in before.claims if before else ():
                self._pods_by_claim[f"{before.namespace}/{claim}"].discard(name)
            for claim in after.claims if after else ():
                self._pods_by_claim[f"{after.namespace}/{claim}"].add(name)
        if kind is CLAIM:
            for share in shares_of(before) if before else ():
                self._claim_by_share.pop(share, None)
            for share in shares_of(after) if after else ():
                self._claim_by_share[share] = name
        if after is None:
            self.objects[kind].pop(name, None)
        else:
            self.objects[kind][name] = after

    def _woken(self, kind: Kind, name: str, before: Any, after: Any) -> Woken:
        """Which reconciles may come to another result now, and how soon they need to."""
        states = [state for state in (before, after) if state is not None]
        if kind is REGION:
            blades = {Key("blade", state["spec"]["blade"]) for state in states if state["spec"].get("blade")}
            delay = (
                COUNTERS_SECONDS if before and after and _without_counters(before) == _without_counters(after) else 0.0
            )
            taken = {Key("region", s["spec"]["adoptedFrom"]) for s in states if s["spec"].get("adoptedFrom")}
            return dict.fromkeys({Key("region", name), *blades, *taken}, delay)
        return dict.fromkeys(self._woken_at_once(kind, name, states, before, after), 0.0)

    def _woken_at_once(self, kind: Kind, name: str, states: list[Any], before: Any, after: Any) -> set[Key]:
        if kind is CLAIM:
            shares = {share for state in states for share in shares_of(state)}
            return {Key("claim", name), *(Key("region", f"r-{share}") for share in shares)}
        if kind is POD:
            return self._woken_by_pod(states, placed=bool(after and after.node and not (before and before.node)))
        if kind is SLICE:
            return {Key("blade", state["spec"]["pool"]["name"]) for state in states}
        if kind in (NODE, CXLNODE):
            same_host = before and after and _host_of(kind, before) == _host_of(kind, after)
            regions = [] if same_host else [r for r in self.all(REGION) if _uses(r, name)]
            return {Key("node", name), *(Key("region", r["metadata"]["name"]) for r in regions)}
        if kind is FABRIC:
            # Not for the status: the fabric's own reconcile writes it at every poll.
            return set() if before and after and _asked(before) == _asked(after) else {Key("fabric", name)}
        return {Key("blade", name)}

    def _woken_by_pod(self, pods: list[Pod], *, placed: bool) -> set[Key]:
        """`placed`: the pod has just got its node, which is when the scheduler's double count of its claims ends."""
        woken: set[Key] = set()
        for claim in {f"{pod.namespace}/{claim}" for pod in pods for claim in pod.claims}:
            body = self.objects[CLAIM].get(claim)
            if body is None:
                continue
            woken.add(Key("claim", claim))
            woken |= {Key("region", f"r-{share}") for share in shares_of(body)}
            if placed:
                woken |= {Key("touch", result["pool"]) for result in results_of(body)}
        return woken


def _host_of(kind: Kind, body: Object) -> tuple[Any, ...]:
    """What tells one life of a host from another; the heartbeat does not."""
    if kind is NODE:
        return body["metadata"]["uid"], body["systemUUID"], body["bootID"], body["metadata"]["labels"]
    return body["metadata"]["uid"], (body.get("status") or {}).get("bootID")


def _asked(body: Object) -> tuple[Any, ...]:
    """What a user has asked for; the status is not in it."""
    meta = body["metadata"]
    return meta["uid"], meta.get("generation"), meta.get("deletionTimestamp")


def _without_counters(region: Object) -> Object:
    """A region without what every heartbeat of a plugin changes."""
    status = region.get("status") or {}
    hosts = [{k: v for k, v in host.items() if k not in COUNTERS} for host in status.get("hosts") or []]
    kept = {k: v for k, v in status.items() if k not in {"usedBytes", "used", "hitRate", "hosts"}}
    meta = {k: v for k, v in region["metadata"].items() if k not in {"resourceVersion", "managedFields"}}
    return {"metadata": meta, "spec": region["spec"], "status": {**kept, "hosts": hosts}}


def _uses(region: Object, node: str) -> bool:
    status = region.get("status") or {}
    places = [*(region["spec"].get("hosts") or []), *(status.get("hosts") or []), *(status.get("attachments") or [])]
    return any(place.get("node") == node for place in places)
