"""What hosts tell one another through the region's rings: hints, withdrawals, evictions, uses."""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hymcache.region import Hint, Namespace, Region

FINGERPRINT = bytes(range(32))
CHUNK = 64 << 10


def later(seconds: float = 60) -> int:
    return int((time.time() + seconds) * 1000)


def until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """A janitor looks every 0.1 s, and later on a busy machine."""
    end = time.monotonic() + seconds
    while not (reached := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return reached


def test_a_hint_reaches_the_other_host_in_order(region: Region, ns: Namespace, attach: Callable[..., Region]) -> None:
    ns.put(b"b", b"x")
    deadline = later()
    assert ns.prefetch([b"a", b"b"], request_id="cmpl-7", deadline_ms=deadline, priority=3, units=2) == 2
    hints, cursor = attach(domain=1).hints()
    number = int.from_bytes(hashlib.sha256(b"cmpl-7").digest()[:8], "little")
    assert [(h.domain, h.request, h.deadline_ms, h.priority, h.units) for h in hints] == [
        (0, number, deadline, 3, 2)
    ] * 2
    assert b"".join(h.digest or b"" for h in hints) == ns.digests([b"a", b"b"])
    assert [h.ref for h in hints] == [None, ns.find([b"b"])[1]]
    assert hints[0].sequence + 1 == hints[1].sequence
    assert abs(hints[0].issued_ms - time.time() * 1000) < 60_000
    assert attach(domain=1).hints(cursor)[0] == []


def test_a_withdrawal_follows_its_hints(region: Region, ns: Namespace) -> None:
    ns.prefetch([b"a"], request_id=5, deadline_ms=later())
    ns.withdraw(5)
    hints, _ = region.hints()
    assert [(h.request, h.digest is None) for h in hints] == [(5, False), (5, True)]


def test_a_hint_past_its_deadline_is_not_read(region: Region, ns: Namespace) -> None:
    ns.prefetch([b"a"], request_id=1, deadline_ms=later(-1))
    ns.prefetch([b"b"], request_id=2, deadline_ms=later())
    assert [h.request for h in region.hints()[0]] == [2]


def test_a_reader_that_is_too_slow_misses_and_counts(region: Region, ns: Namespace) -> None:
    _, cursor = region.hints()
    for i in range(1000):
        ns.prefetch([b"%d" % i], request_id=i, deadline_ms=later())
    before = region.stats()["ring_missed"]
    hints, cursor = region.hints(cursor)
    assert [h.request for h in hints] == list(range(1000 - len(hints), 1000))
    assert 0 < len(hints) < 1000
    assert region.stats()["ring_missed"] - before == 1000 - len(hints)
    assert region.hints(cursor) == ([], cursor)


def test_a_limit_is_kept_and_nothing_is_lost(region: Region, ns: Namespace) -> None:
    for i in range(7):
        ns.prefetch([b"%d" % i], request_id=i, deadline_ms=later())
    cursor, got = None, []
    for _ in range(5):
        hints, cursor = region.hints(cursor, limit=3)
        assert len(hints) <= 3
        got += [h.request for h in hints]
    assert got == list(range(7))


PREFETCH = """
import sys
from hymcache.region import Region
region = Region.attach(sys.argv[1])
ns = region.namespace(bytes(range(32)))
print("ready", flush=True)
request = 0
while True:
    ns.prefetch([b"k"], request_id=request, deadline_ms=1 << 47)
    request += 1
"""


def read_until(region: Region, cursor: bytes | None, request: int) -> tuple[list[Hint], bytes]:
    """Hints up to one of this request, and the cursor behind them."""
    end = time.monotonic() + 30
    hints, cursor = region.hints(cursor, limit=1 << 20)
    while all(h.request != request for h in hints):
        assert time.monotonic() < end
        time.sleep(0.02)
        more, cursor = region.hints(cursor, limit=1 << 20)
        hints += more
    return hints, cursor


def test_readers_go_on_when_producers_are_killed(region: Region, ns: Namespace, medium: Path) -> None:
    cursor, last = None, -1
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", PREFETCH, medium], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(0.05)
            os.kill(child.pid, signal.SIGKILL)
        ns.prefetch([b"mine"], request_id=1 << 60, deadline_ms=later())
        seen, cursor = read_until(region, cursor, 1 << 60)
        sequences = [h.sequence for h in seen]
        assert sequences == sorted(set(sequences))
        assert sequences[0] > last
        last = sequences[-1]


def line_of(data: bytes, hint: Hint) -> int:
    """Place of an entry: behind the domain block, which holds the same number as a ticket."""
    (domain_at,) = struct.unpack_from("<Q", data, 144)
    return data.index(struct.pack("<Q", hint.sequence), domain_at + 4096)


def test_damaged_entries_are_passed_over(region: Region, ns: Namespace, medium: Path) -> None:
    for i in range(3):
        ns.prefetch([b"%d" % i], request_id=i, deadline_ms=later())
    with medium.open("r+b") as file:
        data = file.read()
        tag = line_of(data, region.hints()[0][1]) + 30
        file.seek(tag)
        file.write(bytes([data[tag] ^ 0xFF]))  # whatever it was: keys are another region's every time
    cursor, got = None, []

    def third_is_there() -> bool:
        nonlocal cursor
        hints, cursor = region.hints(cursor)
        got.extend(h.request for h in hints)
        return 2 in got

    assert until(third_is_there)
    assert got == [0, 2]


def test_a_line_of_garbage_is_written_over(region: Region, ns: Namespace, medium: Path) -> None:
    ns.prefetch([b"a"], request_id=1, deadline_ms=later())
    with medium.open("r+b") as file:
        at = line_of(file.read(), region.hints()[0][0]) - 64  # the ring's first line
        for line in range(64):
            file.seek(at + 64 * line)
            file.write(b"\xff" * 8)
    _, cursor = region.hints()
    assert ns.prefetch([b"%d" % i for i in range(64)], request_id=2, deadline_ms=later()) == 64
    assert [h.request for h in region.hints(cursor)[0]][-1] == 2


@pytest.mark.parametrize("cursor", [b"\xff" * 32, b"\x01" * 32, bytes(range(32))])
def test_a_cursor_from_nowhere_harms_nobody(region: Region, ns: Namespace, cursor: bytes) -> None:
    ns.prefetch([b"a"], request_id=1, deadline_ms=later())
    hints, cursor = region.hints(cursor)
    region.hints(cursor)
    assert len(hints) <= 1


def test_wrong_arguments_are_refused_by_name(region: Region, ns: Namespace) -> None:
    with pytest.raises(ValueError, match="cursor: expected the 32 bytes"):
        region.hints(b"short")
    with pytest.raises(TypeError, match="request_id"):
        ns.withdraw(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="request_id"):
        ns.withdraw(-1)
    with pytest.raises(ValueError, match="deadline_ms"):
        ns.prefetch([b"a"], request_id=1, deadline_ms=1 << 50)


def test_a_router_learns_what_was_evicted(region: Region, ns: Namespace, attach: Callable[..., Region]) -> None:
    other = attach(domain=1)
    _, cursor = other.evicted()
    ns.put(b"a", b"x" * 100, units=4)
    ref = ns.find([b"a"])[1]
    assert other.evicted(cursor)[0] == []
    ns.evict([b"a"])
    (gone,), cursor = other.evicted(cursor)
    assert (gone.domain, gone.digest, gone.ref) == (0, ns.digests([b"a"]), ref)
    assert (gone.bytes, gone.cause) == (100, "evicted")
    assert gone.namespace > 0
    assert other.evicted(cursor)[0] == []


def test_a_new_owner_starts_rings_that_old_cursors_can_follow(medium: Path) -> None:
    Region.format(medium, size=32 << 20, chunk_bytes=CHUNK, domains=2)
    with Region.attach(medium, domain=1) as reader:
        with Region.attach(medium) as first:
            first.namespace(FINGERPRINT).prefetch([b"a"], request_id=1, deadline_ms=later())
        hints, cursor = reader.hints()
        assert [h.request for h in hints] == [1]
        forget_owner(medium)
        with Region.attach(medium) as second:
            assert reader.hints(cursor)[0] == []
            second.namespace(FINGERPRINT).prefetch([b"b"], request_id=2, deadline_ms=later())
            assert [h.request for h in reader.hints(cursor)[0]] == [2]


def forget_owner(medium: Path) -> None:
    """Breaks the seals of both of domain 0's owner lines, so that nobody can tell whose it is."""
    with medium.open("r+b") as file:
        file.seek(144)
        (domain_at,) = struct.unpack("<Q", file.read(8))
        for line in (64, 3840):
            file.seek(domain_at + line + 60)
            file.write(bytes(4))


def test_what_another_host_uses_is_evicted_last(region: Region, ns: Namespace, attach: Callable[..., Region]) -> None:
    other = attach(domain=1)
    theirs = other.namespace(FINGERPRINT)
    chunks = region.stats()["free_chunks"][0]
    keys = [b"%d" % i for i in range(chunks)]
    for key in keys:
        assert ns.put(key, bytes(CHUNK))
    used = keys[: chunks // 4]
    assert theirs.lookup(used) == len(used)
    assert until(lambda: region.stats()["touches_taken"] >= len(used))
    for i in range(chunks // 2):
        assert ns.put(b"new %d" % i, bytes(CHUNK))
    assert sum(ns.contains(used)) == len(used)
    assert sum(ns.contains(keys[len(used) :])) < chunks // 2
