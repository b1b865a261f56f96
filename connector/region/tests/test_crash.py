"""Processes that die, freeze or fork: no wrong byte, nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hymcache.region import Namespace, Region

MIB = 1 << 20
FINGERPRINT = bytes(range(32))
PROGRAMS = Path(__file__).parent / "programs"


def churn(medium: Path, *, kills: int, freezes: int, seed: int) -> dict[str, Any]:
    Region.format(medium, size=16 * MIB, chunk_bytes=64 << 10, domains=2)
    command = [sys.executable, PROGRAMS / "churn.py", medium, "100", str(kills), str(freezes), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=115, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def expect_nothing_lost(result: dict[str, Any]) -> None:
    assert (result["wrong"], result["failed"], result["left_by_the_dead"]) == (0, 0, 0)
    for kept, chunks in result["usable"]:
        assert kept == chunks, f"{chunks - kept} chunks are lost"
    assert result["seconds_until_usable"] < 2
    splits = result["splits"]
    assert min(splits["committed"], splits["aborted"], splits["given_up"], splits["read_by_reference"]) > 20, splits


def test_two_hundred_kills_in_mid_put_and_get_lose_nothing(medium: Path) -> None:
    result = churn(medium, kills=200, freezes=0, seed=1)
    expect_nothing_lost(result)
    assert result["kills"] == 200


def test_frozen_processes_destroy_nothing_when_they_go_on(medium: Path) -> None:
    result = churn(medium, kills=20, freezes=40, seed=2)
    expect_nothing_lost(result)
    assert result["freezes"] == 40


HOLD = """
import ctypes, sys
from hymcache.region import Region
region = Region.attach(sys.argv[1])
ns = region.namespace(bytes(range(32)))
refs, status = ns.reserve([b"held"], 1, unit_bytes=64 << 10)
assert status == b"\\1"
print(region.info().process_slot, flush=True)
sys.stdin.readline()
if "commit" in sys.argv:
    memory = ctypes.create_string_buffer(64 << 10)
    pages = region.pages([(ctypes.addressof(memory), 64 << 10, 64 << 10, 1)])
    assert region.write_many(refs, pages, [0], [0], [1]) == region.commit(refs) == b"\\1"
"""


def holder(medium: Path, *then: str) -> tuple[subprocess.Popen[str], int]:
    """A process that reserved an object and waits for a line; `then` it may commit it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, medium, *then], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_a_key_whose_writer_died_can_be_put_at_once(ns: Namespace, region: Region, medium: Path) -> None:
    process, _ = holder(medium)
    assert not ns.put(b"held", b"x"), "its writer lives"
    assert region.stats()["put_pending"] == 1
    free = region.stats()["free_chunks"][0]
    process.kill()
    process.wait()
    deadline = time.monotonic() + 2
    while not ns.put(b"held", b"x"):
        assert time.monotonic() < deadline, "still pending two seconds after its writer's death"
        time.sleep(0.01)
    process.stdin.close()  # type: ignore[union-attr]
    process.stdout.close()  # type: ignore[union-attr]
    assert region.stats()["free_chunks"][0] == free
    assert region.stats()["reclaimed_processes"] == 1


def test_a_frozen_writer_keeps_its_bytes_but_not_its_name(ns: Namespace, region: Region, medium: Path) -> None:
    process, _ = holder(medium)
    free = region.stats()["free_chunks"][0]
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 5
    while not ns.put(b"held", b"x"):
        assert time.monotonic() < deadline, "a silent writer holds its key for ever"
        time.sleep(0.05)
    assert region.stats()["free_chunks"][0] == free - 1, "bytes of a living process were taken"
    assert region.sweep() == 0
    process.send_signal(signal.SIGCONT)
    process.communicate("\n", timeout=30)


def test_an_object_stored_again_by_its_thawed_writer_is_evicted_with_the_other(ns: Namespace, medium: Path) -> None:
    process, _ = holder(medium, "commit")
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 5
    while not ns.put(b"held", bytes(64 << 10)):
        assert time.monotonic() < deadline, "a silent writer holds its key for ever"
        time.sleep(0.05)
    process.send_signal(signal.SIGCONT)
    process.communicate("\n", timeout=30)
    assert process.returncode == 0
    assert ns.evict([b"held"]) == 1
    assert ns.lookup([b"held"]) == 0, "the other one is still found"


FORK = """
import os, sys
from hymcache.region import Region
region = Region.attach(sys.argv[1])
ns = region.namespace(bytes(range(32)))
assert ns.put(b"k", b"x")
pid = os.fork()
if pid == 0:
    ok = ns.lookup([b"k"]) == 0 and not ns.put(b"other", b"x") and ns.get_into(b"k", bytearray(1)) == 0
    region.stats(), region.close()
    os._exit(0 if ok else 9)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert ns.lookup([b"k"]) == 1
other = Region.attach(sys.argv[1])
assert other.info().process_slot != region.info().process_slot, "the child gave the parent's lock away"
"""


def test_a_forked_child_is_detached_and_its_parent_is_not(region: Region, medium: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK, medium], check=True, timeout=60)


FORK_AND_DIE = """
import os, sys, time
from hymcache.region import Region
region = Region.attach(sys.argv[1])
print(region.info().process_slot, flush=True)
pid = os.fork()
if pid == 0:
    os.close(1)
    time.sleep(30)
    os._exit(0)
print(pid, flush=True)
time.sleep(30)
"""


def test_a_surviving_child_does_not_keep_its_dead_parent_alive(region: Region, medium: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", FORK_AND_DIE, medium], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    parent.stdout.readline()
    child = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 2
        while region.stats()["reclaimed_processes"] == 0:
            region.sweep()
            assert time.monotonic() < deadline, "the child holds the lock of its parent"
            time.sleep(0.02)
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()


def test_closing_leaves_no_slot_behind(medium: Path, region: Region, attach: Callable[..., Region]) -> None:
    for _ in range(200):
        attach().close()
    last = attach()
    assert last.info().process_slot == 1
    assert last.stats()["processes"] == [2, 0]
    assert region.stats()["reclaimed_processes"] == 0


HOLE = """
import ctypes, os, signal, sys, threading
import faulthandler
when, what, path = sys.argv[1:]
what, _, place = what.partition(" of ")
if when == "before": faulthandler.enable()
from hymcache.region import Region
region = Region.attach(path, populate=False)
ns = region.namespace(bytes(range(32)))
keys = [b"%d" % i for i in range(100)]
for key in keys: assert ns.put(key, key * 1000)
refs, status = ns.reserve([b"late"], 1, unit_bytes=70_000)
found, places = ns.find(keys)
memory = bytearray(70_000)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
pages = region.pages([(address, 70_000, 70_000)])
small = region.pages([(address, 1000, 1000)])
if what == "commit": assert region.write_many(refs, pages, [0], [0], [1]) == b"\\1"
if what in ("numpy", "view"):
    import numpy
    array = numpy.full(4000, 7, dtype=numpy.uint8)
if when == "after": faulthandler.enable()
if when == "masked": signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])
size = region.info().metadata_bytes if place else 4096
if what != "view": os.truncate(path, size)

def use():
    if when == "masked": signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])
    if what == "lookup": return ns.lookup(keys)
    if what == "get": return max(ns.get_into(key, bytearray(4000)) for key in keys)
    if what == "put": return ns.put(b"new", bytes(200_000))
    if what == "evict": return ns.evict(keys) * 0
    if what == "find": return ns.find(keys)[0]
    if what == "contains": return max(ns.contains(keys))
    if what == "write_many": return max(region.write_many(refs, pages, [0], [0], [1]))
    if what == "read_many": return max(region.read_many(places[:16], small, [0], [0], [1]))
    if what == "commit": return max(region.commit(refs))
    if what == "view":
        view = ns.view(keys[5])
        bytes_seen = numpy.frombuffer(view, numpy.uint8)
        os.truncate(path, size)
        return int(bytes_seen.sum()) + view.still_valid() + view.verify()
    if what == "numpy": return ns.get_into(keys[5], array) + ns.put(b"array", array)
    raise SystemExit(what)

result = []
if when == "later":  # in a thread that called before it masked the signal
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])
    result.append(use())
else:
    thread = threading.Thread(target=lambda: result.append(use()))
    thread.start(); thread.join()
assert not result[0], result
assert region.info().lost
assert ns.lookup(keys) == 0 and not ns.put(b"other", b"x")
assert region.stats()["miss_lost"] >= 1
region.close()
"""


USES = ["lookup", "contains", "get", "put", "evict", "find", "write_many", "read_many", "commit", "numpy", "view"]
COPIES = ["get", "put", "write_many", "read_many", "numpy", "view"]


@pytest.mark.parametrize("what", [*USES, *(f"{copy} of the payload alone" for copy in COPIES)])
@pytest.mark.parametrize("when", ["never", "before", "after", "masked", "later"])
def test_a_hole_in_the_medium_is_a_miss_not_a_crash(medium: Path, when: str, what: str) -> None:
    Region.format(medium, size=32 * MIB, chunk_bytes=64 << 10)
    done = subprocess.run(
        [sys.executable, "-c", HOLE, when, what, medium], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


CHAIN = """
import ctypes, mmap, os, signal, sys, tempfile
from hymcache.region import Region
region = Region.attach(sys.argv[1])
with tempfile.TemporaryFile() as file:
    file.truncate(4096)
    area = mmap.mmap(file.fileno(), 4096)
    file.truncate(0)
    area[0]
"""


def test_a_hole_elsewhere_still_kills(region: Region, medium: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CHAIN, medium], capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGBUS


CHILD_OVER_PARENT = """
import os, sys
from hymcache.region import Region

large, small = sys.argv[1:]
parent = Region.attach(large, populate=False)


def places(path):
    lines = [line.split() for line in open("/proc/self/maps") if line.rstrip().endswith(path)]
    ends = [int(end, 16) for line in lines for end in line[0].split("-")]
    return min(ends), max(ends)


start, end = places(large)
if os.fork() == 0:
    region = Region.attach(small, populate=False)
    ns = region.namespace(bytes(32))
    data = b"x" * (64 << 10)
    stored = sum(ns.put(b"%d" % i, data) for i in range(400))
    os.truncate(small, 16 << 20)
    out = bytearray(64 << 10)
    read = sum(ns.get_into(b"%d" % i, out) > 0 for i in range(400))
    inside = start <= places(small)[0] < end
    print(inside, stored, 0 < read < stored, region.info().lost, ns.put(b"more", data), flush=True)
    os._exit(0)
os.wait()
"""


def test_a_child_notices_a_hole_where_its_parents_region_was(medium: Path) -> None:
    small = medium.with_name(medium.name + "-small")
    try:
        Region.format(medium, size=128 * MIB, chunk_bytes=64 << 10)
        Region.format(small, size=32 * MIB, chunk_bytes=64 << 10)
        done = subprocess.run(
            [sys.executable, "-c", CHILD_OVER_PARENT, medium, small],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        small.unlink(missing_ok=True)
    assert done.stdout.split()[1:] == ["400", "True", "True", "False"], done.stdout
    assert done.stdout.split()[0] == "True", "the child's mapping lies elsewhere: this tests nothing"
