"""The port over Redfish: every write is preceded and followed by a reading, and only the readings count.

A region is a MemoryChunk whose Name is its key; a host is attached while a Connection names the chunk and the host's
initiator endpoint. We make one Connection per chunk and host, and understand one with several initiators.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

from hymcache.operator.fabric.port import (
    Capabilities,
    FabricError,
    Fault,
    HostKey,
    Identity,
    Inventory,
    Region,
)
from hymcache.operator.fabric.redfish.http import Outcome, RedfishSettings, Transport
from hymcache.operator.fabric.redfish.tree import (
    HOSTS_PER_REGION_MAX,
    MIB,
    Chunk,
    Domain,
    Layout,
    Link,
    chunk_of,
    link_of,
    members,
    optional,
    read_layout,
    resolve,
)

T = TypeVar("T")


class Seen(Enum):
    """What a reading says about the state that a call is to reach."""

    DONE = "done"
    NOT_YET = "not-yet"
    """Under way by itself: wait, do not write."""
    OPEN = "open"
    """Not there: write."""


@dataclass(frozen=True)
class Reading(Generic[T]):
    """A reading, with its value when DONE."""

    seen: Seen
    value: T | None = None


def _ref(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def _hosts(layout: Layout, connection: Link) -> set[HostKey]:
    """Hosts that a connection names."""
    ends = (resolve(end, layout.hosts) for end in connection.initiators)
    return {layout.hosts[end] for end in ends if end in layout.hosts}


class RedfishFabric:
    """`Fabric` over one Redfish service."""

    def __init__(self, settings: RedfishSettings, after_write: Callable[[str], None] = lambda _: None) -> None:
        self.settings = settings
        self._http = Transport(settings, after_write)
        self._layout: Layout | None = None
        self._paths: dict[str, str] = {}

    def capabilities(self) -> Capabilities:
        """Redfish connects one chunk with any number of initiators."""
        return Capabilities(hosts_per_region_max=HOSTS_PER_REGION_MAX, hot_add=True)

    async def close(self) -> None:
        """Close the connection pool."""
        await self._http.close()

    async def inventory(self) -> Inventory:
        """Walk the service afresh."""
        return (await self._refreshed()).inventory

    async def compose(self, key: str, size: int, blade: str) -> Region:
        """Make or find the chunk named `key`."""
        domain = await self._domain(blade)
        body = {
            "Name": key,
            "DisplayName": key,
            "AddressRangeType": "Volatile",
            "MemoryChunkSizeMiB": size // MIB,
            "RequestedOperationalState": "Online",
        }

        async def look() -> Reading[Region]:
            chunks = await self._named(domain, key)
            if not chunks:
                return Reading(Seen.OPEN)
            chunk = await self._only(chunks)
            if chunk.bytes != size:
                raise FabricError(
                    Fault.CONFLICT,
                    f"region {key} on blade {blade}: expected {size} bytes, found {chunk.bytes}; remove it by hand, "
                    "or give this cluster a fabric name prefix of its own",
                )
            if chunk.state == "busy":
                return Reading(Seen.NOT_YET)
            return Reading(Seen.DONE, await self._region(domain, chunk))

        what = f"compose {key} of {size // MIB} MiB on blade {blade}"
        return await self._reach(what, look, lambda: self._http.write("POST", domain.chunks, body))

    async def find(self, key: str, blade: str) -> Region | None:
        """The chunk named `key`, with its hosts."""
        domain = await self._domain(blade)
        chunks = await self._named(domain, key)
        return await self._region(domain, await self._only(chunks)) if chunks else None

    async def attach(self, region: Region, host: HostKey) -> Identity:
        """Make or find a Connection of the chunk and the host."""
        layout = await self._known()
        domain = await self._domain(region.blade)
        if host not in domain.initiators:
            layout = await self._refreshed()  # cabled since the last inventory, perhaps
            domain = await self._domain(region.blade)
        initiator = domain.initiators.get(host)
        if initiator is None:
            raise FabricError(
                Fault.MISSING,
                f"host {host} on {self.settings.endpoint}: expected an initiator endpoint with that system UUID that "
                f"reaches blade {region.blade}, "
                "found none; check the cabling and the host's entry in the fabric manager",
            )
        chunk = chunk_of(region.handle, await self._http.get(region.handle))
        links = {"InitiatorEndpoints": [_ref(initiator)]}
        if chunk is not None and chunk.targets:
            links["TargetEndpoints"] = [_ref(path) for path in chunk.targets]
        body = {
            "Name": f"{region.name}.{host}",
            "ConnectionType": "Memory",
            "MemoryChunkInfo": [{"AccessCapabilities": ["Read", "Write"], "MemoryChunk": _ref(region.handle)}],
            "Links": links,
        }
        collection = next((c for c in layout.connections if initiator.startswith(c.rsplit("/", 1)[0] + "/")), None)
        where = collection or layout.connections[0]

        async def look() -> Reading[bool]:
            found = await self._links(region.handle, host)
            return Reading(Seen.DONE, value=True) if found else Reading(Seen.OPEN)

        what = f"attach {region.name} to host {host}"
        await self._reach(what, look, lambda: self._http.write("POST", where, body), full=Fault.REFUSED)
        return await self._identity(domain, region)

    async def detach(self, region: Region, host: HostKey) -> None:
        """Delete the host's Connection, or take the host out of one that has others."""
        layout = await self._known()
        if host not in layout.hosts.values():
            layout = await self._refreshed()

        async def look() -> Reading[bool]:
            found = await self._links(region.handle, host)
            return Reading(Seen.OPEN) if found else Reading(Seen.DONE, value=True)

        async def write() -> Outcome:
            outcome = Outcome(404, "nothing to disconnect")
            for connection in await self._links(region.handle, host):
                others = [end for end in connection.initiators if layout.hosts.get(resolve(end, layout.hosts)) != host]
                if others:
                    patch = {"Links": {"InitiatorEndpoints": [_ref(path) for path in others]}}
                    outcome = await self._http.write("PATCH", connection.path, patch)
                else:
                    outcome = await self._http.write("DELETE", connection.path)
            return outcome

        await self._reach(f"detach {region.name} from host {host}", look, write)

    async def release(self, region: Region) -> None:
        """Delete the chunk and see it gone."""
        domain = await self._domain(region.blade)
        connected = [connection for connection in await self._connections() if region.handle in connection.chunks]
        if any(connection.initiators for connection in connected):
            raise FabricError(
                Fault.CONFLICT, f"release {region.name}: expected no connected host, found some; detach them first"
            )
        for connection in connected:
            await self._http.write("DELETE", connection.path)

        async def look() -> Reading[bool]:
            left = [chunk for chunk in await self._named(domain, region.name) if chunk.path == region.handle]
            if not left:
                return Reading(Seen.DONE, value=True)
            return Reading(Seen.NOT_YET if left[0].state == "busy" else Seen.OPEN)

        await self._reach(f"release {region.name}", look, lambda: self._http.write("DELETE", region.handle))

    async def list_regions(self) -> list[Region]:
        """Every chunk of every domain."""
        layout = await self._known()
        found = [(domain, chunk) for domain in layout.domains.values() for chunk in await self._chunks(domain)]
        connections = await self._connections()
        return [self._as_region(layout, domain, chunk, connections) for domain, chunk in found]

    async def fence(self, host: HostKey, prefix: str) -> list[str]:
        """Detach the host from every region with the prefix."""
        fenced = []
        for region in await self.list_regions():
            if region.name.startswith(prefix) and host in region.hosts:
                await self.detach(region, host)
                fenced.append(region.name)
        return fenced

    async def _reach(
        self,
        what: str,
        look: Callable[[], Awaitable[Reading[T]]],
        write: Callable[[], Awaitable[Outcome]],
        *,
        full: Fault = Fault.NO_CAPACITY,
    ) -> T:
        """Read, write, read ... until the reading says DONE.

        The reading decides even when the write failed (500 but done) and even when it succeeded (200 and nothing).
        `full` is what a "no more room" answer means here.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.task_timeout_seconds
        outcome = Outcome(None, "not tried")
        writes, pauses = 0, (0.0, *self.settings.pauses_seconds)
        while loop.time() < deadline:
            reading = await look()
            if reading.seen is Seen.DONE:
                assert reading.value is not None, what
                return reading.value
            if reading.seen is Seen.NOT_YET:
                await asyncio.sleep(0.2)
                continue
            if outcome.refused or writes == len(pauses):
                break
            await asyncio.sleep(pauses[writes])
            outcome = await write()
            writes += 1
        raise self._failure(what, outcome, writes, full)

    def _failure(self, what: str, outcome: Outcome, writes: int, full: Fault) -> FabricError:
        text = f"{what} on {self.settings.endpoint}: tried {writes} times, last answer {outcome.message}"
        if outcome.capacity:
            return FabricError(full, f"{text}; ask for less, or free regions of the blade")
        if outcome.status == 412:
            return FabricError(Fault.DEPOSED, f"{text}; another operator leads now")
        if outcome.status in {401, 403}:
            return FabricError(Fault.REFUSED, f"{text}; check the credentials Secret")
        if outcome.refused:
            return FabricError(Fault.REFUSED, f"{text}; correct the request")
        return FabricError(Fault.UNAVAILABLE, f"{text}; check the fabric manager and the blade")

    async def _known(self) -> Layout:
        return self._layout or await self._refreshed()

    async def _refreshed(self) -> Layout:
        self._layout = await read_layout(self._http)
        return self._layout

    async def _domain(self, blade: str) -> Domain:
        layout = await self._known()
        if blade not in layout.domains:
            layout = await self._refreshed()
        try:
            return layout.domains[blade]
        except KeyError:
            raise FabricError(
                Fault.MISSING,
                f"blade {blade} on {self.settings.endpoint}: expected a memory domain of that name, found "
                f"{', '.join(sorted(layout.domains)) or 'none'}; check the appliance",
            ) from None

    async def _chunks(self, domain: Domain) -> list[Chunk]:
        """Every chunk of a domain. The collection must be there: an empty answer here would mean lost regions."""
        collection = await self._http.get(domain.chunks)
        chunks = [chunk_of(path, document) for path, document in await members(self._http, domain.chunks, collection)]
        found = [chunk for chunk in chunks if chunk is not None]
        self._paths.update({chunk.name: chunk.path for chunk in found})
        return found

    async def _named(self, domain: Domain, key: str) -> list[Chunk]:
        """Chunks named `key`: by the path it had last time, else by reading them all."""
        path = self._paths.get(key)
        if path is not None and path.startswith(domain.chunks.rstrip("/") + "/"):
            document = await optional(self._http, path)
            chunk = chunk_of(path, document) if document else None
            if chunk is not None and chunk.name == key:
                return [chunk]
            del self._paths[key]
        return [chunk for chunk in await self._chunks(domain) if chunk.name == key]

    async def _only(self, chunks: list[Chunk]) -> Chunk:
        """The one chunk of a name. Twins come from a lost reply on a service without idempotent names.

        The twin that a host is connected to stays, else the first by path; the others are deleted: they are ours by
        name, nobody was ever attached to them, and the same one is chosen whoever decides.
        """
        if len(chunks) == 1:
            return chunks[0]
        used = {path for connection in await self._connections() for path in connection.chunks}
        keep, *twins = sorted(chunks, key=lambda chunk: (chunk.path not in used, chunk.path))
        for twin in twins:
            if twin.path not in used:
                await self._http.write("DELETE", twin.path)
        self._paths[keep.name] = keep.path
        return keep

    async def _connections(self) -> list[Link]:
        layout = await self._known()
        found: list[Link] = []
        for path in layout.connections:
            documents = await members(self._http, path, await optional(self._http, path))
            found += [link_of(place, document) for place, document in documents]
        known = self._paths.values()
        return [replace(one, chunks=frozenset(resolve(chunk, known) for chunk in one.chunks)) for one in found]

    async def _links(self, chunk: str, host: HostKey) -> list[Link]:
        """Connections that let `host` use `chunk`."""
        layout = await self._known()
        return [one for one in await self._connections() if chunk in one.chunks and host in _hosts(layout, one)]

    async def _region(self, domain: Domain, chunk: Chunk) -> Region:
        return self._as_region(await self._known(), domain, chunk, await self._connections())

    @staticmethod
    def _as_region(layout: Layout, domain: Domain, chunk: Chunk, connections: list[Link]) -> Region:
        hosts = {host for one in connections if chunk.path in one.chunks for host in _hosts(layout, one)}
        return Region(chunk.name, domain.blade.name, chunk.bytes, frozenset(hosts), chunk.path)

    async def _identity(self, domain: Domain, region: Region) -> Identity:
        if self.settings.emulated:
            return Identity("cable", domain.blade.id, region.name)
        chunk = chunk_of(region.handle, await self._http.get(region.handle))
        for path in chunk.logical_devices if chunk else ():
            device = await optional(self._http, path)
            for identifier in device.get("Identifiers") or []:
                if identifier.get("DurableNameFormat") == "GCXLID":
                    return Identity("gcxlid", domain.blade.id, region.name, str(identifier["DurableName"]))
        raise FabricError(
            Fault.REFUSED,
            f"region {region.name} on {self.settings.endpoint}: expected a CXL logical device with a GCXLID, found "
            "none; the hosts could not recognise it",
        )
