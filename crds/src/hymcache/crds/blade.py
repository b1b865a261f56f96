"""CXLBlade: one memory appliance, as the fabric's inventory shows it. Written by the operator alone.

It owns its ResourceSlice: the slice goes when the blade goes.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from hymcache.crds.model import (
    Coherence,
    Column,
    Conditions,
    Media,
    Message,
    Model,
    Resource,
    SystemUUID,
    fixed_once_set,
    list_map,
    rules,
)
from pydantic import ConfigDict, Field


class CXLBladeSpec(Model):
    """Which appliance this is."""

    model_config = ConfigDict(json_schema_extra=rules(*fixed_once_set("fabric", "bladeID")))

    fabric: str = Field(min_length=1, max_length=253, description="Name of its CXLFabric.")
    blade_id: str = Field(min_length=1, max_length=256, description="Identifier on the fabric.")


class CabledHost(Model):
    """A host with a cable to the blade."""

    system_uuid: SystemUUID
    node: str | None = Field(default=None, max_length=253, description="Node with that system UUID, if there is one.")
    state: Literal["Cabled", "NoNode", "NoPlugin"] = Field(
        description="`Cabled`: its plugin is alive, pods may be placed there."
    )


class CXLBladeStatus(Model):
    """What the last inventory said, and what the operator does with it."""

    media: Media | None = Field(default=None, description="What the memory is made of.")
    coherence: Coherence | None = Field(default=None, description="Declared coherence class.")
    bytes: int | None = Field(default=None, ge=0, description="Capacity, reserve left out.")
    granule_bytes: int | None = Field(default=None, ge=1, description="Sizes are multiples of this.")
    free_bytes: int | None = Field(
        default=None, ge=0, description="Capacity minus all regions on the blade, ours or not."
    )
    foreign_bytes: int | None = Field(default=None, ge=0, description="Bytes of regions that HyMCache did not make.")
    max_hosts: int | None = Field(default=None, ge=1, description="At most this many hosts share a region.")
    regions: int | None = Field(default=None, ge=0, description="Regions on the blade, ours or not.")
    power_epoch: int | None = Field(default=None, ge=0, description="Grows when the blade lost its memory.")
    capacity: str | None = Field(default=None, max_length=32, description="`bytes` for the column.")
    free: str | None = Field(default=None, max_length=32, description="`freeBytes` for the column.")
    health: Literal["OK", "Warning", "Critical", "Unknown"] | None = Field(
        default=None, description="Health as reported."
    )
    hosts: list[CabledHost] = Field(default_factory=list, max_length=256, json_schema_extra=list_map("systemUUID"))
    hosts_cabled: str | None = Field(
        default=None, max_length=16, description="Hosts with a live plugin / cabled hosts."
    )
    cap_bytes: int | None = Field(
        default=None, ge=0, description="After a failed compose: no more than this is offered until `retryTime`."
    )
    retry_time: datetime | None = Field(default=None, description="When a blade that failed is offered again.")
    failures: int | None = Field(default=None, ge=0, description="Failed composes in a row.")
    message: Message | None = Field(default=None, description="One sentence on what is wrong and what to do.")
    conditions: Conditions
    observed_generation: int | None = Field(default=None, ge=0)


class CXLBlade(Resource):
    """One memory appliance: capacity, granule, cabled hosts, health."""

    KIND: ClassVar[str] = "CXLBlade"
    PLURAL: ClassVar[str] = "cxlblades"
    SHORT: ClassVar[str] = "cxlb"
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Fabric", ".spec.fabric"),
        Column("Media", ".status.media"),
        Column("Capacity", ".status.capacity"),
        Column("Free", ".status.free"),
        Column("Regions", ".status.regions", "integer"),
        Column("Hosts", ".status.hostsCabled"),
        Column("Health", ".status.health"),
        Column("Coherence", ".status.coherence", wide=True),
        Column("Message", ".status.message", wide=True),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )

    spec: CXLBladeSpec
    status: CXLBladeStatus | None = None
