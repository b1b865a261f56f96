"""Reports believe nothing they read and store nothing; windows are for this process's own reservations."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hymcache.region import Namespace, Region, RegionError
from hymcache.region.bare import copies

FINGERPRINT = bytes(range(32))
Content = Callable[[bytes, int], bytes]


def aligned(size: int) -> memoryview:
    return memoryview(mmap.mmap(-1, size))


def test_objects_come_in_pages_and_in_the_order_of_headers(region: Region, ns: Namespace) -> None:
    for i in range(100):
        assert ns.put(b"%d" % i, bytes(100 + i))
    _, whole = region.objects(0, 0, 1 << 30)
    assert sorted(row[6] for row in whole) == list(range(100, 200))
    assert all(row[2:4] == ("valid", None) for row in whole)
    rows, following, calls = [], 0, 0
    while calls == 0 or following:
        following, part = region.objects(0, following, 64)
        rows += part
        calls += 1
    assert rows == whole
    assert calls == region.info().objects // 2 // 64
    assert region.objects(1) == (0, [])


def test_a_verified_object_tells_its_bytes_and_a_wrong_generation_changed(region: Region, ns: Namespace) -> None:
    assert ns.put(b"k", bytes(300_000), units=3)
    _, ((header, generation, *_),) = region.objects(0)
    assert region.verify(0, header, generation) == (300_000, None)
    assert region.verify(0, header, generation + 1) == (0, "miss_changed")
    assert region.verify(0, 1 << 31, generation) == (0, "miss_bounds")


@pytest.mark.parametrize("domain", [2, 1000])
def test_a_domain_that_is_not_there_is_named(region: Region, domain: int) -> None:
    for call in (region.objects, region.chunk_use, region.namespaces, region.activity):
        with pytest.raises(ValueError, match=f"domain: expected 0 to 1, found {domain}"):
            call(domain)


def test_a_closed_region_has_no_reports(region: Region) -> None:
    region.close()
    for call in (region.objects, region.chunk_use, region.namespaces, region.activity):
        with pytest.raises(RegionError, match="attach again"):
            call(0)


def test_a_reader_changes_nothing(region: Region, ns: Namespace, medium: Path, attach: Callable[..., Region]) -> None:
    for i in range(20):
        ns.put(b"%d" % i, bytes(1000))
    reader = attach(read_only=True)
    region.close()
    before = medium.read_bytes()
    for domain in range(2):
        reader.chunk_use(domain), reader.namespaces(domain), reader.activity(domain)
        for header, generation, *_ in reader.objects(domain)[1]:
            assert reader.verify(domain, header, generation)[1] is None
    assert medium.read_bytes() == before


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bytes_are_reported_at_worst(
    region: Region, ns: Namespace, medium: Path, attach: Callable[..., Region], content: Content, seed: int
) -> None:
    rng = random.Random(seed)
    reader = attach(read_only=True)
    metadata = region.info().metadata_bytes
    damaged = 0
    with medium.open("r+b") as file, mmap.mmap(file.fileno(), 0) as raw:
        for _ in range(30):
            for i in range(20):
                ns.put(b"%d" % i, content(b"%d" % i, 1000 * (1 + i)), units=4)
            for _ in range(rng.randrange(1, 2000)):
                raw[rng.randrange(4096, metadata)] = rng.randrange(256)
            for domain in range(2):
                reader.namespaces(domain), reader.activity(domain)
                assert sum(reader.chunk_use(domain).values()) == region.info().chunks // 2
                for header, generation, _, damage, *_ in reader.objects(domain)[1]:
                    damaged += damage is not None or reader.verify(domain, header, generation)[1] is not None
    assert damaged > 0
    assert reader.stats()["out_of_bounds"] == 0


def test_a_window_copies_both_ways_by_every_bare_copy(region: Region, ns: Namespace, content: Content) -> None:
    size = 200 << 10  # crosses chunks
    refs, status = ns.reserve([b"w"], 1, unit_bytes=size)
    assert status == b"\1"
    window = region.window(refs)
    source, back = aligned(size), aligned(size)
    assert copies()[0] == "memcpy"
    for name in copies():
        source[:] = content(name.encode(), size)
        window.copy_in(name, source)
        window.copy_out(name, back)
        assert back == source
    halves = [source[: size // 2], source[size // 2 :]]
    window.copy_in("memcpy", halves)
    with pytest.raises(ValueError, match='no copy "magic"'):
        window.copy_in("magic", source)
    for wrong in (source[:-256], source[64:], [source[:100], source[100:]]):
        with pytest.raises(ValueError, match="buffers: expected"):
            window.copy_in("memcpy", wrong)
    with pytest.raises(TypeError, match="writable"):
        window.copy_out("memcpy", bytes(size))
    region.abort(refs)
    with pytest.raises(ValueError, match="a reservation that stands"):
        window.copy_in("memcpy", source)


def test_no_window_on_what_is_not_reserved_here(region: Region, ns: Namespace) -> None:
    assert ns.put(b"k", bytes(1024))
    found, refs = ns.find([b"k"])
    assert found == 1
    two, _ = ns.reserve([b"a", b"b"], 1, unit_bytes=1024)
    units, _ = ns.reserve([b"c"], 2, unit_bytes=1024)
    for wrong in (refs, two, units, b"", bytes(16)):
        with pytest.raises(ValueError, match="reference: expected one object of one unit"):
            region.window(wrong)
