"""CXLNode: one host with a HyMCache plugin, under the name of its Node.

The plugin of that node writes the status, the operator the spec; the operator deletes the object with the Node.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from hymcache.crds.model import BladeName, Column, Message, Model, Resource, SystemUUID, list_map
from pydantic import Field


class CXLNodeSpec(Model):
    """What the plugin cannot read itself: it may not read Nodes."""

    system_uuid: SystemUUID | None = Field(default=None, description="From the Node's status, written by the operator.")


class NodePort(Model):
    """A cable end as the plugin sees it."""

    blade: BladeName
    state: Literal["Up", "Down"]
    message: Message | None = None


class Problem(Model):
    """Something that the plugin's preflight found."""

    code: str = Field(max_length=64, description="CamelCase word for programs, for example AutoOnlineBlocks.")
    message: Message = Field(description="One sentence: what was expected, what was found, what to do.")


class CXLNodeStatus(Model):
    """What the plugin reports with every heartbeat."""

    boot_id: str | None = Field(default=None, max_length=64, description="Changes with every boot of the host.")
    plugin_version: str | None = Field(default=None, max_length=64)
    registered: bool | None = Field(default=None, description="The kubelet has accepted the plugin.")
    heartbeat: datetime | None = Field(default=None, description="When the plugin last reported.")
    ports: list[NodePort] = Field(default_factory=list, max_length=64, json_schema_extra=list_map("blade"))
    ports_up: str | None = Field(
        default=None, max_length=16, description="Ports that are up / all ports, for the column."
    )
    problems: list[Problem] = Field(default_factory=list, max_length=32, json_schema_extra=list_map("code"))
    message: Message | None = Field(default=None, description="The first problem, for the column.")


class CXLNode(Resource):
    """One host with a plugin: boot id, version, ports, heartbeat, problems."""

    KIND: ClassVar[str] = "CXLNode"
    PLURAL: ClassVar[str] = "cxlnodes"
    SHORT: ClassVar[str] = "cxln"
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Ports", ".status.portsUp"),
        Column("Version", ".status.pluginVersion"),
        Column("Heartbeat", ".status.heartbeat", "date"),
        Column("Problem", ".status.message"),
        Column("Boot", ".status.bootID", wide=True),
        Column("System UUID", ".spec.systemUUID", wide=True),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )

    spec: CXLNodeSpec = Field(default_factory=CXLNodeSpec)
    status: CXLNodeStatus | None = None
