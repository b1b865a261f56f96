"""Damaged bytes in a region: a miss, once; never other bytes, never an exception."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hymcache.region import Namespace, Region

MIB = 1 << 20
FINGERPRINT = bytes(range(32))
Content = Callable[[bytes, int], bytes]


@pytest.fixture
def raw(medium: Path, region: Region) -> Iterator[mmap.mmap]:
    """The region's bytes, as a fault would change them."""
    with medium.open("r+b") as file, mmap.mmap(file.fileno(), 0) as raw:
        yield raw


@pytest.fixture
def foreign(attach: Callable[..., Region]) -> Region:
    """The same region attached to the other domain."""
    return attach(domain=1)


def damage(raw: mmap.mmap, data: bytes) -> None:
    at = raw.find(data)
    assert at >= 0
    assert raw.find(data, at + 1) < 0
    raw[at] ^= 1


def test_a_damaged_foreign_object_is_missed_and_not_tried_again(
    ns: Namespace, foreign: Region, raw: mmap.mmap, content: Content
) -> None:
    data = content(b"k", 5000)
    ns.put(b"k", data)
    theirs = foreign.namespace(FINGERPRINT)
    out = bytearray(5000)
    assert theirs.get_into(b"k", out) == 5000
    damage(raw, data)
    assert theirs.get_into(b"k", out) == 0
    assert foreign.stats()["miss_unit_crc"] == 1
    assert theirs.lookup([b"k"]) == 0, "a request that looks up again would loop"
    assert theirs.get_into(b"k", out) == 0
    assert foreign.stats()["miss_unit_crc"] == 1
    assert foreign.stats()["miss_quarantined"] >= 1


def test_a_quarantined_object_is_found_again_once_it_is_stored_anew(
    ns: Namespace, foreign: Region, raw: mmap.mmap, content: Content
) -> None:
    data = content(b"k", 5000)
    ns.put(b"k", data)
    theirs = foreign.namespace(FINGERPRINT)
    damage(raw, data)
    out = bytearray(5000)
    assert theirs.get_into(b"k", out) == 0
    assert ns.evict([b"k"]) == 1
    assert ns.put(b"k", data)
    assert theirs.lookup([b"k"]) == 1
    assert theirs.get_into(b"k", out) == 5000
    assert out == data


def test_the_quarantine_is_shared_by_the_processes_of_a_host(
    ns: Namespace, foreign: Region, raw: mmap.mmap, content: Content, attach: Callable[..., Region]
) -> None:
    data = content(b"k", 5000)
    ns.put(b"k", data)
    damage(raw, data)
    assert foreign.namespace(FINGERPRINT).get_into(b"k", bytearray(5000)) == 0
    assert attach(domain=1).namespace(FINGERPRINT).lookup([b"k"]) == 0
    assert ns.lookup([b"k"]) == 1, "another host's quarantine is not ours"


def test_a_read_only_process_remembers_what_was_damaged(
    ns: Namespace, raw: mmap.mmap, content: Content, attach: Callable[..., Region]
) -> None:
    data = content(b"k", 5000)
    ns.put(b"k", data)
    damage(raw, data)
    theirs = attach(read_only=True).namespace(FINGERPRINT)
    assert theirs.lookup([b"k"]) == 1
    assert theirs.get_into(b"k", bytearray(5000)) == 0
    assert theirs.lookup([b"k"]) == 0


def test_a_damaged_own_object_is_dropped_and_its_chunks_return(
    region: Region, ns: Namespace, raw: mmap.mmap, content: Content
) -> None:
    free = region.stats()["free_chunks"][0]
    data = content(b"k", 200_000)
    ns.put(b"k", data)
    damage(raw, data[100_000:])
    assert ns.get_into(b"k", bytearray(200_000)) == 0
    assert region.stats()["dropped_damaged"] == 1
    assert region.stats()["free_chunks"][0] == free
    assert ns.put(b"k", data)
    assert ns.get_into(b"k", bytearray(200_000)) == 200_000


def test_only_the_damaged_unit_is_missed(ns: Namespace, foreign: Region, raw: mmap.mmap, content: Content) -> None:
    data = content(b"k", 4 * 5000)
    ns.put(b"k", data, units=4)
    theirs = foreign.namespace(FINGERPRINT)
    damage(raw, data[15_000:])
    out = bytearray(15_000)
    assert theirs.get_into(b"k", out, count=3) == 15_000
    assert out == data[:15_000]
    assert theirs.get_into(b"k", bytearray(5000), first=3) == 0


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_anywhere_are_misses_at_worst(
    region: Region, ns: Namespace, foreign: Region, raw: mmap.mmap, content: Content, seed: int
) -> None:
    rng = random.Random(seed)
    theirs = foreign.namespace(FINGERPRINT)
    metadata = region.info().metadata_bytes
    keys = [b"%d" % i for i in range(40)]
    sizes = {key: 1000 * (1 + int(key) % 150) for key in keys}
    hits = 0
    for round_ in range(60):
        for key in rng.sample(keys, 10):
            (ns if rng.random() < 0.5 else theirs).put(key, content(key, sizes[key]), units=4)
        for _ in range(rng.randrange(1, 200)):
            at = rng.randrange(4096, metadata if rng.random() < 0.9 else len(raw))
            raw[at] = rng.randrange(256) if round_ % 2 else raw[at] ^ 1 << rng.randrange(8)
        for key in keys:
            for reader in (ns, theirs):
                out = bytearray(sizes[key])
                if reader.get_into(key, out):
                    assert out == content(key, sizes[key])
                    hits += 1
        ns.lookup(keys)
        theirs.contains(keys)
        ns.evict(rng.sample(keys, 5))
    assert hits > 100
    assert foreign.stats()["out_of_bounds"] == 0
