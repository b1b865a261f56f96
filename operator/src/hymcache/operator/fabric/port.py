"""The port to a fabric manager: what every backend promises, and in which words it fails.

Callers are the reconcilers, in one event loop; every call may take seconds and none blocks the loop. A call that
returns has *seen* the state it promises: replies are not believed, each write is followed by a read. A call that
raises has an unknown outcome unless its kind says otherwise; calling it again is always right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NewType, Protocol

HostKey = NewType("HostKey", str)
"""A system UUID in the form of `names.system_uuid_key`: lower case, no dashes."""


class Fault(Enum):
    """Why a call failed, by what the caller does next."""

    UNAVAILABLE = "unavailable"
    """No answer, or errors of the service itself, after retries: the blade or its manager is sick."""
    NO_CAPACITY = "no-capacity"
    """The blade has not that many bytes or regions left."""
    REFUSED = "refused"
    """The service calls the request wrong; asking again gives the same answer."""
    MISSING = "missing"
    """The blade, host or region is not on this fabric."""
    CONFLICT = "conflict"
    """The key exists with other properties."""
    DEPOSED = "deposed"
    """The fabric has served a newer leader."""


class FabricError(Exception):
    """A call to a fabric manager failed; the text says what was tried, what was found and what to do."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True)
class Blade:
    """One memory appliance as inventoried. `hosts` have a cable to it; `hosts_down` are those whose link is down."""

    name: str
    id: str
    bytes: int
    granule_bytes: int
    hosts: frozenset[HostKey]
    hosts_down: frozenset[HostKey] = frozenset()
    health: Literal["OK", "Warning", "Critical", "Unknown"] = "Unknown"
    media: str | None = None
    coherence: str | None = None
    max_hosts: int | None = None
    regions_max: int | None = None
    power_epoch: int | None = None
    message: str = ""


@dataclass(frozen=True)
class Inventory:
    """Everything a fabric manager has, read whole or not at all."""

    version: str
    blades: tuple[Blade, ...]
    hosts: dict[HostKey, str] = field(default_factory=dict)
    """System UUID as the fabric spells it, by its key."""


@dataclass(frozen=True)
class Region:
    """One region on a blade, ours or not. `hosts` are those that the fabric connects to it now."""

    name: str
    blade: str
    bytes: int
    hosts: frozenset[HostKey] = frozenset()
    handle: str = ""
    """The backend's own reference, unique on the fabric."""


@dataclass(frozen=True)
class Identity:
    """How a host recognises an attached region."""

    kind: Literal["cable", "gcxlid"]
    blade: str
    region: str
    gcxlid: str | None = None


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do at all."""

    hosts_per_region_max: int
    hot_add: bool
    """Hosts can be attached and detached while others use the region."""


class Fabric(Protocol):
    """A fabric manager. Hosts are named by `HostKey`, regions by the name that they were composed under."""

    def capabilities(self) -> Capabilities:
        """Limits of the backend; a constant."""

    async def inventory(self) -> Inventory:
        """Blades and hosts, read afresh and whole.

        Raises:
            FabricError: UNAVAILABLE; nothing partial is returned.
        """

    async def compose(self, key: str, size: int, blade: str) -> Region:
        """Make a region of exactly `size` bytes named `key` on `blade`, or find the one that has that name.

        Raises:
            FabricError: NO_CAPACITY, REFUSED, MISSING (no such blade), CONFLICT (the name has another size),
                UNAVAILABLE, DEPOSED.
        """

    async def attach(self, region: Region, host: HostKey) -> Identity:
        """Connect `host` to the region, read-write; the other hosts are not disturbed.

        Raises:
            FabricError: REFUSED (too many hosts), MISSING (host or region), UNAVAILABLE, DEPOSED.
        """

    async def detach(self, region: Region, host: HostKey) -> None:
        """Disconnect `host`; when it returns the host cannot reach the region. Not being connected is success.

        Raises:
            FabricError: UNAVAILABLE, DEPOSED.
        """

    async def release(self, region: Region) -> None:
        """Give the region's bytes back to the blade. The caller has detached every host. Being gone is success.

        Raises:
            FabricError: CONFLICT (a host is connected), UNAVAILABLE, DEPOSED.
        """

    async def find(self, key: str, blade: str) -> Region | None:
        """The region of that name, read afresh.

        Raises:
            FabricError: UNAVAILABLE, MISSING (no such blade).
        """

    async def list_regions(self) -> list[Region]:
        """Every region of every blade, ours or not, read whole or not at all.

        Raises:
            FabricError: UNAVAILABLE.
        """

    async def fence(self, host: HostKey, prefix: str) -> list[str]:
        """Disconnect `host` from every region whose name begins with `prefix`; returns their names.

        Raises:
            FabricError: UNAVAILABLE, DEPOSED.
        """

    async def close(self) -> None:
        """Let go of connections."""
