"""The nouns of an appliance: hosts, chunks, connections. Values only; the rules are in `blade`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NewType
from uuid import UUID

from hymcache.emulator.media import Memory

ChunkId = NewType("ChunkId", str)
ConnectionId = NewType("ConnectionId", str)
HostName = NewType("HostName", str)

MIB = 1 << 20


class Access(StrEnum):
    """What a connected host may do with a region's bytes; the values are those of the handover protocol."""

    READ_ONLY = "ro"
    READ_WRITE = "rw"


class Link(StrEnum):
    """State of the cable between the appliance and one host."""

    UP = "up"
    DOWN = "down"


class ChunkState(StrEnum):
    """Life of a chunk. Its bytes count against the capacity in every one of these states."""

    ALLOCATING = "allocating"
    READY = "ready"
    RELEASING = "releasing"


@dataclass(frozen=True)
class Host:
    """A host with a cable to this appliance.

    `uuid` is its system UUID, spelled as given: it names a folder that the host's own software looks for.
    """

    name: HostName
    uuid: str
    link: Link = Link.UP

    @property
    def key(self) -> UUID:
        """The UUID as a number, for comparing two spellings."""
        return UUID(self.uuid)


@dataclass(frozen=True)
class Chunk:
    """One piece of the blade's memory: a *memory chunk* in Redfish, a *region* for the hosts that it is handed to.

    `logical_device` is the CXL logical-device number that the chunk is presented as. `memory` is None until READY.
    """

    id: ChunkId
    name: str
    bytes: int
    logical_device: int
    state: ChunkState = ChunkState.ALLOCATING
    memory: Memory | None = field(default=None, compare=False, repr=False)

    def ready(self, memory: Memory) -> Chunk:
        """This chunk once its memory is allocated."""
        return replace(self, state=ChunkState.READY, memory=memory)

    def releasing(self) -> Chunk:
        """This chunk while its memory is scrubbed: no host gets it any more."""
        return replace(self, state=ChunkState.RELEASING)


@dataclass(frozen=True)
class Connection:
    """Lets `hosts` use one chunk. A host may use a chunk while at least one connection says so."""

    id: ConnectionId
    name: str
    chunk: ChunkId
    access: Access
    hosts: tuple[HostName, ...]
