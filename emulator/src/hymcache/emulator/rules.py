"""What an appliance refuses. Every rule looks at a view and raises; none of them changes anything."""

from __future__ import annotations

from collections.abc import Sequence

from hymcache.emulator.errors import ApplianceError, Kind
from hymcache.emulator.model import Access, Chunk, ChunkId, ChunkState, Connection, ConnectionId, Host, HostName
from hymcache.emulator.settings import Settings
from hymcache.emulator.view import View

NAME_CHARACTERS_MAX = 200


def composable(view: View, settings: Settings, name: str, size: int) -> None:
    """A chunk of that name and size may be made."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
        raise ApplianceError(
            Kind.BAD_VALUE,
            "chunk name",
            expected=f"1 to {NAME_CHARACTERS_MAX} printable characters",
            found=repr(name[:NAME_CHARACTERS_MAX]),
            remedy="choose another Name",
        )
    granule = settings.granule_bytes
    if size <= 0 or size % granule:
        raise ApplianceError(
            Kind.BAD_VALUE,
            f"chunk {name}",
            expected=f"a positive multiple of the granule of {granule} bytes",
            found=f"{size} bytes",
            remedy="round the size up to the granule",
        )
    if len(view.chunks) >= settings.regions_max:
        raise ApplianceError(
            Kind.NO_CAPACITY,
            f"chunk {name}",
            expected=f"fewer than the {settings.regions_max} chunks that the blade can carve",
            found=f"{len(view.chunks)}",
            remedy="release another chunk, or use another blade",
        )
    if size > view.free_bytes:
        raise ApplianceError(
            Kind.NO_CAPACITY,
            f"chunk {name}",
            expected=f"at most the {view.free_bytes} bytes that are free of {view.capacity_bytes}",
            found=f"a request for {size}",
            remedy="release another chunk, ask for less, or use another blade",
        )


def same_chunk(existing: Chunk, size: int) -> None:
    """A chunk that is asked for again is the one that exists."""
    if existing.bytes != size:
        raise ApplianceError(
            Kind.EXISTS,
            f"chunk {existing.name}",
            expected=f"the {existing.bytes} bytes that it already has",
            found=f"a request for {size}",
            remedy="use the existing one, or choose another Name",
        )
    if existing.state is ChunkState.RELEASING:
        raise busy(existing)


def busy(chunk: Chunk) -> ApplianceError:
    """A chunk that is between two states."""
    return ApplianceError(
        Kind.BUSY,
        f"chunk {chunk.name}",
        expected="one that is ready",
        found=f"one that is still {chunk.state}",
        remedy="ask again in a moment",
    )


def chunk(view: View, identifier: ChunkId) -> Chunk:
    """The chunk with that id."""
    found = view.chunks.get(identifier)
    if found is None:
        raise _missing("chunk", identifier, view.chunks)
    return found


def connection(view: View, identifier: ConnectionId) -> Connection:
    """The connection with that id."""
    found = view.connections.get(identifier)
    if found is None:
        raise _missing("connection", identifier, view.connections)
    return found


def host(view: View, name: HostName) -> Host:
    """The host with that name."""
    found = view.hosts.get(name)
    if found is None:
        raise _missing("host", name, view.hosts)
    return found


def releasable(view: View, identifier: ChunkId) -> Chunk:
    """The chunk with that id, which no connection uses."""
    found = chunk(view, identifier)
    users = view.connections_of(identifier)
    if users:
        raise ApplianceError(
            Kind.IN_USE,
            f"chunk {found.name}",
            expected="no connection that refers to it",
            found=", ".join(user.id for user in users),
            remedy="delete its connections first",
        )
    if found.state is ChunkState.ALLOCATING:
        raise busy(found)
    return found


def connectable(view: View, settings: Settings, target: ChunkId, hosts: Sequence[HostName]) -> None:
    """These hosts may be connected to that chunk, beside those that are."""
    found = chunk(view, target)
    if found.state is not ChunkState.READY:
        raise busy(found)
    for name in hosts:
        host(view, name)
    users = {*view.access(target), *hosts}
    if len(users) > settings.hosts_max:
        raise ApplianceError(
            Kind.HOST_LIMIT,
            f"chunk {found.name}",
            expected=f"at most {settings.hosts_max} hosts",
            found=f"{len(users)}: {', '.join(sorted(users))}",
            remedy="disconnect a host, or share over fewer hosts",
        )


def same_connection(existing: Connection, target: ChunkId, access: Access, hosts: Sequence[HostName]) -> None:
    """A connection that is asked for again is the one that exists."""
    if (existing.chunk, existing.access, set(existing.hosts)) != (target, access, set(hosts)):
        raise ApplianceError(
            Kind.EXISTS,
            f"connection {existing.name}",
            expected=f"chunk {existing.chunk}, {existing.access}, hosts {', '.join(existing.hosts) or 'none'}",
            found=f"chunk {target}, {access}, hosts {', '.join(hosts)}",
            remedy="patch its InitiatorEndpoints, or choose another Name",
        )


def new_host(view: View, candidate: Host) -> Host | None:
    """The existing host that the candidate is, or None; another host must not have its name or UUID."""
    for known in view.hosts.values():
        if known.name == candidate.name and known.key == candidate.key:
            return known
        if known.name == candidate.name or known.key == candidate.key:
            raise ApplianceError(
                Kind.EXISTS,
                f"host {candidate.name}",
                expected="a name and a UUID that no other host has",
                found=f"{known.name}={known.uuid}",
                remedy="remove that host first",
            )
    return None


def removable_host(view: View, name: HostName) -> Host:
    """The host with that name, which no connection refers to."""
    found = host(view, name)
    users = [connection.id for connection in view.connections.values() if name in connection.hosts]
    if users:
        raise ApplianceError(
            Kind.IN_USE,
            f"host {name}",
            expected="no connection that refers to it",
            found=", ".join(users),
            remedy="delete its connections first, or force the removal",
        )
    return found


def _missing(what: str, identifier: str, known: object) -> ApplianceError:
    names = ", ".join(str(name) for name in list(known)[:8]) if isinstance(known, dict) else ""
    return ApplianceError(
        Kind.NOT_FOUND,
        f"{what} {identifier}",
        expected=f"one of: {names or 'none exists'}",
        found="no such one",
        remedy="list the collection again",
    )
