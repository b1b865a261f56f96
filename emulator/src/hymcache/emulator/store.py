"""What an appliance remembers over a restart: one JSON file, replaced whole, in a folder that one process owns.

The memory itself does not survive: it belongs to the process, as DRAM belongs to its power supply.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from hymcache.emulator.model import Access, Chunk, ChunkId, Connection, ConnectionId, Host, HostName
from pydantic import BaseModel, ConfigDict, ValidationError

FILE = "appliance.json"
VERSION = 1


class StoreError(Exception):
    """The state folder cannot be used: another process has it, or what it holds is not ours."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class HostRecord(_Record):
    """A host as stored."""

    name: str
    uuid: str


class ChunkRecord(_Record):
    """A chunk as stored: its place in the books, not its bytes."""

    id: str
    name: str
    bytes: int
    logical_device: int


class ConnectionRecord(_Record):
    """A connection as stored."""

    id: str
    name: str
    chunk: str
    access: Access
    hosts: list[str]


class State(_Record):
    """The whole file. `next_id` never goes back, so that an id once given never means another object.

    `power_epoch` counts power losses; a blade without a past starts it at the time of day, so that an epoch never comes
    twice even where the folder was lost. 0 is that: no past.
    """

    version: Literal[1] = 1
    blade: str
    power_epoch: int = 0
    next_id: int = 1
    hosts: list[HostRecord] = []
    chunks: list[ChunkRecord] = []
    connections: list[ConnectionRecord] = []


def records(
    hosts: Iterable[Host], chunks: Iterable[Chunk], connections: Iterable[Connection]
) -> tuple[list[HostRecord], list[ChunkRecord], list[ConnectionRecord]]:
    """The stored form of what a blade knows."""
    return (
        [HostRecord(name=host.name, uuid=host.uuid) for host in hosts],
        [ChunkRecord(id=c.id, name=c.name, bytes=c.bytes, logical_device=c.logical_device) for c in chunks],
        [
            ConnectionRecord(id=c.id, name=c.name, chunk=c.chunk, access=c.access, hosts=list(c.hosts))
            for c in connections
        ],
    )


def host_of(record: HostRecord) -> Host:
    """A host from its stored form, with its link up."""
    return Host(HostName(record.name), record.uuid)


def chunk_of(record: ChunkRecord) -> Chunk:
    """A chunk from its stored form, without memory."""
    return Chunk(ChunkId(record.id), record.name, record.bytes, record.logical_device)


def connection_of(record: ConnectionRecord) -> Connection:
    """A connection from its stored form."""
    hosts = tuple(HostName(name) for name in record.hosts)
    return Connection(ConnectionId(record.id), record.name, ChunkId(record.chunk), record.access, hosts)


class Store:
    """The state folder of one appliance, locked for this process until `close`.

    Raises:
        StoreError: another appliance runs on the folder, or the file is not one of ours; nothing is overwritten.
    """

    def __init__(self, folder: Path, blade: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = folder / FILE
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._folder)
            raise StoreError(
                f"{folder}: expected no other appliance on it, found one; stop it or choose another --state-dir"
            ) from None
        try:
            self.state = self._read(blade)
        except BaseException:
            os.close(self._folder)
            raise

    def save(self, state: State) -> None:
        """Replace the file and wait until it is on disk."""
        staged = self._file.with_suffix(".new")
        with staged.open("w") as file:
            file.write(state.model_dump_json(indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        staged.rename(self._file)
        os.fsync(self._folder)

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._folder)

    def _read(self, blade: str) -> State:
        try:
            raw = self._file.read_bytes()
        except FileNotFoundError:
            return State(blade=blade)
        try:
            state = State.model_validate_json(raw)
        except ValidationError as error:
            what = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(str(part) for part in what["loc"]) or "the file"
            raise StoreError(
                f"{self._file}: expected appliance state of version {VERSION}, found {place}: {what['msg']}; "
                "move the file away to start without a past"
            ) from error
        if state.blade != blade:
            raise StoreError(
                f"{self._file}: expected the state of blade {blade}, found that of {state.blade}; "
                "give each blade its own --state-dir"
            )
        return state
