"""Everything that a decision about one region rests on, read once and not changed while it is made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from hymcache.crds.names import FINALIZER_REGION, system_uuid_key
from hymcache.crds.region import (
    Attachment,
    AttachmentPhase,
    CXLRegion,
    CXLRegionSpec,
    CXLRegionStatus,
    HostState,
    HostStatus,
    RegionHost,
)
from hymcache.operator.fabric.port import HostKey, Region
from hymcache.operator.fabric.session import BladeFacts


class Need(Enum):
    """Whether an allocation stands on the region."""

    YES = "yes"
    NO = "no"
    """No allocation, but the claim is there and may come back for its data."""
    NEVER = "never"
    """The claim itself is gone."""


@dataclass(frozen=True)
class Share:
    """The allocation that the region was made for, as the API server has it now."""

    need: Need
    allocated: datetime | None = None
    composed: bool = False
    """RegionComposed is True: the scheduler goes on."""
    failed: bool = False
    """RegionFailed is True: the scheduler gives the allocation up."""


@dataclass(frozen=True)
class Place:
    """A node where pods of the claim are or are meant to be."""

    node: str
    system_uuid: str
    cabled: bool
    """The node has a cable to the blade, its link is up and its plugin is alive."""

    @property
    def host(self) -> HostKey:
        """Key of the host on the fabric."""
        return HostKey(system_uuid_key(self.system_uuid))


@dataclass(frozen=True)
class NodeFacts:
    """What proves that a host cannot use the region any more."""

    exists: bool
    boot_id: str | None
    dead_seconds: float
    """How long its plugin has been silent beyond what is normal; 0 while it is alive."""


@dataclass(frozen=True)
class View:
    """One region, its allocation, its blade and its hosts."""

    region: CXLRegion
    finalizers: frozenset[str]
    deleting: bool
    share: Share
    places: tuple[Place, ...]
    blade: BladeFacts | None
    """None: the blade is not in the inventory of any fabric."""
    found: Region | None
    """The region on the fabric, by the last reading."""
    missing: bool
    """It was there, and two good inventories in a row did not have it."""
    free_bytes: int
    coming_bytes: int
    """Bytes of regions on the blade that are being released."""
    retained: tuple[str, ...]
    """Regions on the blade that keep data which nobody uses, oldest first."""
    nodes: dict[str, NodeFacts]
    inherited: bool
    """Another CXLRegion has taken the bytes over: they are not released with this one."""
    attach_due: frozenset[str]
    """Nodes whose failed attach may be tried again now."""
    attach_given_up: frozenset[str]
    """Nodes whose attach has failed often enough to let the scheduler know."""
    now: datetime

    @property
    def name(self) -> str:
        """Name of the CXLRegion."""
        return self.region.metadata.name

    @property
    def spec(self) -> CXLRegionSpec:
        """Its spec."""
        return self.region.spec

    @property
    def status(self) -> CXLRegionStatus:
        """Its status; an empty one before there is any."""
        return self.region.status or CXLRegionStatus(conditions=[])

    @property
    def epoch(self) -> int:
        """Its epoch, 1 before it is written."""
        return self.spec.epoch or 1

    @property
    def finalized(self) -> bool:
        """Our finalizer is on it."""
        return FINALIZER_REGION in self.finalizers

    @property
    def static(self) -> bool:
        """Made by a user, not for a claim."""
        return self.spec.claim_ref is None

    @property
    def fabric_name(self) -> str:
        """Its name on the fabric."""
        return self.spec.fabric_name or self.name

    def condition(self, kind: str) -> bool:
        """Whether a condition of the region is True."""
        return any(c.type == kind and c.status == "True" for c in self.status.conditions)

    def attachment(self, node: str) -> Attachment | None:
        """What the fabric has done for a node in this epoch."""
        found = next((a for a in self.status.attachments if a.node == node), None)
        return found if found and (found.epoch or self.epoch) == self.epoch else None

    def reported(self, node: str) -> HostStatus | None:
        """What a node's plugin says."""
        return next((h for h in self.status.hosts if h.node == node), None)

    def attached(self, node: str) -> bool:
        """The fabric connects the node, by status and by the last reading."""
        attachment, host = self.attachment(node), self.host(node)
        here = attachment is not None and attachment.phase in {AttachmentPhase.ATTACHED, AttachmentPhase.DETACHING}
        return here and host is not None and self.connected(host)

    def connected(self, host: RegionHost) -> bool:
        """The fabric connects the host, by the last reading."""
        return self.found is not None and HostKey(system_uuid_key(host.system_uuid)) in self.found.hosts

    def host(self, node: str) -> RegionHost | None:
        """The node's entry of the spec."""
        return next((h for h in self.spec.hosts if h.node == node), None)

    @property
    def formatted(self) -> bool:
        """A host has found the region formatted in this epoch."""
        if (self.status.formatted_epoch or 0) >= self.epoch:
            return True
        return any(h.state is HostState.READY and h.epoch == self.epoch for h in self.status.hosts)
