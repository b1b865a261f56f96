"""What one of the processes of `churn.py` does: everything a process may do to a region, at random.

Splits of a put go through mailboxes: one process reserves, a second one writes, a third one of the same domain commits
or aborts. The reserver gives up after a while, whatever the others do, so that each of the three may be too late.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import mmap
import os
import random
import socket
import struct
import time
from collections import deque

from hymcache.region import Region

FINGERPRINT = bytes(32)
UNITS = 5
UNIT_BYTES = (40_000, 9_600)
KEYS = 60
LEASE_SECONDS = 1
WRONG = 3
KNOWN_MAX = 60
RESERVED_MAX = 12
GIVE_UP_SECONDS = 0.15
MESSAGE = struct.Struct("16s i i i")
"""Reference, key, processes that had it: the reserver, and the writer or 0."""
COUNTED = ("reserved", "written", "committed", "aborted", "given_up", "read_by_reference")


def name(key: int) -> bytes:
    return b"key-%d" % key


def unit_bytes(key: int) -> int:
    """Half of the keys have four chunks, half have one."""
    return UNIT_BYTES[key % 2]


def content(key: int, version: int) -> bytes:
    """Five units; every 16 bytes of each name key, version and unit."""
    unit = [b"%04d%08d%04d" % (key, version, u) for u in range(UNITS)]
    return b"".join(stamp * (unit_bytes(key) // 16) for stamp in unit)


def is_content(key: int, data: bytes) -> bool:
    return data[:4] == b"%04d" % key and data == content(key, int(data[4:12]))


class Counts:
    """What all workers did so far: a row each, so that a death loses nothing."""

    def __init__(self, workers: int) -> None:
        self.memory = mmap.mmap(-1, 8 * workers * len(COUNTED))
        self.rows = [memoryview(self.memory).cast("Q")[i::workers] for i in range(workers)]

    def total(self) -> dict[str, int]:
        return dict(zip(COUNTED, map(sum, zip(*self.rows, strict=True)), strict=True))


class Mailboxes:
    """References on their way from process to process of one domain; who comes first takes one. They outlive all."""

    def __init__(self) -> None:
        self.reserved = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.written = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (*self.reserved, *self.written):
            end.setblocking(False)


def send(box: tuple[socket.socket, socket.socket], *message: object) -> None:
    with contextlib.suppress(BlockingIOError):  # a full box: nobody gets it, its reserver gives up
        box[0].send(MESSAGE.pack(*message))


def take(box: tuple[socket.socket, socket.socket]) -> tuple[bytes, int, int, int] | None:
    """A reference that this process did not have yet."""
    with contextlib.suppress(BlockingIOError):
        ref, key, reserver, writer = MESSAGE.unpack(box[1].recv(MESSAGE.size))
        if os.getpid() not in (reserver, writer):
            return ref, key, reserver, writer
        send(box, ref, key, reserver, writer)
    return None


class Worker:
    def __init__(self, medium: str, domain: int, seed: int, boxes: Mailboxes, counts: memoryview) -> None:
        self.rng = random.Random(seed)
        self.region = Region.attach(medium, domain=domain, host="one")
        self.space = self.region.namespace(FINGERPRINT)
        self.boxes, self.counts = boxes, counts
        self.version = seed % 10**8
        self.known: deque[tuple[bytes, int]] = deque(maxlen=KNOWN_MAX)
        self.reservations: deque[tuple[bytes, float]] = deque()
        self.memory = bytearray(UNITS * max(UNIT_BYTES))
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.pages = [self.region.pages([(address, size, size, UNITS)]) for size in UNIT_BYTES]
        self.ids = array.array("i", range(UNITS))

    def run(self) -> None:
        actions = [self.put, self.get, self.evict, self.lookup, self.find, self.read, self.lease, self.release]
        weights = [20, 20, 5, 1, 6, 10, 3, 2]
        actions += [self.reserve, self.write, self.finish, self.give_up]
        weights += [20, 20, 20, 6]
        while True:
            self.rng.choices(actions, weights)[0]()

    def new_content(self, key: int) -> bytes:
        self.version = (self.version + 1) % 10**8
        return content(key, self.version)

    def count(self, what: str) -> None:
        self.counts[COUNTED.index(what)] += 1

    def check(self, key: int) -> None:
        if not is_content(key, bytes(self.memory[: UNITS * unit_bytes(key)])):
            os._exit(WRONG)

    def any_key(self) -> int:
        return self.rng.randrange(KEYS)

    # in one go

    def put(self) -> None:
        key = self.any_key()
        self.space.put(name(key), self.new_content(key), units=UNITS)

    def get(self) -> None:
        key = self.any_key()
        if self.space.get_into(name(key), memoryview(self.memory)[: UNITS * unit_bytes(key)]):
            self.check(key)

    def evict(self) -> None:
        self.space.evict([name(self.any_key())])

    def lookup(self) -> None:
        self.space.lookup([name(key) for key in range(KEYS)])

    # by reference, also of what has been retired since

    def find(self) -> None:
        key = self.any_key()
        found, refs = self.space.find([name(key)])
        if found:
            self.known.append((refs, key))

    def read(self) -> None:
        if self.known:
            ref, key = self.rng.choice(self.known)
            if self.region.read_many(ref, self.pages[key % 2], self.ids, [0], [UNITS]) == b"\1":
                self.check(key)
                self.count("read_by_reference")

    def lease(self) -> None:
        if self.known:
            self.region.lease(self.rng.choice(self.known)[0], seconds=LEASE_SECONDS)

    def release(self) -> None:
        if self.known:
            self.region.release(self.rng.choice(self.known)[0])

    # by three processes

    def reserve(self) -> None:
        if len(self.reservations) >= RESERVED_MAX:
            return self.give_up()
        key = self.any_key()
        ref, status = self.space.reserve([name(key)], UNITS, unit_bytes=unit_bytes(key))
        if status == b"\1":
            self.reservations.append((ref, time.monotonic() + self.rng.uniform(0, GIVE_UP_SECONDS)))
            self.count("reserved")
            send(self.boxes.reserved, ref, key, os.getpid(), 0)

    def write(self) -> None:
        if taken := take(self.boxes.reserved):
            ref, key, reserver, _ = taken
            self.memory[: UNITS * unit_bytes(key)] = self.new_content(key)
            if self.region.write_many(ref, self.pages[key % 2], self.ids, [0], [UNITS]) == b"\1":
                self.count("written")
            send(self.boxes.written, ref, key, reserver, os.getpid())

    def finish(self) -> None:
        if taken := take(self.boxes.written):
            if self.rng.random() < 0.1:
                self.region.abort(taken[0])
                self.count("aborted")
            elif self.region.commit(taken[0]) == b"\1":
                self.count("committed")

    def give_up(self) -> None:
        """Abort what was reserved long ago; mostly somebody has committed it."""
        while self.reservations and self.reservations[0][1] < time.monotonic():
            self.region.abort(self.reservations.popleft()[0])
            self.count("given_up")
