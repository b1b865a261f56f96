"""A writer that is stopped inside its copy, sees its domain filled twice by another, and goes on copying."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from hymcache.region import Namespace, Region

from soak.campaign import Campaign, Result

MIB = 1 << 20
CHUNK_BYTES = 64 << 10
CHUNKS_WANTED = 1000
OBJECT_BYTES = 40_000
ACCOUNTED_SECONDS = 2.0
TRIES = 50

WRITER = """
import sys
from hymcache.region import Region
space = Region.attach(sys.argv[1], populate=False, host="one").namespace(bytes(32))
data = bytes([255]) * (16 << 20)
print("ready", flush=True)
number = 0
for line in sys.stdin:
    number += 1
    space.put(b"zombie-%d" % number, data)
    print("done", flush=True)
"""


def content(number: int, turn: int) -> bytes:
    """Bytes that only this object of this turn has."""
    return (b"%012d%04d" % (number, turn)) * (OBJECT_BYTES // 16)


def stop_inside_copy(writer: subprocess.Popen[str], region: Region, rng: random.Random) -> bool:
    """Stop the writer between reserve and commit; false when it was too quick each time."""
    assert writer.stdout is not None
    for _ in range(TRIES):
        if stop_somewhere(writer, region, rng):
            return True
        writer.send_signal(signal.SIGCONT)
        writer.stdout.readline()
    return False


def stop_somewhere(writer: subprocess.Popen[str], region: Region, rng: random.Random) -> bool:
    """Let the writer put, and stop it; true when it was inside its copy."""
    assert writer.stdin is not None
    writer.stdin.write("put\n")
    writer.stdin.flush()
    deadline = time.monotonic() + 2
    while region.chunk_use(0)["writing"] == 0:
        if time.monotonic() > deadline:
            return False
    time.sleep(rng.uniform(0, 0.002))
    writer.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, writer.pid, os.WSTOPPED | os.WNOWAIT)
    return region.chunk_use(0)["writing"] > 0


def fill(space: Namespace, count: int, turn: int) -> int:
    """Put `count` objects; the domain evicts for them. Returns how many were stored."""
    return sum(space.put(b"%d-%d" % (turn, i), content(i, turn)) for i in range(count))


def wrong(space: Namespace, count: int, turns: int) -> tuple[int, int]:
    """(objects read, objects with other bytes than theirs)."""
    out, read, bad = bytearray(OBJECT_BYTES), 0, 0
    for turn in range(turns):
        for i in range(count):
            if space.get_into(b"%d-%d" % (turn, i), out):
                read += 1
                bad += out != content(i, turn)
    return read, bad


def step(path: Path, rng: random.Random) -> Result:
    """One zombie."""
    Region.format(path, size=CHUNKS_WANTED * CHUNK_BYTES + 8 * MIB, chunk_bytes=CHUNK_BYTES)
    with Region.attach(path, host="one") as region:
        space, chunks = region.namespace(bytes(32)), region.info().chunks
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdin is not None
        assert writer.stdout is not None
        try:
            writer.stdout.readline()
            inside = stop_inside_copy(writer, region, rng)
            held = region.chunk_use(0)["writing"]
            stored = fill(space, chunks, 0) + fill(space, chunks, 1)
            kept = region.chunk_use(0)["writing"]
            time.sleep(rng.uniform(0, 2.5))  # beyond the silence after which names are free
            if inside:
                writer.send_signal(signal.SIGCONT)
                writer.stdout.readline()
            started = time.monotonic()
            while (use := region.chunk_use(0))["writing"] + use["leaving"] + use["orphaned"]:
                region.sweep()
                if time.monotonic() - started > 10:
                    break
                time.sleep(0.005)
            accounted = time.monotonic() - started
            read, bad = wrong(space, chunks, 2)
        finally:
            writer.kill()
            writer.wait()
            writer.stdin.close()
            writer.stdout.close()
        stats = region.stats()
        failures = sum(stats[name] for name in ("miss_unit_crc", "miss_table_crc", "miss_header_crc"))
        return {
            "inside": int(inside),
            "taken": held - kept,
            "stored": stored,
            "read": read,
            "wrong": bad,
            "verify_failures": failures,
            "accounted_seconds": accounted,
            "words": sum(use.values()) == chunks,
        }


def problems(result: Result) -> list[str]:
    """Damage to others, bytes taken from the living, chunk words that nobody accounts for."""
    found = []
    if result["wrong"] or result["verify_failures"]:
        found.append(f"{result['wrong']} objects with other bytes, {result['verify_failures']} verify failures")
    if result["taken"] or not result["inside"]:
        found.append(f"{result['taken']} chunks were taken from a stopped process, stopped inside: {result['inside']}")
    if result["accounted_seconds"] >= ACCOUNTED_SECONDS or not result["words"]:
        found.append(f"chunk words were accounted for after {result['accounted_seconds']:.2f} s")
    return found


def total(results: list[Result]) -> Result:
    """Sums, and the slowest accounting."""
    names = ("inside", "taken", "stored", "read", "wrong", "verify_failures")
    sums: Result = {name: sum(result[name] for result in results) for name in names}
    return {"zombies": len(results), **sums, "slowest_accounted_seconds": max(r["accounted_seconds"] for r in results)}


ZOMBIE = Campaign(
    "zombie", "a writer stopped inside its copy, its domain filled twice, then thawed", 50, step, problems, total
)
