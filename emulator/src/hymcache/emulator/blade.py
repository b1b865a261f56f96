"""One memory blade: the only place where hosts, chunks and connections change.

Everything here runs on the event loop, except `view` and `open`, which the cables' threads call too. A change replaces
the view as a whole, and is on disk before anybody hears of it. The slow work - allocating and scrubbing - happens in
worker threads, one piece at a time, while its bytes are already counted: two composes that run together can never
promise the same bytes, and released bytes are free only once they are scrubbed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hymcache.emulator import rules
from hymcache.emulator.errors import ApplianceError, Kind
from hymcache.emulator.media import Cancelled, Medium, Memory, OutOfMemory
from hymcache.emulator.model import Access, Chunk, ChunkId, ChunkState, Connection, ConnectionId, Host, HostName, Link
from hymcache.emulator.settings import REGIONS_LIMIT, AfterPowerLoss, Settings
from hymcache.emulator.store import State, Store, chunk_of, connection_of, host_of, records
from hymcache.emulator.view import View
from hymcache.emulator.work import Work, Works

log = logging.getLogger(__name__)


class Blade:
    """The blade's state and what may be done to it; see the module for threads.

    Making one is a power-on: whatever the store remembers was memory that a power loss took. `start` completes it.
    """

    def __init__(self, settings: Settings, medium: Medium, store: Store | None = None) -> None:
        self.settings = settings
        self._medium = medium
        self._store = store
        self._lock = threading.Lock()  # a descriptor is made under it, and a view replaced: revoked means revoked
        self._one_at_a_time = asyncio.Lock()
        self._works = Works()
        past = store.state if store else State(blade=settings.blade)
        self._next_id = past.next_id
        self._view = View(
            capacity_bytes=settings.capacity_bytes,
            power_epoch=past.power_epoch or int(time.time()),
            hosts={host.name: host for host in _hosts(settings, past)},
            chunks={chunk.id: chunk for chunk in map(chunk_of, past.chunks)},
            connections={connection.id: connection for connection in map(connection_of, past.connections)},
        )
        self._lose_power()

    @property
    def view(self) -> View:
        """What is true now; any thread."""
        return self._view

    def done_bytes(self, chunk: ChunkId) -> int:
        """How much of a chunk that is being allocated exists already."""
        return self._works.done_bytes(chunk)

    async def start(self) -> None:
        """Give memory to the regions that the books say exist (after a power loss with `empty`)."""
        waiting = [chunk for chunk in self._view.chunks.values() if chunk.state is ChunkState.ALLOCATING]
        for chunk in waiting:
            self._start_allocation(chunk)
        for chunk in waiting:
            try:
                await self._works.finished(chunk.id)
            except ApplianceError as error:
                log.error("region not restored: %s", error)

    async def close(self) -> None:
        """Power off: nobody can read any region's bytes afterwards. The books stay as they are."""
        await self._works.drain()
        with self._lock:
            gone = _memories(self._view)
            self._view = replace(self._view, chunks={}, connections={})
        await self._destroy(gone)
        if self._store:
            self._store.close()

    # --- chunks -----------------------------------------------------------------------------------------------------

    async def compose(self, name: str, size: int, *, duplicate: bool = False) -> tuple[Chunk, bool]:
        """The chunk of that name with its memory, and whether this call made it; waits until it is ready.

        The name is the idempotency key: asking again, also while the first call runs, gives the same chunk.
        `duplicate` makes another one all the same: the fault of a service that is not idempotent.

        Raises:
            ApplianceError: BAD_VALUE, EXISTS (another size), NO_CAPACITY, BUSY (being released), POWER_LOST.
        """
        existing = [] if duplicate else self._view.chunks_named(name)
        if existing:
            chunk = existing[0]
            rules.same_chunk(chunk, size)
        else:
            rules.composable(self._view, self.settings, name, size)
            chunk = Chunk(ChunkId(str(self._take_id())), name, size, self._free_logical_device())
            self._replace(chunks={**self._view.chunks, chunk.id: chunk})
            self._start_allocation(chunk)
            log.info("compose chunk=%s name=%s bytes=%d", chunk.id, name, size)
        await self._works.finished(chunk.id)
        made = self._view.chunks.get(chunk.id)
        if made is None:
            raise _power_lost(chunk)
        if made.state is not ChunkState.READY:
            raise rules.busy(made)
        return made, not existing

    async def release(self, identifier: ChunkId) -> None:
        """Scrub a chunk and forget it; its bytes are free when this returns.

        Raises:
            ApplianceError: NOT_FOUND, IN_USE (a connection refers to it), BUSY (still being allocated).
        """
        chunk = rules.releasable(self._view, identifier)
        if chunk.state is ChunkState.READY:
            self._replace(chunks={**self._view.chunks, chunk.id: chunk.releasing()})
            self._works.start(chunk.id, lambda _: self._scrub(chunk))
            log.info("release chunk=%s name=%s bytes=%d", chunk.id, chunk.name, chunk.bytes)
        await self._works.finished(chunk.id)

    # --- connections ------------------------------------------------------------------------------------------------

    def connect(
        self, name: str, chunk: ChunkId, hosts: Sequence[HostName], access: Access, *, duplicate: bool = False
    ) -> tuple[Connection, bool]:
        """The connection of that name, and whether this call made it; an empty name always makes one.

        Raises:
            ApplianceError: NOT_FOUND, BUSY, EXISTS (another chunk, access or set of hosts), HOST_LIMIT.
        """
        existing = self._view.connections_named(name) if name and not duplicate else []
        if existing:
            rules.same_connection(existing[0], chunk, access, hosts)
            return existing[0], False
        rules.connectable(self._view, self.settings, chunk, hosts)
        identifier = ConnectionId(str(self._take_id()))
        made = Connection(identifier, name or f"connection-{identifier}", chunk, access, tuple(hosts))
        self._replace(connections={**self._view.connections, identifier: made})
        log.info("connect connection=%s name=%s chunk=%s hosts=%s", identifier, made.name, chunk, ",".join(hosts))
        return made, True

    def set_hosts(self, identifier: ConnectionId, hosts: Sequence[HostName]) -> Connection:
        """Give a connection another set of hosts; those that leave get no descriptor any more.

        Raises:
            ApplianceError: NOT_FOUND, BUSY, HOST_LIMIT.
        """
        before = rules.connection(self._view, identifier)
        others = {key: value for key, value in self._view.connections.items() if key != identifier}
        rules.connectable(replace(self._view, connections=others), self.settings, before.chunk, hosts)
        after = replace(before, hosts=tuple(hosts))
        self._replace(connections={**self._view.connections, identifier: after})
        log.info("set hosts connection=%s hosts=%s", identifier, ",".join(hosts))
        return after

    def disconnect(self, identifier: ConnectionId) -> None:
        """Revoke a connection. A descriptor that was handed over stays with its host until the chunk is released.

        Raises:
            ApplianceError: NOT_FOUND.
        """
        rules.connection(self._view, identifier)
        self._replace(connections={key: value for key, value in self._view.connections.items() if key != identifier})
        log.info("disconnect connection=%s", identifier)

    def open(self, host: HostName, chunk: ChunkId) -> tuple[int, Access] | None:
        """A descriptor of a chunk's memory for a host, or None if it may not have one (any more). Any thread."""
        with self._lock:
            for region, access in self._view.regions_of(host):
                if region.id == chunk and region.memory is not None:
                    return region.memory.open(writable=access is Access.READ_WRITE), access
        return None

    # --- hosts and power --------------------------------------------------------------------------------------------

    def add_host(self, host: Host) -> tuple[Host, bool]:
        """The host, and whether this call added it. Raises ApplianceError EXISTS: its name or UUID is another's."""
        known = rules.new_host(self._view, host)
        if known:
            return known, False
        self._replace(hosts={**self._view.hosts, host.name: host})
        return host, True

    def remove_host(self, name: HostName, *, force: bool = False) -> None:
        """Forget a host; with `force`, also where connections name it. Raises ApplianceError NOT_FOUND, IN_USE."""
        if force:
            rules.host(self._view, name)
        else:
            rules.removable_host(self._view, name)
        connections = {
            key: replace(value, hosts=tuple(host for host in value.hosts if host != name))
            for key, value in self._view.connections.items()
        }
        hosts = {key: value for key, value in self._view.hosts.items() if key != name}
        self._replace(hosts=hosts, connections=connections)

    def set_link(self, name: HostName, link: Link) -> Host:
        """Plug or unplug a host's cable. Raises ApplianceError NOT_FOUND."""
        host = replace(rules.host(self._view, name), link=link)
        self._replace(hosts={**self._view.hosts, name: host})
        log.info("link host=%s state=%s", name, link)
        return host

    async def power_cycle(self, *, keep: bool) -> None:
        """Lose power: composes under way fail; unless `keep`, all bytes are gone and the power epoch grows.

        `keep` is a blade with a battery. What the books say after a loss is the setting `after_power_loss`.
        """
        under_way = [chunk.id for chunk in self._view.chunks.values() if chunk.state is ChunkState.ALLOCATING]
        for chunk in under_way:
            self._works.abandon(chunk)
        if keep:
            self._replace(chunks={key: v for key, v in self._view.chunks.items() if key not in under_way}, lost=())
        else:
            gone = _memories(self._view)
            self._lose_power()
            await self._destroy(gone)
            await self.start()
        log.info("power cycle epoch=%d keep=%s lost=%d", self._view.power_epoch, keep, len(self._view.lost))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _lose_power(self) -> None:
        """Bring the books to what they say after a power loss; what memory there was is the caller's to destroy."""
        before = self._view
        standing = {key: value for key, value in before.chunks.items() if value.state is not ChunkState.RELEASING}
        if self.settings.after_power_loss is AfterPowerLoss.FORGET:
            chunks: dict[ChunkId, Chunk] = {}
        else:
            chunks = {key: replace(v, state=ChunkState.ALLOCATING, memory=None) for key, v in standing.items()}
        connections = {key: value for key, value in before.connections.items() if value.chunk in chunks}
        lost = tuple(chunk.name for chunk in standing.values())
        self._replace(power_epoch=before.power_epoch + 1, chunks=chunks, connections=connections, lost=lost)

    def _start_allocation(self, chunk: Chunk) -> None:
        self._works.start(chunk.id, lambda work: self._allocate(chunk, work))

    async def _allocate(self, chunk: Chunk, work: Work) -> None:
        allocate = self._medium.allocate
        try:
            async with self._one_at_a_time:
                memory = await asyncio.to_thread(allocate, chunk.name, chunk.bytes, work.progress, work.cancel)
            try:
                self._commit(chunk, memory, work)
            except BaseException:
                await asyncio.to_thread(memory.destroy)
                raise
        except BaseException as error:
            if self._works.is_current(chunk.id, work):
                self._drop(chunk)
            if isinstance(error, OutOfMemory):
                raise _out_of_memory(chunk, error) from error
            if isinstance(error, Cancelled):
                raise _power_lost(chunk) from error
            raise

    def _commit(self, chunk: Chunk, memory: Memory, work: Work) -> None:
        if not self._works.is_current(chunk.id, work):
            raise Cancelled
        self._replace(chunks={**self._view.chunks, chunk.id: chunk.ready(memory)})

    async def _scrub(self, chunk: Chunk) -> None:
        assert chunk.memory is not None, "a ready chunk has memory"
        await self._destroy([chunk.memory])
        self._drop(chunk)

    async def _destroy(self, memories: Sequence[Memory]) -> None:
        async with self._one_at_a_time:
            for memory in memories:
                await asyncio.to_thread(memory.destroy)

    def _drop(self, chunk: Chunk) -> None:
        """Forget a chunk whose memory is gone, also where the disk does not take it: a restart forgets it anyway."""
        left = {key: value for key, value in self._view.chunks.items() if key != chunk.id}
        try:
            self._replace(chunks=left)
        except OSError:
            log.exception("the books on disk still have chunk=%s, which is gone", chunk.id)
            with self._lock:
                self._view = replace(self._view, chunks=left)

    def _free_logical_device(self) -> int:
        """A number that no chunk has, as far as possible from those that were given lately."""
        taken = {chunk.logical_device for chunk in self._view.chunks.values()}
        first = self._next_id % REGIONS_LIMIT
        return next(
            number for offset in range(REGIONS_LIMIT) if (number := 1 + (first + offset) % REGIONS_LIMIT) not in taken
        )

    def _take_id(self) -> int:
        number, self._next_id = self._next_id, self._next_id + 1
        return number

    def _replace(self, **changes: Any) -> None:
        """The one place where the view changes: saved first, then seen."""
        view = replace(self._view, **changes)
        if self._store:
            hosts, chunks, connections = records(view.hosts.values(), view.chunks.values(), view.connections.values())
            self._store.save(
                State(
                    blade=self.settings.blade,
                    power_epoch=view.power_epoch,
                    next_id=self._next_id,
                    hosts=hosts,
                    chunks=chunks,
                    connections=connections,
                )
            )
        with self._lock:
            self._view = view


def _hosts(settings: Settings, past: State) -> list[Host]:
    """The hosts of the settings, then those that were added later and contradict none of them."""
    known = list(settings.hosts)
    for host in map(host_of, past.hosts):
        if all(host.name != other.name and host.key != other.key for other in known):
            known.append(host)
    return known


def _memories(view: View) -> list[Memory]:
    return [chunk.memory for chunk in view.chunks.values() if chunk.memory is not None]


def _power_lost(chunk: Chunk) -> ApplianceError:
    return ApplianceError(
        Kind.POWER_LOST,
        f"chunk {chunk.name}",
        expected="power until its memory is allocated",
        found="a power loss meanwhile",
        remedy="compose it again",
    )


def _out_of_memory(chunk: Chunk, error: OutOfMemory) -> ApplianceError:
    return ApplianceError(
        Kind.NO_CAPACITY,
        f"chunk {chunk.name}",
        expected=f"{chunk.bytes} bytes of memory",
        found=str(error),
        remedy="free memory on the appliance's machine, or lower its capacity to what there is",
    )
