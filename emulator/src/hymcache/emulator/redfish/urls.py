"""Where everything is in the Redfish tree, and how a link is read back into an id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hymcache.emulator.errors import ApplianceError, Kind
from hymcache.emulator.model import ChunkId, ConnectionId, HostName

ROOT = "/redfish/v1"
CHASSIS = f"{ROOT}/Chassis"
FABRICS = f"{ROOT}/Fabrics"
FABRIC = f"{FABRICS}/CXL"
ENDPOINTS = f"{FABRIC}/Endpoints"
CONNECTIONS = f"{FABRIC}/Connections"
ZONES = f"{FABRIC}/Zones"
ZONE = f"{ZONES}/1"
SWITCHES = f"{FABRIC}/Switches"
SWITCH = f"{SWITCHES}/1"
PORTS = f"{SWITCH}/Ports"
SESSION_SERVICE = f"{ROOT}/SessionService"
SESSIONS = f"{SESSION_SERVICE}/Sessions"
TASK_SERVICE = f"{ROOT}/TaskService"
TASKS = f"{TASK_SERVICE}/Tasks"
TASK_MONITORS = f"{TASK_SERVICE}/TaskMonitors"

Link = dict[str, str]
Payload = dict[str, Any]


def link(path: str) -> Link:
    """A reference to a resource."""
    return {"@odata.id": path}


def initiator(host: HostName) -> str:
    """The endpoint of a host."""
    return f"{ENDPOINTS}/I-{host}"


def target(chunk: ChunkId) -> str:
    """The endpoint that a chunk is reached through."""
    return f"{ENDPOINTS}/T-{chunk}"


def connection(identifier: ConnectionId) -> str:
    """A connection."""
    return f"{CONNECTIONS}/{identifier}"


def port(host: HostName) -> str:
    """The switch port that a host's cable is plugged into."""
    return f"{PORTS}/{host}"


def host_of(path: str) -> HostName:
    """The host that an initiator endpoint's link means. Raises ApplianceError BAD_VALUE: it means none."""
    return HostName(_last(path, f"{ENDPOINTS}/I-", "the link of an initiator endpoint"))


@dataclass(frozen=True)
class BladeUrls:
    """Addresses below one blade's chassis."""

    blade: str

    @property
    def chassis(self) -> str:
        """The blade itself."""
        return f"{CHASSIS}/{self.blade}"

    @property
    def domains(self) -> str:
        """Collection of memory domains: one."""
        return f"{self.chassis}/MemoryDomains"

    @property
    def domain(self) -> str:
        """The memory domain that all chunks are carved from."""
        return f"{self.domains}/1"

    @property
    def chunks(self) -> str:
        """Collection of chunks."""
        return f"{self.domain}/MemoryChunks"

    @property
    def devices(self) -> str:
        """Collection of PCIe devices: one."""
        return f"{self.chassis}/PCIeDevices"

    @property
    def device(self) -> str:
        """The blade's CXL device."""
        return f"{self.devices}/1"

    @property
    def logical_devices(self) -> str:
        """Collection of logical devices: 0 is the pool, every chunk has its own."""
        return f"{self.device}/CXLLogicalDevices"

    def chunk(self, identifier: ChunkId) -> str:
        """A chunk."""
        return f"{self.chunks}/{identifier}"

    def logical_device(self, number: int) -> str:
        """A logical device."""
        return f"{self.logical_devices}/{number}"

    def chunk_of(self, path: str) -> ChunkId:
        """The chunk that a link means. Raises ApplianceError BAD_VALUE: it means none."""
        return ChunkId(_last(path, f"{self.chunks}/", "the link of a memory chunk"))


def _last(path: str, prefix: str, expected: str) -> str:
    rest = path.rstrip("/").removeprefix(prefix)
    if not path.startswith(prefix) or not rest or "/" in rest:
        raise ApplianceError(
            Kind.BAD_VALUE,
            f"link {path}",
            expected=f"{expected} under {prefix}",
            found="another one",
            remedy="use the @odata.id that the collection shows",
        )
    return rest
