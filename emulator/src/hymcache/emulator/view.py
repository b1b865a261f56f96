"""What an appliance knows at one moment, as a value: every answer and every rule is computed from one of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hymcache.emulator.model import Access, Chunk, ChunkId, ChunkState, Connection, ConnectionId, Host, HostName


@dataclass(frozen=True)
class View:
    """Hosts, chunks and connections by id, never changed in place."""

    capacity_bytes: int
    power_epoch: int
    hosts: Mapping[HostName, Host] = field(default_factory=dict)
    chunks: Mapping[ChunkId, Chunk] = field(default_factory=dict)
    connections: Mapping[ConnectionId, Connection] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    """Names of the regions that the last power loss took."""

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all chunks, those being allocated or scrubbed included."""
        return sum(chunk.bytes for chunk in self.chunks.values())

    @property
    def free_bytes(self) -> int:
        """Bytes that new chunks may have."""
        return self.capacity_bytes - self.allocated_bytes

    def chunks_named(self, name: str) -> list[Chunk]:
        """Chunks of that name, oldest first; more than one only where the service was made to create duplicates."""
        return [chunk for chunk in self.chunks.values() if chunk.name == name]

    def connections_named(self, name: str) -> list[Connection]:
        """Connections of that name, oldest first."""
        return [connection for connection in self.connections.values() if connection.name == name]

    def connections_of(self, chunk: ChunkId) -> list[Connection]:
        """Connections that refer to a chunk."""
        return [connection for connection in self.connections.values() if connection.chunk == chunk]

    def access(self, chunk: ChunkId) -> dict[HostName, Access]:
        """Hosts that may use a chunk, each with the most that any of its connections grants."""
        granted: dict[HostName, Access] = {}
        for connection in self.connections_of(chunk):
            for host in connection.hosts:
                if granted.get(host) is not Access.READ_WRITE:
                    granted[host] = connection.access
        return granted

    def regions_of(self, host: HostName) -> list[tuple[Chunk, Access]]:
        """What one host may open now, oldest first."""
        return [
            (chunk, granted[host])
            for chunk in self.chunks.values()
            if chunk.state is ChunkState.READY and host in (granted := self.access(chunk.id))
        ]
