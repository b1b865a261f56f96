from __future__ import annotations

import array
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hymcache.region import Namespace, Region

MIB = 1 << 20
FINGERPRINT = bytes(range(32))


Content = Callable[[bytes, int], bytes]


@pytest.fixture
def content() -> Content:
    """Bytes that only this key has: every 8 of them name the key and their place."""

    def content(key: bytes, size: int) -> bytes:
        stamp = zlib.crc32(key) << 32
        return array.array("Q", range(stamp, stamp + -(-size // 8))).tobytes()[:size]

    return content


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[Path]:
    """Where a region may be formatted: on tmpfs, as the pages of a real one are not on disk either."""
    folder = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    path = folder / f"hymcache-test-{os.getpid()}-{tmp_path.name}"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def region(medium: Path) -> Iterator[Region]:
    """An attached region of 32 MiB in two domains, with chunks of 64 KiB."""
    Region.format(medium, size=32 * MIB, chunk_bytes=64 << 10, domains=2)
    with Region.attach(medium) as region:
        yield region


@pytest.fixture
def ns(region: Region) -> Namespace:
    return region.namespace(FINGERPRINT)


@pytest.fixture
def attach(medium: Path, region: Region) -> Iterator[Callable[..., Region]]:
    """Attaches the same region once more."""
    opened: list[Region] = []

    def attach(**options: object) -> Region:
        opened.append(Region.attach(medium, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield attach
    for one in opened:
        one.close()
