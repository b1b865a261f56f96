"""A committer that is stopped inside its commits while the reserver gives up and reuses the room, and then goes on."""

from __future__ import annotations

import array
import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from hymcache.region import Namespace, Region, ReserveStatus

from soak.campaign import Campaign, Result

TRIALS = 40
OBJECTS = 32
BATCH = 8
UNITS = 4000
UNIT_BYTES = 64
"""Many small units make a large table, so that a commit takes longer than a signal does to arrive: shorter ones are
stopped at the system call between them alone."""
WAIT_SECONDS_MAX = 1.0
"""For a commit, before the stop."""
MOMENTS = ("reserved", "written", "committed")
"""What has become of the next batch when the committer goes on."""

COMMITTER = """
import os, sys
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
from hymcache.region import Region
region = Region.attach(sys.argv[1], populate=False, host="one")
print("ready", flush=True)
for line in sys.stdin:
    region.commit(bytes.fromhex(line))
    print("done", flush=True)
"""


def content(key: int) -> bytes:
    """Bytes that only this key has."""
    return b"%016d" % key * (UNITS * UNIT_BYTES // 16)


class Store:
    """Splits of puts, and what they left."""

    def __init__(self, region: Region, space: Namespace) -> None:
        self.region, self.space = region, space
        self.memory = bytearray(BATCH * UNITS * UNIT_BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.pages = region.pages([(address, UNIT_BYTES, UNIT_BYTES, BATCH * UNITS)])

    def reserve(self, keys: range) -> bytes | None:
        """References, or `None` when there is no room: a stopped committer has some."""
        refs, status = self.space.reserve([b"%d" % key for key in keys], UNITS, unit_bytes=UNIT_BYTES)
        return refs if status == bytes([ReserveStatus.NEW]) * len(keys) else None

    def write(self, keys: range, refs: bytes) -> int:
        """How many could not be written."""
        self.memory[:] = b"".join(map(content, keys))
        ids = array.array("i", range(BATCH * UNITS))
        return self.region.write_many(refs, self.pages, ids, [0] * BATCH, [UNITS] * BATCH).count(0)

    def found(self, keys: range) -> int:
        """How many of the keys are there."""
        return self.space.contains([b"%d" % key for key in keys]).count(1)

    def wrong(self, keys: range) -> int:
        """How many are read with other bytes than theirs."""
        out = bytearray(UNITS * UNIT_BYTES)
        return sum(self.space.get_into(b"%d" % key, out) > 0 and out != content(key) for key in keys)


def trial(store: Store, committer: subprocess.Popen[str], rng: random.Random, number: int) -> Result:
    """One batch whose commits are stopped, and the next one, which nobody gives up."""
    first, second = (range(start * BATCH, (start + 1) * BATCH) for start in (2 * number, 2 * number + 1))
    given_up = store.reserve(first)
    if given_up is None or store.write(first, given_up):
        return {"unreserved": 1}
    say(committer, given_up.hex())
    awaited, deadline = [b"%d" % rng.choice(first[:-1])], time.monotonic() + WAIT_SECONDS_MAX
    while not store.space.lookup(awaited) and time.monotonic() < deadline:
        pass
    committer.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, committer.pid, os.WSTOPPED | os.WNOWAIT)
    inside = 0 < store.found(first) < BATCH
    store.region.abort(given_up)
    store.space.evict([b"%d" % key for key in first])
    moment, refused = rng.choice(MOMENTS), 0
    refs = store.reserve(second)
    go_on(committer, moment == "reserved" or refs is None)
    if refs is not None:
        refused += store.write(second, refs)
        go_on(committer, moment == "written")
        refused += store.region.commit(refs).count(0)
        go_on(committer, moment == "committed")
    wrong = store.wrong(first) + store.wrong(second)
    lost = 0 if refs is None else BATCH - store.found(second)
    store.space.evict([b"%d" % key for keys in (first, second) for key in keys])
    return {"inside": int(inside), "unreserved": int(refs is None), "refused": refused, "wrong": wrong, "lost": lost}


def say(committer: subprocess.Popen[str], line: str) -> None:
    """Give the committer a batch."""
    assert committer.stdin is not None
    committer.stdin.write(line + "\n")
    committer.stdin.flush()


def go_on(committer: subprocess.Popen[str], is_time: bool) -> None:
    """Let the committer end its batch."""
    if is_time:
        assert committer.stdout is not None
        committer.send_signal(signal.SIGCONT)
        committer.stdout.readline()


def step(path: Path, rng: random.Random) -> Result:
    """Some trials in one region whose headers are few, so that they are claimed again at once."""
    cpus = os.sched_getaffinity(0)
    Region.format(path, size=512 << 20, chunk_bytes=64 << 10, objects=OBJECTS)
    with Region.attach(path, host="one") as region:
        store = Store(region, region.namespace(bytes(32)))
        command = [sys.executable, "-c", COMMITTER, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as committer:
            try:
                assert committer.stdout is not None
                committer.stdout.readline()
                os.sched_setaffinity(0, {min(cpus)})  # the committer has another: it goes on until it is stopped
                return total([trial(store, committer, rng, number) for number in range(TRIALS)])
            finally:
                os.sched_setaffinity(0, cpus)
                committer.kill()


def problems(result: Result) -> list[str]:
    """Damage that a late commit did to what was stored in its place."""
    found = []
    if result["wrong"]:
        found.append(f"{result['wrong']} objects with other bytes than theirs")
    if result["refused"] or result["lost"]:
        what = f"{result['refused']} writes and commits were refused, {result['lost']} objects are lost"
        found.append(f"{what}, which nobody gave up")
    if result["inside"] < TRIALS // 10 or result["unreserved"] > TRIALS // 2:
        found.append(f"{result['inside']} of {TRIALS} stops came between commits: nothing was tried; give it two CPUs")
    return found


def total(results: list[Result]) -> Result:
    """Sums."""
    names = ("inside", "unreserved", "refused", "wrong", "lost")
    return {name: sum(result.get(name, 0) for result in results) for name in names}


LATE = Campaign(
    "late",
    "committers stopped inside their commits, given up, their room reused, then thawed",
    50,
    step,
    problems,
    total,
)
