"""The whole readable tree as one function from an address to a payload."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hymcache.emulator.model import ChunkId, ConnectionId, HostName
from hymcache.emulator.redfish import chassis, fabric, service, urls
from hymcache.emulator.redfish.chassis import collection
from hymcache.emulator.redfish.sessions import SESSION_TIMEOUT_SECONDS, Access
from hymcache.emulator.redfish.tasks import Tasks, now
from hymcache.emulator.redfish.urls import BladeUrls, Payload
from hymcache.emulator.settings import Settings
from hymcache.emulator.view import View

NOT_EXPANDED = ("Links", "Actions", "Oem")


@dataclass(frozen=True)
class Tree:
    """Renders resources. `view` is called once per rendering, so that one answer shows one moment."""

    settings: Settings
    view: Callable[[], View]
    access: Access
    tasks: Tasks

    def get(self, path: str, *, expand: bool = False) -> Payload | None:
        """The payload at an address (a slash at its end does not matter), or None where there is nothing.

        `expand` puts the referenced resources of one level below in place of their links (`$expand=.`).
        """
        view = self.view()
        found = self._render(path, view)
        if found is None or not expand:
            return found
        return {key: value if key in NOT_EXPANDED else self._expand(value, view) for key, value in found.items()}

    def _expand(self, value: Any, view: View) -> Any:
        if isinstance(value, list):
            return [self._expand(item, view) for item in value]
        if isinstance(value, dict) and list(value) == ["@odata.id"]:
            return self._render(value["@odata.id"], view) or value
        return value

    def _render(self, path: str, view: View) -> Payload | None:
        at = BladeUrls(self.settings.blade)
        path = path.rstrip("/")
        fixed = self._fixed(path, view, at)
        if fixed is not None:
            return fixed
        parent, _, name = path.rpartition("/")
        match parent:
            case at.chunks:
                chunk = view.chunks.get(ChunkId(name))
                return chassis.chunk(self.settings, chunk) if chunk else None
            case at.logical_devices:
                number = int(name) if re.fullmatch(r"0|[1-9][0-9]{0,4}", name) else -1
                return chassis.logical_device(self.settings, view, number)
            case urls.CONNECTIONS:
                connection = view.connections.get(ConnectionId(name))
                return fabric.connection(self.settings, connection) if connection else None
            case urls.ENDPOINTS:
                return self._endpoint(name, view)
            case urls.PORTS:
                host = view.hosts.get(HostName(name))
                return fabric.port(host) if host else None
            case urls.SESSIONS:
                return self.access.payload(name)
            case urls.TASKS:
                return self.tasks.payload(name)
        return None

    def _endpoint(self, name: str, view: View) -> Payload | None:
        host = view.hosts.get(HostName(name.removeprefix("I-"))) if name.startswith("I-") else None
        chunk = view.chunks.get(ChunkId(name.removeprefix("T-"))) if name.startswith("T-") else None
        if host:
            return fabric.initiator(view, host)
        return fabric.target(self.settings, view, chunk) if chunk else None

    def _fixed(self, path: str, view: View, at: BladeUrls) -> Payload | None:
        """The resources that are always there."""
        collections = {
            urls.CHASSIS: ("ChassisCollection", "Chassis", [at.chassis]),
            at.domains: ("MemoryDomainCollection", "Memory domains", [at.domain]),
            at.chunks: ("MemoryChunksCollection", "Memory chunks", [at.chunk(chunk) for chunk in view.chunks]),
            at.devices: ("PCIeDeviceCollection", "PCIe devices", [at.device]),
            urls.FABRICS: ("FabricCollection", "Fabrics", [urls.FABRIC]),
            urls.ENDPOINTS: ("EndpointCollection", "Endpoints", fabric.endpoints(view)),
            urls.CONNECTIONS: ("ConnectionCollection", "Connections", [*map(urls.connection, view.connections)]),
            urls.ZONES: ("ZoneCollection", "Zones", [urls.ZONE]),
            urls.SWITCHES: ("SwitchCollection", "Switches", [urls.SWITCH]),
            urls.PORTS: ("PortCollection", "Ports", [*map(urls.port, view.hosts)]),
            urls.SESSIONS: ("SessionCollection", "Sessions", self.access.members()),
            urls.TASKS: ("TaskCollection", "Tasks", self.tasks.members()),
        }
        if path in collections:
            kind, name, members = collections[path]
            return collection(kind, name, path, members)
        singles: dict[str, Callable[[], Payload]] = {
            urls.ROOT: lambda: service.root(self.settings),
            at.chassis: lambda: chassis.chassis(self.settings),
            at.domain: lambda: chassis.domain(self.settings, view),
            at.device: lambda: chassis.device(self.settings),
            at.logical_devices: lambda: chassis.logical_devices(self.settings, view),
            urls.FABRIC: fabric.fabric,
            urls.ZONE: lambda: fabric.zone(view),
            urls.SWITCH: fabric.switch,
            urls.SESSION_SERVICE: lambda: service.session_service(SESSION_TIMEOUT_SECONDS),
            urls.TASK_SERVICE: lambda: service.task_service(now()),
        }
        return singles[path]() if path in singles else None
