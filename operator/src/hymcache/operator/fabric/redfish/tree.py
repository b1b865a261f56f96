"""Redfish documents -> blades, hosts, chunks and links. No document is trusted to be complete or well linked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from hymcache.crds.names import BLADE_NAME_LENGTH_MAX, system_uuid_key
from hymcache.operator.fabric.port import Blade, FabricError, Fault, HostKey, Inventory
from hymcache.operator.fabric.redfish.http import Transport

MIB = 1 << 20
ROOT = "/redfish/v1/"
HOSTS_PER_REGION_MAX = 256
GONE_STATES = frozenset({"Absent", "Disabled"})
BUSY_STATES = frozenset({"Starting", "Updating", "Deferring", "Quiesced", "InTest", "UnavailableOffline"})
"""A chunk that is being made or scrubbed: it holds its bytes, and will change by itself."""


def link(value: Any) -> str:
    """The `@odata.id` of a reference, or an empty string."""
    return str(value.get("@odata.id", "")) if isinstance(value, dict) else ""


def child(parent: str, value: Any, name: str) -> str:
    """Where `name` below `parent` is: the advertised link if it really lies below the parent, else the path by rule."""
    advertised = link(value)
    return advertised if advertised.startswith(parent.rstrip("/") + "/") else f"{parent.rstrip('/')}/{name}"


def resolve(reference: str, known: Collection[str]) -> str:
    """A reference as one of the `known` paths, when an aggregator cut its middle out: only root and name are left."""
    root, _, name = reference.rstrip("/").rpartition("/")
    if root != ROOT.rstrip("/"):
        return reference
    same = [path for path in known if path.rsplit("/", 1)[-1] == name]
    return same[0] if len(same) == 1 else reference


def blade_name(chassis: str, domain: str) -> str:
    """A DNS label for a memory domain: the chassis, and the domain when it is not the first."""
    raw = chassis if domain == "1" else f"{chassis}-{domain}"
    return re.sub(r"[^a-z0-9]+", "-", raw.lower()).strip("-")[:BLADE_NAME_LENGTH_MAX].strip("-")


@dataclass(frozen=True)
class Domain:
    """A memory domain that regions can be made in: one blade."""

    blade: Blade
    chunks: str
    """Path of its MemoryChunks."""
    initiators: dict[HostKey, str] = field(default_factory=dict)
    """Per cabled host the endpoint to connect: a host has one for each of its root ports."""


@dataclass(frozen=True)
class Layout:
    """Paths of one service, as the last inventory found them."""

    inventory: Inventory
    domains: dict[str, Domain]
    hosts: dict[str, HostKey]
    """Host of each initiator endpoint, by path."""
    connections: tuple[str, ...]
    """Paths of the Connections collections, one per fabric."""


@dataclass(frozen=True)
class Chunk:
    """A MemoryChunk."""

    path: str
    name: str
    bytes: int
    state: Literal["ready", "busy"]
    logical_devices: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    """Paths of the target endpoints that lead to it, where the service tells."""


@dataclass(frozen=True)
class Link:
    """A Connection of memory chunks with initiators."""

    path: str
    chunks: frozenset[str]
    initiators: tuple[str, ...]


async def optional(http: Transport, path: str) -> dict[str, Any]:
    """The document at `path`, or an empty one: some services make a collection with its first entry."""
    try:
        return await http.get(path)
    except FabricError as error:
        if error.fault is Fault.MISSING:
            return {}
        raise


async def members(http: Transport, path: str, collection: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Path and document of each member of the collection at `path`; one that went away meanwhile is left out."""
    names = [link(member).rstrip("/").rsplit("/", 1)[-1] for member in collection.get("Members", [])]
    links = zip(names, collection.get("Members", []), strict=True)
    paths = [child(path, member, name) for name, member in links if name]
    documents = await asyncio.gather(*(optional(http, place) for place in paths))
    return [(place, document) for place, document in zip(paths, documents, strict=True) if document]


def _health(status: dict[str, Any]) -> Literal["OK", "Warning", "Critical", "Unknown"]:
    match status.get("HealthRollup") or status.get("Health"):
        case "OK":
            return "OK"
        case "Warning":
            return "Warning"
        case "Critical":
            return "Critical"
        case _:
            return "Unknown"


def _oem(*documents: dict[str, Any]) -> dict[str, Any]:
    """What HyMCache's own appliance adds: media, coherence, limits, power epoch."""
    merged: dict[str, Any] = {}
    for document in documents:
        merged.update((document.get("Oem") or {}).get("HyMCache") or {})
    return merged


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _uuids(endpoint: dict[str, Any]) -> Iterable[str]:
    """System UUIDs of an initiator endpoint, from the endpoint and from its entities."""
    holders = [endpoint, *(e for e in endpoint.get("ConnectedEntities", []) if e.get("EntityRole") == "Initiator")]
    for holder in holders:
        for identifier in holder.get("Identifiers") or []:
            if identifier.get("DurableNameFormat") == "UUID" and identifier.get("DurableName"):
                yield str(identifier["DurableName"])


def _role(endpoint: dict[str, Any], role: str) -> bool:
    return any(entity.get("EntityRole") in {role, "Both"} for entity in endpoint.get("ConnectedEntities", []))


def chunk_of(path: str, document: dict[str, Any]) -> Chunk | None:
    """A MemoryChunk document, or None when it describes nothing that holds memory."""
    state = (document.get("Status") or {}).get("State", "Enabled")
    size = document.get("MemoryChunkSizeMiB")
    if state in GONE_STATES or not isinstance(size, int):
        return None
    links = document.get("Links") or {}
    devices, targets = (
        tuple(filter(None, map(link, links.get(key, [])))) for key in ("CXLLogicalDevices", "Endpoints")
    )
    busy = state in BUSY_STATES
    return Chunk(path, str(document.get("Name", "")), size * MIB, "busy" if busy else "ready", devices, targets)


def link_of(path: str, document: dict[str, Any]) -> Link:
    """A Connection document."""
    chunks = frozenset(link(info.get("MemoryChunk")) for info in document.get("MemoryChunkInfo", []))
    initiators = (document.get("Links") or {}).get("InitiatorEndpoints", [])
    return Link(path, chunks - {""}, tuple(link(i) for i in initiators if link(i)))


class _Endpoints:
    """Endpoints and zones of all fabrics, indexed for the question "which hosts reach this chassis"."""

    def __init__(self) -> None:
        self.hosts: dict[str, HostKey] = {}
        self.spelling: dict[HostKey, str] = {}
        self.down: set[str] = set()
        self.targets: list[tuple[str, str]] = []
        self.zones: list[frozenset[str]] = []

    def add(self, path: str, document: dict[str, Any]) -> None:
        for uuid in _uuids(document):
            key = HostKey(system_uuid_key(uuid))
            self.hosts[path] = key
            self.spelling.setdefault(key, uuid)
            if (document.get("Status") or {}).get("State", "Enabled") != "Enabled":
                self.down.add(path)
        if _role(document, "Target"):
            entities = document.get("ConnectedEntities", [])
            self.targets += [(path, link(entity.get("EntityLink"))) for entity in entities]

    def of_chassis(self, chassis: str) -> dict[HostKey, str]:
        """Per host an initiator that shares a zone with a target of the chassis; without such a zone every one does.

        An initiator whose link is up comes before one whose link is down.
        """
        targets = {path for path, entity in self.targets if entity.startswith(chassis.rstrip("/") + "/")}
        zones = [zone for zone in self.zones if zone & targets]
        reachable = [path for path in self.hosts if not zones or any(path in zone for zone in zones)]
        best: dict[HostKey, str] = {}
        for path in sorted(reachable, key=lambda path: (path in self.down, path)):
            best.setdefault(self.hosts[path], path)
        return best


async def _endpoints(http: Transport, fabrics: list[tuple[str, dict[str, Any]]]) -> _Endpoints:
    found = _Endpoints()
    for path, fabric in fabrics:
        collection = await optional(http, child(path, fabric.get("Endpoints"), "Endpoints"))
        for endpoint, document in await members(http, child(path, fabric.get("Endpoints"), "Endpoints"), collection):
            found.add(endpoint, document)
        if fabric.get("Zones"):
            zones = await optional(http, child(path, fabric.get("Zones"), "Zones"))
            for _, zone in await members(http, child(path, fabric.get("Zones"), "Zones"), zones):
                found.zones.append(frozenset(link(e) for e in (zone.get("Links") or {}).get("Endpoints", [])))
    return found


async def _chassis_domains(http: Transport, path: str, chassis: dict[str, Any], ends: _Endpoints) -> list[Domain]:
    if not chassis.get("MemoryDomains"):
        return []
    where = child(path, chassis.get("MemoryDomains"), "MemoryDomains")
    domains = []
    for domain_path, domain in await members(http, where, await optional(http, where)):
        size = domain.get("MemorySizeMiB")
        initiators = ends.of_chassis(path)
        if not domain.get("AllowsMemoryChunkCreation") or not isinstance(size, int):
            continue
        oem = _oem(chassis, domain)
        chassis_id = str(chassis.get("Id") or path.rstrip("/").rsplit("/", 1)[1])
        domain_id = str(domain.get("Id") or domain_path.rstrip("/").rsplit("/", 1)[1])
        step = domain.get("MemoryChunkIncrementMiB") or domain.get("MinMemoryChunkSizeMiB") or 1
        blade = Blade(
            name=blade_name(chassis_id, domain_id),
            id=chassis_id,
            bytes=size * MIB,
            granule_bytes=int(step) * MIB,
            hosts=frozenset(initiators),
            hosts_down=frozenset(host for host, end in initiators.items() if end in ends.down),
            health=_health(domain.get("Status") or chassis.get("Status") or {}),
            media=oem.get("Media"),
            coherence=oem.get("Coherence"),
            max_hosts=_positive(oem.get("MaxHostsPerChunk")),
            regions_max=_positive(oem.get("MaxRegions")),
            power_epoch=oem.get("PowerEpoch") if isinstance(oem.get("PowerEpoch"), int) else None,
        )
        chunks = child(domain_path, domain.get("MemoryChunks"), "MemoryChunks")
        domains.append(Domain(blade, chunks, initiators))
    return domains


async def read_layout(http: Transport) -> Layout:
    """Walk the whole service.

    Raises:
        FabricError: something that must be there could not be read; nothing partial is returned.
    """
    root = await http.get(ROOT)
    at_fabrics, at_chassis = (child(ROOT, root.get(name), name) for name in ("Fabrics", "Chassis"))
    fabrics = await members(http, at_fabrics, await http.get(at_fabrics))
    chassis = await members(http, at_chassis, await http.get(at_chassis))
    ends = await _endpoints(http, fabrics)
    found = await asyncio.gather(*(_chassis_domains(http, path, document, ends) for path, document in chassis))
    domains = {domain.blade.name: domain for group in found for domain in group}
    product = " ".join(str(root[key]) for key in ("Vendor", "Product") if root.get(key))
    version = f"{product or root.get('Name', 'Redfish')} (Redfish {root.get('RedfishVersion', 'unknown')})"
    return Layout(
        inventory=Inventory(version, tuple(d.blade for d in domains.values()), ends.spelling),
        domains=domains,
        hosts=ends.hosts,
        connections=tuple(child(path, fabric.get("Connections"), "Connections") for path, fabric in fabrics),
    )
