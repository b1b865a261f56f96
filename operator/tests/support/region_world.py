"""A region's surroundings as plain values: claim, pods, fabric, plugins. Steps act on it as the real effects do.

A step has up to two halves, the fabric and the object; `halfway` leaves the second one out, as a crash does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hymcache.crds.fabric import Scrubber
from hymcache.crds.model import Coherence, Media, Metadata
from hymcache.crds.names import FINALIZER_REGION
from hymcache.crds.region import (
    Attachment,
    AttachmentPhase,
    ClaimRef,
    CXLRegion,
    CXLRegionSpec,
    CXLRegionStatus,
    HostState,
    HostStatus,
    Identity,
    RegionPhase,
    Scrub,
)
from hymcache.operator.fabric.port import HostKey, Region
from hymcache.operator.fabric.session import BladeFacts
from hymcache.operator.reconcile.region import steps
from hymcache.operator.reconcile.region.body import filled, with_hosts
from hymcache.operator.reconcile.region.plan import plan
from hymcache.operator.reconcile.region.status import COMPOSED, Change, condition, status_of
from hymcache.operator.reconcile.region.view import Need, NodeFacts, Place, Share, View
from hymcache.operator.settings import Settings

GIB = 1 << 30
NAME = "r-s1"
SETTINGS = Settings(fence_seconds=10.0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def blade(**changes: Any) -> BladeFacts:
    facts = BladeFacts(
        name="b1",
        fabric="f",
        id="b1",
        bytes=64 * GIB,
        granule_bytes=GIB,
        hosts=frozenset(),
        hosts_down=frozenset(),
        max_hosts=2,
        health="OK",
        media=Media.DRAM,
        coherence=Coherence.SOFTWARE,
        scrub=Scrubber.FABRIC,
        power_epoch=1,
        regions_max=None,
    )
    return replace(facts, **changes)


@dataclass
class World:
    """One region and everything around it."""

    spec: CXLRegionSpec = field(
        default_factory=lambda: CXLRegionSpec(
            blade="b1",
            bytes=4 * GIB,
            share_id="s1",
            claim_ref=ClaimRef(namespace="ns", name="kv", uid="u1"),
            allowed_namespaces=["ns"],
        )
    )
    status: CXLRegionStatus = field(default_factory=lambda: CXLRegionStatus(conditions=[]))
    finalizers: set[str] = field(default_factory=lambda: {FINALIZER_REGION})
    deleting: bool = False
    gone: bool = False
    need: Need = Need.YES
    composed: bool = False
    failed: bool = False
    pods: dict[str, bool] = field(default_factory=dict)
    """Nodes with a pod of the claim; True: cabled."""
    uuids: dict[str, str] = field(default_factory=dict)
    facts: BladeFacts | None = field(default_factory=blade)
    fabric: Region | None = None
    missing: bool = False
    taken_bytes: int = 0
    coming_bytes: int = 0
    retained: tuple[str, ...] = ()
    dead: dict[str, float] = field(default_factory=dict)
    removed_nodes: set[str] = field(default_factory=set)
    boots: dict[str, str] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)
    """Nodes whose attach fails."""
    lying: set[str] = field(default_factory=set)
    """Nodes whose attach is done and called a failure."""
    resting: set[str] = field(default_factory=set)
    """Nodes whose failed attach is not tried again yet."""
    given_up: set[str] = field(default_factory=set)
    composes: int = 0
    releases: int = 0
    now: datetime = NOW
    failure: steps.Fail | None = None

    # --- what the operator sees --------------------------------------------------------------------------------------
    def uuid(self, node: str) -> str:
        return self.uuids.setdefault(node, f"uuid-of-{node}")

    def key(self, node: str) -> HostKey:
        return HostKey(self.uuid(node).replace("-", ""))

    def view(self) -> View:
        metadata = Metadata(name=NAME, uid="uid")
        region = CXLRegion(metadata=metadata, spec=self.spec, status=self.status)
        nodes = set(self.pods) | {h.node for h in self.spec.hosts}
        used = self.fabric.bytes if self.fabric else 0
        return View(
            region=region,
            finalizers=frozenset(self.finalizers),
            deleting=self.deleting,
            share=Share(self.need, NOW, self.composed, self.failed),
            places=tuple(Place(n, self.uuid(n), c) for n, c in sorted(self.pods.items()))
            if self.need is Need.YES
            else (),
            blade=self.facts,
            found=self.fabric,
            missing=self.missing,
            free_bytes=(self.facts.bytes if self.facts else 0) - used - self.taken_bytes,
            coming_bytes=self.coming_bytes,
            retained=self.retained,
            nodes={n: NodeFacts(n not in self.removed_nodes, self.boots.get(n), self.dead.get(n, 0.0)) for n in nodes},
            inherited=False,
            attach_due=frozenset(nodes - self.resting),
            attach_given_up=frozenset(self.given_up),
            now=self.now,
        )

    # --- what plugins and users do -----------------------------------------------------------------------------------
    def says(self, node: str, state: HostState, *, boot: str = "boot-1") -> None:
        others = [h for h in self.status.hosts if h.node != node]
        entry = HostStatus(node=node, state=state, boot_id=boot, epoch=self.spec.epoch or 0)
        self.status = self.status.model_copy(update={"hosts": [*others, entry]})

    def reported(self, node: str) -> HostState | None:
        return next((h.state for h in self.status.hosts if h.node == node), None)

    def phase(self, node: str) -> AttachmentPhase | None:
        return next((a.phase for a in self.status.attachments if a.node == node), None)

    # --- steps -------------------------------------------------------------------------------------------------------
    def step(self, *, halfway: bool = False) -> steps.Step:
        """Plan and carry out one step."""
        view = self.view()
        step = plan(view, SETTINGS)
        self.act(view, step, halfway=halfway)
        return step

    def settle(self, most: int = 60) -> steps.Step:
        """Steps until there is nothing to do."""
        for _ in range(most):
            if self.gone:
                return steps.Done()
            step = self.step()
            if isinstance(step, steps.Done | steps.Wait):
                return step
        raise AssertionError(f"not settled after {most} steps; the last was {step}")

    def act(self, view: View, step: steps.Step, *, halfway: bool = False) -> None:
        """The effect of a step."""
        match step:
            case steps.Prepare():
                assert self.facts is not None or FINALIZER_REGION not in self.finalizers, "nothing to prepare"
                self.finalizers.add(FINALIZER_REGION)
                if self.facts is not None:
                    self.spec = filled(view.region, self.facts, "hymcache-")
            case steps.SetHosts(hosts):
                self.spec = with_hosts(self.spec, hosts)
            case steps.WriteStatus(status):
                self._write(status)
            case steps.Compose():
                self._compose(view, halfway)
            case steps.Attach(nodes):
                self._attach(view, nodes, halfway)
            case steps.Detach(node, fenced):
                self._detach(view, node, fenced, halfway)
            case steps.ForgetHost(node):
                kept = [h for h in self.status.hosts if h.node != node]
                self.status = self.status.model_copy(update={"hosts": kept})
            case steps.MarkComposed():
                self.composed = True
            case steps.Fail():
                self.failed, self.failure = True, step
            case steps.Lose(message):
                self._lose(view, message, halfway)
            case steps.Release():
                assert self.fabric is None or not self.fabric.hosts, "released under a connected host"
                self.releases += self.fabric is not None
                self.fabric = None
            case steps.Finish():
                self.finalizers.discard(FINALIZER_REGION)
                self.gone = True

    def _write(self, status: CXLRegionStatus) -> None:
        self.status = status.model_copy(update={"hosts": self.status.hosts})

    def _compose(self, view: View, halfway: bool) -> None:
        assert self.facts is not None
        if self.fabric is None:
            self.composes += 1
            self.fabric = Region(view.fabric_name, "b1", self.spec.bytes, frozenset(), "/1")
        self.missing = False
        if halfway:
            return
        done = condition(self.status.conditions, COMPOSED, "True", "Composed", "", self.now)
        scrub = Scrub(time=self.now, by="b1", how="test")
        fields: dict[str, object] = {"scrub": scrub, "power_epoch": self.facts.power_epoch}
        self._write(status_of(view, Change(fields=fields, conditions=(done,))))

    def _attach(self, view: View, nodes: tuple[str, ...], halfway: bool) -> None:
        assert self.fabric is not None
        entries: dict[str, Attachment] = {}
        epoch = self.spec.epoch
        for node in nodes:
            if node in self.lying:
                self.fabric = replace(self.fabric, hosts=self.fabric.hosts | {self.key(node)})
            if node in self.unreachable | self.lying:
                self.resting.add(node)
                entries[node] = Attachment(node=node, phase=AttachmentPhase.FAILED, epoch=epoch, message="down")
                continue
            self.fabric = replace(self.fabric, hosts=self.fabric.hosts | {self.key(node)})
            identity = Identity(kind="cable", blade="b1", region=self.fabric.name)
            entries[node] = Attachment(node=node, phase=AttachmentPhase.ATTACHED, epoch=epoch, identity=identity)
        if not halfway:
            self._write(status_of(view, Change(attachments=entries)))

    def _detach(self, view: View, node: str, fenced: bool, halfway: bool) -> None:
        if self.fabric is not None:
            self.fabric = replace(self.fabric, hosts=self.fabric.hosts - {self.key(node)})
        if not halfway:
            phase = AttachmentPhase.FENCED if fenced else AttachmentPhase.DETACHED
            entry = Attachment(node=node, phase=phase, epoch=self.spec.epoch)
            self._write(status_of(view, Change(attachments={node: entry})))

    def _lose(self, view: View, message: str, halfway: bool) -> None:
        self.spec = self.spec.model_copy(update={"epoch": view.epoch + 1})
        if halfway:
            return
        self.fabric, self.missing = None, False
        lost = condition(self.status.conditions, COMPOSED, "False", "Lost", message, self.now)
        fields: dict[str, object] = {"scrub": None, "power_epoch": None}
        region = view.region.model_copy(update={"spec": self.spec})
        fresh = replace(view, region=region, found=None)
        self._write(status_of(fresh, Change(RegionPhase.LOST, fields=fields, conditions=(lost,))))

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.resting.clear()


def ready_world(*nodes: str, **changes: Any) -> World:
    """A region that serves pods on these nodes."""
    world = World(pods=dict.fromkeys(nodes, True), **changes)
    world.settle()
    for node in nodes:
        world.says(node, HostState.READY)
    world.settle()
    return world
