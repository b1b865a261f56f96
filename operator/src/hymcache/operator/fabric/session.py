"""One fabric manager as the operator knows it now: the client, the last good inventory, and what we changed since.

Reconciles read from here; only what is to be destroyed is read afresh. A reading that began before a write of ours
does not overrule it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from hymcache.crds.fabric import CXLFabricSpec, Scrubber
from hymcache.crds.model import Coherence, Media
from hymcache.crds.names import system_uuid_key
from hymcache.operator.clock import Clock
from hymcache.operator.fabric.port import Blade, Fabric, HostKey, Inventory, Region


@dataclass(frozen=True)
class BladeFacts:
    """A blade with what was declared about its fabric."""

    name: str
    fabric: str
    id: str
    bytes: int
    """Capacity, the declared reserve left out."""
    granule_bytes: int
    hosts: frozenset[HostKey]
    """Cabled hosts with a link that is up."""
    hosts_down: frozenset[HostKey]
    max_hosts: int
    health: Literal["OK", "Warning", "Critical", "Unknown"]
    media: Media
    coherence: Coherence
    scrub: Scrubber
    power_epoch: int | None
    regions_max: int | None


@dataclass
class _Known:
    region: Region
    as_of: float
    absences: int = 0


class Session:
    """One CXLFabric's state. `fabric` is the object's name, `fingerprint` tells another spec or Secret apart."""

    def __init__(self, fabric: str, client: Fabric, spec: CXLFabricSpec, clock: Clock, fingerprint: str = "") -> None:
        self.fingerprint = fingerprint
        self.fabric = fabric
        self.client = client
        self.spec = spec
        self._clock = clock
        self.inventory: Inventory | None = None
        self.error: str | None = None
        self.failures = 0
        self.refreshed: float | None = None
        """When the last good inventory was complete, by the monotonic clock."""
        self._regions: dict[str, _Known] = {}
        self._forgotten: dict[str, float] = {}
        self._composing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def reachable(self) -> bool:
        """The last inventory was read whole."""
        return self.inventory is not None and self.error is None

    @asynccontextmanager
    async def composing(self, blade: str) -> AsyncIterator[None]:
        """One compose per blade at a time: some managers can only tell their regions apart by before and after."""
        async with self._composing[blade]:
            yield

    async def refresh(self) -> set[str]:
        """Read the fabric whole; returns names of regions that look different from before.

        Raises:
            FabricError: it could not be read; what was known stays, `error` says why.
        """
        started = self._clock.monotonic()
        try:
            inventory = await self.client.inventory()
            regions = await self.client.list_regions()
        except Exception as error:
            self.error, self.failures = str(error), self.failures + 1
            raise
        self.inventory, self.error, self.failures = inventory, None, 0
        self.refreshed = self._clock.monotonic()
        return self._merge({region.name: region for region in regions}, started)

    def _merge(self, found: dict[str, Region], started: float) -> set[str]:
        changed: set[str] = set()
        for name, region in found.items():
            known = self._regions.get(name)
            if self._forgotten.get(name, -1.0) >= started or (known and known.as_of >= started):
                continue  # written by us since the reading began
            if known is None or known.region != region or known.absences:
                changed.add(name)
            self._regions[name] = _Known(region, started)
        for name, known in list(self._regions.items()):
            if name in found or known.as_of >= started:
                continue
            known.absences += 1
            changed.add(name)
        self._forgotten = {name: moment for name, moment in self._forgotten.items() if moment >= started}
        return changed

    # --- regions -----------------------------------------------------------------------------------------------------
    def record(self, region: Region) -> None:
        """A region as a write of ours has left it."""
        self._forgotten.pop(region.name, None)
        self._regions[region.name] = _Known(region, self._clock.monotonic())

    def forget(self, name: str) -> None:
        """A region that a write of ours has removed, or that is known to be lost."""
        self._regions.pop(name, None)
        self._forgotten[name] = self._clock.monotonic()

    def region(self, name: str) -> Region | None:
        """The region if the fabric has it, or had it before the last inventory alone missed it."""
        known = self._regions.get(name)
        return known.region if known and known.absences < 2 else None

    def missing(self, name: str) -> bool:
        """Two good inventories in a row did not have a region that was there."""
        known = self._regions.get(name)
        return known is not None and known.absences >= 2

    def regions_on(self, blade: str) -> list[Region]:
        """Regions of a blade, ours or not."""
        return [k.region for k in self._regions.values() if k.region.blade == blade and k.absences < 2]

    # --- blades ------------------------------------------------------------------------------------------------------
    def blades(self) -> list[BladeFacts]:
        """All blades of the last inventory."""
        return [self._facts(blade) for blade in self.inventory.blades] if self.inventory else []

    def blade(self, name: str) -> BladeFacts | None:
        """One blade of the last inventory."""
        return next((facts for facts in self.blades() if facts.name == name), None)

    def _facts(self, blade: Blade) -> BladeFacts:
        spec = self.spec
        declared = next((cabling.hosts for cabling in spec.cabling if cabling.blade == blade.name), None)
        hosts = blade.hosts if declared is None else frozenset(HostKey(system_uuid_key(uuid)) for uuid in declared)
        limits = (blade.max_hosts, spec.max_hosts_per_region, self.client.capabilities().hosts_per_region_max)
        # A fabric may call its memory less coherent than was declared, never more.
        software = Coherence.SOFTWARE in {spec.coherence, blade.coherence}
        media = spec.media or (Media(blade.media) if blade.media in set(Media) else Media.DRAM)
        return BladeFacts(
            name=blade.name,
            fabric=self.fabric,
            id=blade.id,
            bytes=max(0, blade.bytes - spec.reserve_bytes),
            granule_bytes=blade.granule_bytes,
            hosts=hosts - blade.hosts_down,
            hosts_down=hosts & blade.hosts_down,
            max_hosts=min(limit for limit in limits if limit is not None),
            health=blade.health,
            media=media,
            coherence=Coherence.SOFTWARE if software else spec.coherence,
            scrub=spec.scrub,
            power_epoch=blade.power_epoch,
            regions_max=blade.regions_max,
        )


class Sessions:
    """All fabrics by name; a blade belongs to the fabric that named it first."""

    def __init__(self) -> None:
        self._by_name: dict[str, Session] = {}

    def all(self) -> list[Session]:
        """Every session."""
        return list(self._by_name.values())

    def get(self, fabric: str) -> Session | None:
        """The session of a CXLFabric."""
        return self._by_name.get(fabric)

    async def put(self, session: Session) -> None:
        """Take a session in; an older one of the same fabric is closed."""
        await self.drop(session.fabric)
        self._by_name[session.fabric] = session

    async def drop(self, fabric: str) -> None:
        """Close and forget."""
        old = self._by_name.pop(fabric, None)
        if old is not None:
            await old.client.close()
