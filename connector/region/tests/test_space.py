"""What objects take: chunks by their bytes and units, places in the directory by their keys."""

from __future__ import annotations

import hashlib
import math
import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hymcache.region import Namespace, Region
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

KIB, MIB = 1 << 10, 1 << 20
FINGERPRINT = bytes(range(32))
SLOT_UNITS = 31
"""Unit checksums that the table slot of a chunk holds."""
CHUNKS_MAX = 24


@pytest.fixture(params=[64 * KIB, 256 * KIB], ids=["64KiB", "256KiB"])
def space(medium: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Region, Namespace]]:
    size = 2 * MIB + 2 * CHUNKS_MAX * request.param
    Region.format(medium, size=size, chunk_bytes=request.param)
    with Region.attach(medium, populate=False) as region:
        yield region, region.namespace(FINGERPRINT)


def held(region: Region) -> int:
    """Chunks that objects hold, by the chunk words; every other one is free or an evicted object's."""
    use = region.chunk_use(0)
    assert use["valid"] + use["retired"] + use["free"] == region.info().chunks
    return use["valid"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chunks=st.integers(1, CHUNKS_MAX), data=st.data())
def test_an_object_of_exactly_k_chunks_takes_k_chunks(
    space: tuple[Region, Namespace], chunks: int, data: st.DataObject
) -> None:
    region, ns = space
    size = chunks * region.info().chunk_bytes
    unit_counts = [n for n in range(1, SLOT_UNITS * chunks + 1) if size % n == 0 and size // n % 64 == 0]
    units = data.draw(st.sampled_from(unit_counts))
    stored = random.Random(units).randbytes(size)
    assert ns.put(b"k", stored, units=units)
    assert held(region) == chunks
    out = bytearray(size)
    assert ns.get_into(b"k", out) == size
    assert out == stored
    ns.evict([b"k"])
    assert held(region) == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(units=st.integers(1, 600), unit_bytes=st.integers(1, 40_000))
def test_any_other_object_takes_what_its_padded_units_and_their_checksums_need(
    space: tuple[Region, Namespace], units: int, unit_bytes: int
) -> None:
    region, ns = space
    padded = units * -(-unit_bytes // 64) * 64
    chunks = max(math.ceil(padded / region.info().chunk_bytes), math.ceil(units / SLOT_UNITS))
    stored = ns.put(b"k", bytes(units * unit_bytes), units=units)
    if chunks > region.info().chunks:
        assert not stored
        assert region.stats()["put_too_large"] >= 1
        return
    assert stored
    assert held(region) == chunks
    ns.evict([b"k"])
    assert held(region) == 0


def test_an_object_may_take_the_whole_domain(space: tuple[Region, Namespace]) -> None:
    region, ns = space
    info = region.info()
    assert ns.put(b"k", bytes(info.chunks * info.chunk_bytes))
    assert held(region) == info.chunks
    ns.evict([b"k"])
    assert not ns.put(b"k", bytes(info.chunks * info.chunk_bytes + 1))


def hashed(n: int) -> bytes:
    return hashlib.sha256(b"%d" % n).digest()


def text(n: int) -> bytes:
    return b"block-%d" % n


def number(n: int) -> bytes:
    return n.to_bytes(8, "little")


@pytest.mark.parametrize("key", [hashed, text, number])
@pytest.mark.parametrize("seed", range(3))
def test_full_directory_sets_cost_at_most_one_put_in_a_thousand(
    medium: Path, key: Callable[[int], bytes], seed: int
) -> None:
    """At the planned load of 0.8, while the domain fills and while every further put evicts."""
    name = str(uuid.UUID(int=random.Random(seed).getrandbits(128)))
    info = Region.format(medium, size=320 * MIB, chunk_bytes=64 * KIB, uuid=name)
    load = info.chunks / info.objects
    assert 0.78 < load <= 0.8
    with Region.attach(medium, populate=False) as region:
        ns = region.namespace(FINGERPRINT)
        for n in range(info.chunks):
            assert ns.put(key(n), b"x")
        filled = region.stats()
        assert filled["evictions"] == 0, "room was left"
        assert filled["conflict_evictions"] <= 0.001 * info.chunks
        for n in range(info.chunks, 4 * info.chunks):
            assert ns.put(key(n), b"x")
        stats = region.stats()
        assert stats["puts"] == 4 * info.chunks
        assert stats["evictions"] >= 2.9 * info.chunks
        assert stats["conflict_evictions"] <= 0.001 * stats["puts"]


@pytest.mark.parametrize(
    ("key", "region_number"), [(text, 986), (text, 1023), (text, 1118), (number, 128), (number, 136), (number, 338)]
)
def test_keys_that_count_up_fill_an_empty_domain(medium: Path, key: Callable[[int], bytes], region_number: int) -> None:
    """In these regions the sums of the digest, without its last step, bring 3 to 44 such keys to two full sets each."""
    name = str(uuid.UUID(int=region_number))
    info = Region.format(medium, size=32 * MIB, chunk_bytes=64 * KIB, domains=2, uuid=name)
    with Region.attach(medium, populate=False) as region:
        ns = region.namespace(FINGERPRINT)
        keys = [key(n) for n in range(info.chunks // 2)]
        assert all(ns.put(one, b"x") for one in keys)
        assert region.stats()["conflict_evictions"] == 0
        assert ns.lookup(keys) == len(keys)
