"""A region of 10 TB on paper: what its directory takes and how long attach lasts, from slopes over smaller regions.

A region of 10 TB in objects of 16 MiB has 596,046 objects of 8 chunks each. Metadata and attach know how many objects
and chunks there are and nothing of their bytes, so the regions that are measured have objects of 8 small chunks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression

from hymcache.region import Region, RegionInfo

from figures.target import Figure
from figures.world import MIB, medium

PAPER_OBJECTS = 10 * 10**12 // (16 * MIB)
CHUNKS_PER_OBJECT = 8
CHUNK_BYTES = 64 << 10
SIZES = (256 * MIB, 512 * MIB, 1024 * MIB, 2048 * MIB)
REGIONS_PER_SIZE = 3
ATTACHES = 5
SET_BYTES = 64 + 16 * (64 + 16 + 8) + 48
"""A tag line; header, side words and ghost of 16 objects; three eighths of a set of shadows."""
CHUNK_METADATA_BYTES = 256 + 8
"""Table slot and word of a chunk."""
GRANULE = 2 * MIB


@dataclass(frozen=True)
class Sized:
    """A region of one domain. Times in seconds, each the best of some."""

    objects: int
    index_bytes: int
    first_attach: float
    """Of a new owner, who clears the domain."""
    attach: float
    """Of a later process."""


def directory_bytes(path: Path, info: RegionInfo) -> int:
    """The directory by docs/region-format.md: the superblock tells the sets. Checked against where the pool begins."""
    with path.open("rb") as file:
        sets = int.from_bytes(file.read(100)[96:], "little")
    found = sets * SET_BYTES
    rest = info.metadata_bytes - found - info.chunks * CHUNK_METADATA_BYTES
    if sets * 16 != info.objects or not 0 <= rest <= 3 * GRANULE:
        raise RuntimeError(f"scale: expected at most {3 * GRANULE} bytes beside directory and tables, found {rest}")
    return found


def measured(folder: Path, size: int) -> Sized:
    """Directory and times of regions of one size."""
    first, later = [], []
    objects = size // CHUNK_BYTES // CHUNKS_PER_OBJECT
    for _ in range(REGIONS_PER_SIZE):
        with medium(folder) as path:
            info = Region.format(path, size=size, chunk_bytes=CHUNK_BYTES, objects=objects)
            times = []
            for _ in range(1 + ATTACHES):
                started = time.perf_counter()
                with Region.attach(path, populate=False):
                    times.append(time.perf_counter() - started)
            index_bytes = directory_bytes(path, info)
        first.append(times[0])
        later += times[1:]
    return Sized(objects, index_bytes, min(first), min(later))


def on_paper(regions: list[Sized], values: list[float]) -> tuple[float, float]:
    """A value at 10 TB by a straight line through the measured ones, and its slope per object."""
    slope, start = linear_regression([region.objects for region in regions], values)
    return start + slope * PAPER_OBJECTS, slope


def ten_terabytes(folder: Path) -> Iterator[Figure]:
    """Directory and attach of a region of 10 TB in objects of 16 MiB."""
    regions = [measured(folder, size) for size in SIZES]
    index, slope = on_paper(regions, [region.index_bytes for region in regions])
    limit = 1e-6 * 128 * PAPER_OBJECTS
    detail = f"{slope:.1f} bytes per object; from {regions[0].objects} to {regions[-1].objects} objects"
    yield Figure("10 TB on paper: directory", 1e-6 * index, "MB", limit, limit, True, detail=detail)
    tables = PAPER_OBJECTS * CHUNKS_PER_OBJECT * CHUNK_METADATA_BYTES
    detail = f"{CHUNK_METADATA_BYTES} bytes per chunk of 2 MiB"
    yield Figure("10 TB on paper: tables beside the pool", 1e-6 * tables, "MB", detail=detail)
    for name, times in (
        ("10 TB on paper: attach", [region.attach for region in regions]),
        ("10 TB on paper: attach of a new owner", [region.first_attach for region in regions]),
    ):
        seconds, slope = on_paper(regions, times)
        detail = f"{1e6 * slope:+.3f} us per object; {1e3 * times[-1]:.2f} ms with {regions[-1].objects} objects"
        yield Figure(name, 1e3 * seconds, "ms", detail=detail)
