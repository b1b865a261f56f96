"""Four processes in two domains, killed and frozen at random points while they put, split puts, get and evict."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from hymcache.region import Region

from soak.campaign import Campaign, Result

PROGRAM = Path(__file__).resolve().parents[2] / "connector/region/tests/programs/churn.py"
USABLE_SECONDS = 2.0


def churn(path: Path, rng: random.Random, *, kills: int, freezes: int) -> Result:
    """One run of the region tests' own workers."""
    Region.format(path, size=16 << 20, chunk_bytes=64 << 10, domains=2)
    arguments = [path, 600, kills, freezes, rng.randrange(1 << 30)]
    ran = subprocess.run([sys.executable, PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{PROGRAM.name}: exit status {ran.returncode}: {ran.stderr.strip()}")
    result: Result = json.loads(ran.stdout)
    return result


def problems(result: Result) -> list[str]:
    """Wrong bytes, failed workers, chunks that no put can have any more, room that came back late."""
    found = []
    if result["wrong"] or result["failed"]:
        found.append(f"{result['wrong']} workers read wrong bytes, {result['failed']} failed")
    if result["left_by_the_dead"]:
        found.append(f"{result['left_by_the_dead']} chunks were still held by the dead after the sweep")
    if not result["splits"]["committed"]:
        found.append("no put was split: nothing was tried")
    lost = sum(chunks - kept for kept, chunks in result["usable"])
    if lost:
        found.append(f"{lost} chunks are lost")
    if result["seconds_until_swept"] >= USABLE_SECONDS:
        found.append(f"room was given back after {result['seconds_until_swept']:.2f} s, at most {USABLE_SECONDS} s")
    return found


def total(results: list[Result]) -> Result:
    """Sums, and the slowest return of room."""
    sums: Result = {name: sum(result[name] for result in results) for name in ("kills", "freezes", "wrong", "failed")}
    sums["splits"] = {name: sum(result["splits"][name] for result in results) for name in results[0]["splits"]}
    sums["lost_chunks"] = sum(chunks - kept for result in results for kept, chunks in result["usable"])
    return {**sums, "slowest_seconds_until_swept": max(result["seconds_until_swept"] for result in results)}


KILLS = Campaign(
    "kills",
    "1,000 kill -9 at random points, 4 processes in 2 domains, puts split among 3",
    20,
    lambda path, rng: churn(path, rng, kills=50, freezes=0),
    problems,
    total,
)
FREEZES = Campaign(
    "freezes",
    "200 freezes and thaws at random points among 50 kills, 4 processes in 2 domains, puts split among 3",
    10,
    lambda path, rng: churn(path, rng, kills=5, freezes=20),
    problems,
    total,
)
