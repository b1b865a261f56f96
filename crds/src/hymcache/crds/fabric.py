"""CXLFabric: a fabric manager that HyMCache composes regions through. Users write the spec, the operator the status."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from hymcache.crds.model import (
    BladeName,
    Coherence,
    Column,
    Conditions,
    Media,
    Message,
    Model,
    Resource,
    SystemUUID,
    list_map,
    rules,
)
from pydantic import Field


class Backend(StrEnum):
    """How the fabric manager is spoken to: `emulated` is our own appliance, `redfish` any Redfish service."""

    EMULATED = "emulated"
    REDFISH = "redfish"


class Scrubber(StrEnum):
    """Who clears memory before it serves a new owner: the appliance, or the host with the init role."""

    FABRIC = "Fabric"
    HOST = "Host"


class Tls(Model):
    """How the endpoint's certificate is checked. A CA is read from key `ca.crt` of the credentials Secret."""

    insecure_skip_verify: bool = Field(
        default=False, description="Accept any certificate. For laboratories only: the credentials can be intercepted."
    )


class Cabling(Model):
    """Hosts that are cabled to one blade, where the fabric manager does not tell."""

    blade: BladeName = Field(description="Name of the CXLBlade.")
    hosts: list[SystemUUID] = Field(max_length=256, json_schema_extra={"x-kubernetes-list-type": "set"})


class CXLFabricSpec(Model):
    """Where the fabric manager is and what is declared about it."""

    backend: Backend = Field(default=Backend.REDFISH, description="How the fabric manager is spoken to.")
    endpoint: str = Field(
        min_length=1,
        max_length=2048,
        description="Base URL, for example https://fabric-manager.example.com:8443.",
        json_schema_extra=rules(("isURL(self) && self.startsWith('http')", "endpoint must be an http or https URL")),
    )
    credentials_secret: str | None = Field(
        default=None,
        max_length=253,
        description="Secret in the operator's namespace with `username`, `password` and, for a private CA, `ca.crt`.",
    )
    tls: Tls = Field(default_factory=Tls, description="How the endpoint's certificate is checked.")
    poll_interval_seconds: int = Field(
        default=30, ge=1, le=3600, description="Time between two inventories, in seconds."
    )
    coherence: Coherence = Field(
        default=Coherence.SOFTWARE,
        description="Coherence class of its blades. Declared, never guessed: `hardware` promises that every load, "
        "store and atomic is coherent across hosts.",
    )
    media: Media | None = Field(
        default=None, description="Media of its blades where the fabric manager does not tell; default dram."
    )
    max_hosts_per_region: int | None = Field(
        default=None, ge=1, le=256, description="At most this many hosts share a region, whatever the fabric says."
    )
    reserve_bytes: int = Field(default=0, ge=0, description="Bytes of each blade that are never offered.")
    scrub: Scrubber = Field(
        default=Scrubber.HOST,
        description="Who clears memory before a new owner gets it. `Fabric` only if the appliance hands out cleared "
        "memory at every compose.",
    )
    cabling: list[Cabling] = Field(
        default_factory=list,
        max_length=256,
        json_schema_extra=list_map("blade"),
        description="Cabled hosts per blade. A blade named here has exactly these, the others what the fabric says.",
    )


class CXLFabricStatus(Model):
    """What the operator found."""

    reachable: str | None = Field(
        default=None, max_length=16, description="`True`, `False` or `Unknown`, for the column."
    )
    version: str | None = Field(default=None, max_length=256, description="What the service calls itself.")
    blades: list[str] = Field(
        default_factory=list, max_length=256, description="Names of its CXLBlades.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )  # fmt: skip
    blade_count: int | None = Field(default=None, ge=0)
    last_inventory_time: datetime | None = Field(default=None, description="When the inventory was last read whole.")
    message: Message | None = Field(default=None, description="One sentence on the last failure, with what was tried.")
    conditions: Conditions
    observed_generation: int | None = Field(default=None, ge=0)


class CXLFabric(Resource):
    """A fabric manager: where it is, how to log in, what is declared about its blades."""

    KIND: ClassVar[str] = "CXLFabric"
    PLURAL: ClassVar[str] = "cxlfabrics"
    SHORT: ClassVar[str] = "cxlf"
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Backend", ".spec.backend"),
        Column("Reachable", ".status.reachable"),
        Column("Blades", ".status.bladeCount", "integer"),
        Column("Endpoint", ".spec.endpoint"),
        Column("Version", ".status.version", wide=True),
        Column("Message", ".status.message", wide=True),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )

    spec: CXLFabricSpec
    status: CXLFabricStatus | None = None
