"""A million puts, gets and evictions in one process: memory and descriptors do not grow."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

from hymcache.region import Region

from soak.campaign import Campaign, Result

CYCLES = 1_000_000
SAMPLES = 100
WARM = 10
"""Samples before the slope is taken: allocators and page tables settle."""
GROWTH_BYTES_MAX = 256 << 10
"""Growth over a million cycles that is no growth: a quarter of a byte per cycle, a page here and there."""


def resident() -> int:
    """Private resident bytes of this process: those of the region's mapping are not its own."""
    words = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(words["RssAnon"].split()[0]) << 10


def descriptors() -> int:
    """Open descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def step(path: Path, rng: random.Random) -> Result:
    """All cycles; objects of 1 to 5 units over 2,000 keys in a region that holds some of them."""
    Region.format(path, size=32 << 20, chunk_bytes=64 << 10)
    blocks = [rng.randbytes(4096 * units) for units in range(1, 6)]
    out = bytearray(4096 * 5)
    memory, files, wrong, gets = [], [], 0, 0
    with Region.attach(path) as region:
        space = region.namespace(bytes(32))
        for number in range(CYCLES):
            key = rng.randrange(2000)
            name, block = b"%d" % key, blocks[key % 5]
            space.put(name, block, units=key % 5 + 1)
            if count := space.get_into(name, out):
                gets += 1
                wrong += count != len(block) or out[:count] != block
            if number % 3 == 0:
                space.evict([name])
            if number % (CYCLES // SAMPLES) == 0:
                memory.append(resident())
                files.append(descriptors())
        stats = region.stats()
    slope = statistics.linear_regression(range(SAMPLES - WARM), memory[WARM:]).slope
    return {
        "cycles": CYCLES,
        "gets": gets,
        "wrong": wrong,
        "evictions": stats["evictions"],
        "puts": stats["puts"],
        "growth_bytes_per_million": round(slope * SAMPLES),
        "resident_bytes": memory[-1],
        "descriptors_min": min(files[WARM:]),
        "descriptors_max": max(files[WARM:]),
    }


def problems(result: Result) -> list[str]:
    """Wrong bytes, growth."""
    found = []
    if result["wrong"]:
        found.append(f"{result['wrong']} wrong reads")
    if result["growth_bytes_per_million"] > GROWTH_BYTES_MAX:
        found.append(f"memory grew by {result['growth_bytes_per_million']} bytes in a million cycles")
    if result["descriptors_min"] != result["descriptors_max"]:
        found.append(f"descriptors went from {result['descriptors_min']} to {result['descriptors_max']}")
    return found


CYCLING = Campaign("cycles", "a million put, get and evict cycles", 1, step, problems, lambda results: results[0])
