"""Leases, users and counters of a domain; reads of what was evicted after its lookup."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hymcache.region import Namespace, Region

FINGERPRINT = bytes(range(32))
CHUNK = 64 << 10
Content = Callable[[bytes, int], bytes]


def until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not (reached := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return reached


def fill(region: Region, ns: Namespace, name: bytes, rounds: float = 1.5) -> None:
    chunks = region.info().chunks // region.info().domains
    for i in range(int(chunks * rounds)):
        ns.put(name + b"%d" % i, bytes(CHUNK))
        ns.lookup([name + b"%d" % i])  # objects that are used again leave last: these are as good as the others


def test_a_leased_object_survives_a_flood_until_it_is_released(region: Region, ns: Namespace) -> None:
    ns.put(b"kept", bytes(CHUNK))
    ns.put(b"twice", bytes(CHUNK))
    refs = ns.find([b"kept", b"twice"])[1]
    assert region.lease(refs, seconds=300) == b"\1\1"
    assert region.lease(refs[16:], seconds=300) == b"\1"
    fill(region, ns, b"a", 3)
    assert ns.contains([b"kept", b"twice"]) == b"\1\1"
    region.release(refs)
    fill(region, ns, b"b", 3)
    assert ns.contains([b"kept", b"twice"]) == b"\0\1", "leased twice, released once"
    region.release(refs[16:])
    fill(region, ns, b"c", 3)
    assert ns.contains([b"twice"]) == b"\0"


def test_many_leases_refuse_no_put_while_others_can_go(region: Region, ns: Namespace) -> None:
    fill(region, ns, b"a")
    kept = [b"kept%d" % i for i in range(60)]  # more than a scan collects
    for key in kept:
        ns.put(key, bytes(CHUNK))
        ns.lookup([key])
    found = [key for key in kept if ns.contains([key]) == b"\1"]
    assert len(found) > 40
    assert region.lease(b"".join(ns.find([key])[1] for key in found), seconds=300) == b"\1" * len(found)
    fill(region, ns, b"b", 3)
    assert region.stats()["put_full"] == 0
    assert ns.contains(found) == b"\1" * len(found)


def test_a_lease_ends_by_itself(region: Region, ns: Namespace) -> None:
    ns.put(b"kept", bytes(CHUNK))
    assert region.lease(ns.find([b"kept"])[1], seconds=2) == b"\1"
    time.sleep(3)
    fill(region, ns, b"a", 3)
    assert ns.contains([b"kept"]) == b"\0"


def test_a_domain_that_is_leased_whole_refuses_puts_and_keeps_everything(region: Region, ns: Namespace) -> None:
    fill(region, ns, b"a", 1)
    chunks = region.info().chunks // region.info().domains
    count, refs = ns.find([b"a%d" % i for i in range(chunks)])
    assert count == chunks
    assert region.lease(refs) == b"\1" * chunks
    assert not ns.put(b"new", bytes(CHUNK))
    assert region.stats()["put_full"] == 1
    assert ns.lookup([b"a%d" % i for i in range(chunks)]) == chunks


def test_a_lease_of_what_is_gone_or_elsewhere_is_not_kept(
    region: Region, ns: Namespace, attach: Callable[..., Region]
) -> None:
    ns.put(b"k", b"x")
    ref = ns.find([b"k"])[1]
    other = attach(domain=1)
    assert other.lease(ref) == b"\0"
    assert region.lease(b"\xff" * 16 + bytes(16)) == b"\0\0"
    region.release(b"\xff" * 16)
    assert until(lambda: region.stats()["touches_taken"] == 1), "its owner is told instead"


def test_an_evicted_object_can_be_stored_again_while_it_is_leased(region: Region, ns: Namespace) -> None:
    ns.put(b"k", b"old")
    region.lease(ns.find([b"k"])[1])
    assert ns.evict([b"k"]) == 1
    assert ns.put(b"k", b"new")
    out = bytearray(3)
    assert ns.get_into(b"k", out) == 3
    assert out == b"new"


HOLD = """
import sys, time
from hymcache.region import Region
region = Region.attach(sys.argv[1], domain=int(sys.argv[2]))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def start(medium: Path) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    with contextlib.ExitStack() as stack:

        def start(domain: int) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-c", HOLD, medium, str(domain)]
            child = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(child.kill)
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            return child

        yield start


def test_users_are_the_living_processes_of_a_domain(
    region: Region, medium: Path, start: Callable[[int], subprocess.Popen[bytes]]
) -> None:
    with Region.attach(medium, read_only=True) as watcher:
        assert [watcher.users(0), watcher.users(1)] == [1, 0], "the fixture's process, not the watcher"
        assert [region.users(0), region.users(1)] == [1, 0]
        one, two = start(0), start(1)
        assert [watcher.users(0), watcher.users(1)] == [2, 1]
        one.send_signal(signal.SIGSTOP)
        assert watcher.users(0) == 2, "standing still is not death"
        os.kill(one.pid, signal.SIGKILL)
        one.wait()
        two.kill()
        two.wait()
        assert until(lambda: [watcher.users(0), watcher.users(1)] == [1, 0], 5)
        assert watcher.stats()["processes"][1] == 1, "nobody of that domain has swept its slot"
        with pytest.raises(ValueError, match="domain: expected 0 to 1, found 2"):
            watcher.users(2)


def test_users_of_another_boot_are_unknown(region: Region, medium: Path) -> None:
    with Region.attach(medium, read_only=True) as watcher:
        with medium.open("r+b") as file:
            data = file.read()
            at = int.from_bytes(data[144:152], "little") + 64
            assert crc32c(at.to_bytes(8, "little") + data[at : at + 60] + bytes(4)) == int.from_bytes(
                data[at + 60 : at + 64], "little"
            )
            line = data[at : at + 24] + bytes(16) + data[at + 40 : at + 60]
            file.seek(at)
            file.write(line + crc32c(at.to_bytes(8, "little") + line + bytes(4)).to_bytes(4, "little"))
        assert watcher.users(0) is None


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_hits_and_misses_of_a_host_are_read_by_anyone(
    region: Region, ns: Namespace, medium: Path, attach: Callable[..., Region]
) -> None:
    ns.put(b"a", b"x")
    with Region.attach(medium, read_only=True) as watcher:
        assert watcher.stats()["host_hits"] == watcher.stats()["host_misses"] == [0, 0]
        ns.lookup([b"a", b"b", b"c"])
        theirs = attach(domain=1).namespace(FINGERPRINT)
        theirs.lookup([b"a", b"a"])

        def told() -> tuple[list[int], list[int]]:
            stats = watcher.stats()
            return stats["host_hits"], stats["host_misses"]

        assert until(lambda: told() == ([1, 2], [2, 0])), told()


def test_lookups_of_a_process_that_left_are_counted(medium: Path) -> None:
    Region.format(medium, size=32 << 20, chunk_bytes=CHUNK)
    with Region.attach(medium) as region:
        region.namespace(FINGERPRINT).lookup([b"a"] * 7)
    with Region.attach(medium, read_only=True) as watcher:
        assert watcher.stats()["host_misses"] == [7]


@pytest.mark.parametrize("domain", [0, 1])
def test_what_was_found_is_read_within_the_grace_after_all_was_evicted(
    medium: Path, content: Content, domain: int
) -> None:
    Region.format(medium, size=256 << 20, chunk_bytes=CHUNK, domains=2)
    keys = [b"%d" % i for i in range(1000)]
    with Region.attach(medium) as owner, Region.attach(medium, domain=domain) as reader:
        ns, theirs = owner.namespace(FINGERPRINT), reader.namespace(FINGERPRINT)
        for key in keys:
            assert ns.put(key, content(key, 4096))
        count, refs = theirs.find(keys)
        assert count == len(keys)
        assert ns.evict(keys) == len(keys)
        assert theirs.lookup(keys) == 0
        right = sum(load(reader, refs[16 * i : 16 * i + 16]) == content(key, 4096) for i, key in enumerate(keys))
        assert right >= 999
        chunks = owner.info().chunks // 2
        for i in range(2 * chunks):
            assert ns.put(b"new %d" % i, bytes(4096))
        late = [load(reader, refs[16 * i : 16 * i + 16]) for i in range(len(keys))]
        assert late == [None] * len(keys), "forced reuse: all miss, none wrong"


def load(region: Region, ref: bytes) -> bytes | None:
    out = bytearray(4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(out))
    pages = region.pages([(address, 4096, 4096, 1)])
    return bytes(out) if region.read_many(ref, pages, [0], [0], [1]) == b"\1" else None


def test_a_write_that_comes_too_late_ends_no_lease(region: Region, ns: Namespace) -> None:
    assert ns.put(b"kept", bytes(CHUNK))
    refs = ns.find([b"kept"])[1]
    assert region.lease(refs, seconds=300) == b"\1"
    memory = ctypes.create_string_buffer(CHUNK)
    pages = region.pages([(ctypes.addressof(memory), CHUNK, CHUNK, 1)])
    assert region.write_many(refs, pages, [0], [0], [1], section=7) == b"\0"
    fill(region, ns, b"a", 3)
    assert ns.contains([b"kept"]) == b"\1"
