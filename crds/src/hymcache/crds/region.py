"""CXLRegion: the bytes of one share on one blade, and who may write which part of them.

Writers: a user (static regions) or the operator writes the spec; each node's plugin writes its own entry of
`status.hosts` by server-side apply; the operator writes all the rest of the status.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Literal

from hymcache.crds.model import (
    BladeName,
    Coherence,
    Column,
    Conditions,
    Media,
    Message,
    Model,
    NodeName,
    ReclaimPolicy,
    Resource,
    SystemUUID,
    fixed_once_set,
    list_map,
    rules,
)
from pydantic import ConfigDict, Field

HOSTS_MAX = 256
MIB = 1 << 20


class RegionPhase(StrEnum):
    """Where a region is in its life."""

    PENDING = "Pending"
    COMPOSING = "Composing"
    READY = "Ready"
    DEGRADED = "Degraded"
    RELEASING = "Releasing"
    LOST = "Lost"


class AttachmentPhase(StrEnum):
    """What the fabric has done for one host. `Fenced`: cut off without the host's consent."""

    PENDING = "Pending"
    ATTACHED = "Attached"
    DETACHING = "Detaching"
    DETACHED = "Detached"
    FAILED = "Failed"
    FENCED = "Fenced"


class Desired(StrEnum):
    """What a node's plugin asks the fabric for."""

    ATTACHED = "Attached"
    DETACHED = "Detached"


class HostState(StrEnum):
    """How far a plugin is. `Released`: no process of its host has the region open, and its caches are flushed."""

    ABSENT = "Absent"
    ATTACHING = "Attaching"
    READY = "Ready"
    FAILED = "Failed"
    RELEASED = "Released"


class RegionHost(Model):
    """A host that may use the region, and the one domain that it writes."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("self.domain == oldSelf.domain", "domain cannot change; remove the entry after a fence and add it anew"),
            ("self.systemUUID == oldSelf.systemUUID", "systemUUID cannot change; remove the entry after a fence"),
        )
    )

    node: NodeName
    system_uuid: SystemUUID
    domain: int = Field(ge=0, lt=HOSTS_MAX, description="The part of the region that this host alone writes.")
    init: bool = Field(default=False, description="This host formats the region; the others wait for its superblock.")
    wanted: bool = Field(default=True, description="False: the host is to let go of the region.")


class ClaimRef(Model):
    """The claim that the region was made for."""

    namespace: str = Field(min_length=1, max_length=63)
    name: str = Field(min_length=1, max_length=253)
    uid: str = Field(min_length=1, max_length=64)


class CXLRegionSpec(Model):
    """What the region is. A user who makes a static region gives blade and bytes; the operator fills the rest."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("self.blade == oldSelf.blade", "blade cannot change; make another region"),
            ("self.bytes == oldSelf.bytes", "bytes cannot change; make another region"),
            *fixed_once_set(
                "uuid",
                "domains",
                "coherence",
                "media",
                "chunkBytes",
                "claimRef",
                "shareID",
                "fabricName",
                "adoptedFrom",
            ),
            ("!has(oldSelf.epoch) || (has(self.epoch) && self.epoch >= oldSelf.epoch)", "epoch cannot go back"),
            ("!has(self.hosts) || self.hosts.filter(h, h.init).size() <= 1", "hosts: only one host may have init"),
            (
                "!has(self.hosts) || self.hosts.all(h, has(self.domains) && h.domain < self.domains)",
                "hosts: domain must be lower than spec.domains",
            ),
            (
                "!has(self.hosts) || self.hosts.all(h, self.hosts.exists_one(o, o.domain == h.domain))",
                "hosts: a domain has one host",
            ),
        )
    )

    blade: BladeName = Field(description="Name of the CXLBlade.")
    bytes: int = Field(
        ge=MIB,
        multiple_of=MIB,
        description="Size. A multiple of the blade's granule; the appliance may not round it.",
    )
    domains: int | None = Field(
        default=None,
        ge=1,
        le=HOSTS_MAX,
        description="Hosts that can write, fixed at format; default: the blade's maximum.",
    )
    uuid: str | None = Field(default=None, max_length=36, description="Identity in the superblock.")
    epoch: int | None = Field(
        default=None, ge=1, description="Grows whenever the bytes are made anew; older bytes never verify."
    )
    coherence: Coherence | None = Field(default=None, description="Coherence class, from the blade.")
    media: Media | None = Field(default=None, description="What the memory is made of, from the blade.")
    chunk_bytes: int | None = Field(
        default=None,
        ge=64 << 10,
        le=64 << 20,
        description="Allocation unit inside the region; default: chosen at format.",
    )
    hosts: list[RegionHost] = Field(
        default_factory=list,
        max_length=HOSTS_MAX,
        json_schema_extra=list_map("node"),
        description="Hosts with a domain each.",
    )
    reclaim_policy: ReclaimPolicy = Field(
        default=ReclaimPolicy.DELETE, description="What happens to the bytes when no allocation needs them."
    )
    allowed_namespaces: list[str] = Field(
        default_factory=list,
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Namespaces whose claims may use the region. A claim's own region allows the claim's.",
    )
    claim_ref: ClaimRef | None = Field(default=None, description="The claim it was made for; none for a static region.")
    share_id: str | None = Field(default=None, max_length=36, description="`shareID` of the allocation.")
    fabric_name: str | None = Field(
        default=None, max_length=253, description="Name on the fabric; default: the operator's prefix and this name."
    )
    adopted_from: str | None = Field(
        default=None,
        max_length=253,
        description="The CXLRegion whose bytes it took over: the same claim's retained data.",
    )


class Identity(Model):
    """How the host recognises the region: by a cable of the emulated appliance, or by a CXL logical device."""

    kind: Literal["cable", "gcxlid"]
    blade: str = Field(max_length=256)
    region: str = Field(max_length=253, description="Name on the fabric.")
    gcxlid: str | None = Field(default=None, max_length=64, description="Serial and LD id of the logical device.")


class Attachment(Model):
    """What the fabric has done for one host."""

    node: NodeName
    phase: AttachmentPhase
    identity: Identity | None = Field(default=None, description="Set when `phase` is Attached.")
    epoch: int | None = Field(default=None, ge=1, description="`spec.epoch` that the attachment belongs to.")
    message: Message | None = Field(default=None, description="One sentence: what failed and what to do.")


class HostStatus(Model):
    """What one node wants and has confirmed; written by that node's plugin alone."""

    node: NodeName
    desired: Desired | None = None
    state: HostState | None = None
    boot_id: str | None = Field(default=None, max_length=64, description="A changed one proves that no user is left.")
    epoch: int | None = Field(default=None, ge=0, description="Epoch that the host has verified.")
    scrubbed: bool | None = Field(
        default=None, description="This host cleared the region before it formatted it under `epoch`."
    )
    used_bytes: int | None = Field(default=None, ge=0, description="Bytes in use in the host's domain.")
    hits: int | None = Field(default=None, ge=0, description="Lookups of this host that found their block.")
    misses: int | None = Field(default=None, ge=0)
    problem: Message | None = Field(default=None, description="One sentence, while something is wrong.")
    heartbeat: datetime | None = None


class Scrub(Model):
    """That the memory was cleared before this owner got it."""

    time: datetime
    by: str = Field(max_length=253, description="The blade, or the node.")
    how: str = Field(max_length=256)


class CXLRegionStatus(Model):
    """What the region has come to."""

    phase: RegionPhase | None = None
    conditions: Conditions
    attachments: list[Attachment] = Field(
        default_factory=list,
        max_length=HOSTS_MAX,
        json_schema_extra=list_map("node"),
        description="Written by the operator.",
    )
    hosts: list[HostStatus] = Field(
        default_factory=list,
        max_length=HOSTS_MAX,
        json_schema_extra=list_map("node"),
        description="Each entry written by the plugin of that node.",
    )
    used_bytes: int | None = Field(default=None, ge=0, description="Sum over the hosts.")
    hit_rate: str | None = Field(
        default=None, max_length=8, description="Hits of all hosts in percent, such as `83.2%`."
    )
    scrub: Scrub | None = Field(default=None, description="Recorded before the region is Ready.")
    size: str | None = Field(default=None, max_length=32, description="`spec.bytes` for the column.")
    used: str | None = Field(
        default=None, max_length=8, description="`usedBytes` in percent of the size, for the column."
    )
    claim: str | None = Field(default=None, max_length=320, description="namespace/name of the claim, for the column.")
    hosts_attached: str | None = Field(
        default=None, max_length=16, description="Hosts attached / wanted, for the column."
    )
    released_time: datetime | None = Field(
        default=None, description="When a retained region lost its allocation; the oldest is evicted first."
    )
    power_epoch: int | None = Field(default=None, ge=0, description="Power epoch of the blade that holds the bytes.")
    formatted_epoch: int | None = Field(default=None, ge=0, description="Last epoch that a host found formatted.")
    observed_generation: int | None = Field(default=None, ge=0)


class CXLRegion(Resource):
    """A region of CXL memory: one share of one blade, with the hosts that use it."""

    KIND: ClassVar[str] = "CXLRegion"
    PLURAL: ClassVar[str] = "cxlregions"
    SHORT: ClassVar[str] = "cxlr"
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Phase", ".status.phase"),
        Column("Size", ".status.size"),
        Column("Used", ".status.used"),
        Column("Blade", ".spec.blade"),
        Column("Media", ".spec.media"),
        Column("Claim", ".status.claim"),
        Column("Hosts", ".status.hostsAttached"),
        Column("Hit rate", ".status.hitRate"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Epoch", ".spec.epoch", "integer", wide=True),
        Column("Policy", ".spec.reclaimPolicy", wide=True),
        Column("UUID", ".spec.uuid", wide=True),
    )

    spec: CXLRegionSpec
    status: CXLRegionStatus | None = None
