"""Silence is not death: starved and frozen processes keep their slots and their bytes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from hymcache.region import Region

from soak.campaign import Campaign, Result

BUSY_LOOPS = 16
FREEZE_SECONDS = 30
OBJECT_BYTES = 1 << 20

HOLDER = """
import sys
from hymcache.region import Region
region = Region.attach(sys.argv[1], host="one")
space = region.namespace(bytes(32))
refs, status = space.reserve([b"held-" + sys.argv[2].encode()], 1, unit_bytes=1 << 20)
assert status == b"\\1"
print(region.info().process_slot, flush=True)
sys.stdin.readline()
data = sys.argv[2].encode() * (1 << 20)
ok = space.put(b"after-" + sys.argv[2].encode(), data) and space.lookup([b"after-" + sys.argv[2].encode()]) == 1
print(int(ok), flush=True)
"""
BUSY = "while True: pass"


def step(path: Path, rng: random.Random) -> Result:
    """Four holders, two of them frozen, beside sixteen busy loops, for half a minute."""
    del rng
    Region.format(path, size=64 << 20)
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(BUSY_LOOPS)]
    holders: list[subprocess.Popen[str]] = []
    try:
        with Region.attach(path, host="one") as region:
            holders.extend(holder(path, name) for name in "abcd")
            slots = [read(one) for one in holders]
            held = region.chunk_use(0)["writing"]
            for one in holders[:2]:
                one.send_signal(signal.SIGSTOP)
            ending = time.monotonic() + FREEZE_SECONDS
            swept = 0
            while time.monotonic() < ending:
                swept += region.sweep()
                time.sleep(0.1)
            kept = region.chunk_use(0)["writing"]
            taken = region.stats()["processes"][0]
            for one in holders[:2]:
                one.send_signal(signal.SIGCONT)
            answers = [answer(one) for one in holders]
            stats = region.stats()
            return {
                "slots": slots,
                "slots_taken": taken,
                "swept": swept + stats["reclaimed_processes"],
                "held_chunks": held,
                "chunks_lost": held - kept + stats["reclaimed_chunks"],
                "working_afterwards": answers.count("1"),
            }
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        for one in holders:
            one.kill()
            one.communicate()


def holder(path: Path, name: str) -> subprocess.Popen[str]:
    """A process that holds a reservation."""
    command = [sys.executable, "-c", HOLDER, str(path), name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read(one: subprocess.Popen[str]) -> str:
    """A line from a holder."""
    assert one.stdout is not None
    return one.stdout.readline().strip()


def answer(one: subprocess.Popen[str]) -> str:
    """Let a holder go on; what it says."""
    assert one.stdin is not None
    one.stdin.write("\n")
    one.stdin.flush()
    return read(one)


def problems(result: Result) -> list[str]:
    """Slots or chunks of the living that were taken."""
    found = []
    if result["swept"] or result["slots_taken"] != 5:
        found.append(f"{result['swept']} living processes were swept, {result['slots_taken']} of 5 slots stand")
    if result["chunks_lost"] or not result["held_chunks"]:
        found.append(f"{result['chunks_lost']} of {result['held_chunks']} chunks were taken from the living")
    if result["working_afterwards"] != 4:
        found.append(f"{result['working_afterwards']} of 4 processes worked afterwards")
    return found


def total(results: list[Result]) -> Result:
    """Sums."""
    names = ("swept", "held_chunks", "chunks_lost", "working_afterwards")
    return {name: sum(result[name] for result in results) for name in names}


SILENCE = Campaign("silence", f"{BUSY_LOOPS} busy loops and a freeze of {FREEZE_SECONDS} s", 1, step, problems, total)
