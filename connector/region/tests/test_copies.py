"""One key in two domains: hosts that store it at the same time."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hymcache.region import Namespace, Region

MIB = 1 << 20
FINGERPRINT = bytes(range(32))
OBJECT = 256 << 10

Hosts = tuple[Region, Region]


@pytest.fixture
def hosts(medium: Path) -> Iterator[Hosts]:
    """Two hosts, each with a domain that holds fewer than 40 objects."""
    Region.format(medium, size=20 * MIB, chunk_bytes=64 << 10, domains=2)
    with Region.attach(medium, host="a") as low, Region.attach(medium, domain=1, host="b") as high:
        yield low, high


def spaces(hosts: Hosts) -> tuple[Namespace, Namespace]:
    low, high = (host.namespace(FINGERPRINT) for host in hosts)
    return low, high


def store_at_once(hosts: Hosts, key: bytes) -> None:
    """Both reserve before the first commits, so that neither sees the other; the lower domain is first."""
    memory = ctypes.create_string_buffer(key[:1] * OBJECT, OBJECT)
    pages = hosts[0].pages([(ctypes.addressof(memory), OBJECT, OBJECT, 1)])
    assert [ns.lookup([key]) for ns in spaces(hosts)] == [0, 0]
    refs = [ns.reserve([key], 1, unit_bytes=OBJECT)[0] for ns in spaces(hosts)]
    for host, ref in zip(hosts, refs, strict=True):
        assert host.write_many(ref, pages, [0], [0], [1]) == b"\1"
        assert host.commit(ref) == b"\1"


def fill(ns: Namespace, name: bytes, count: int) -> list[bytes]:
    keys = [name + bytes([i]) for i in range(count)]
    for key in keys:
        assert ns.lookup([key]) == 0  # each a chain of its own, so that the first is the oldest
        assert ns.put(key, key[:1] * OBJECT)
    return keys


def owner(region: Region, key: bytes) -> int:
    """The domain that a read of the key is served from."""
    target = bytearray(OBJECT)
    before = region.stats()["hits_by_domain"]
    assert region.namespace(FINGERPRINT).get_into(key, target) == OBJECT
    assert target == key[:1] * OBJECT
    after = region.stats()["hits_by_domain"]
    return [now - then for now, then in zip(after, before, strict=True)].index(1)


def test_a_copy_of_a_lower_domain_s_object_goes_first_however_often_it_is_used(hosts: Hosts) -> None:
    _, ns = spaces(hosts)
    full = hosts[1].stats()["free_chunks"][1] // (OBJECT >> 16)
    older = fill(ns, b"old", 3)
    store_at_once(hosts, b"twice")
    fill(ns, b"new", full - 4)
    for _ in range(3):
        assert ns.lookup([b"twice"]) == 1
        assert owner(hosts[1], b"twice") == 1
    fill(ns, b"more", 1)
    assert ns.contains(older)[1:] == b"\1\1", "two objects go at a time"
    assert owner(hosts[1], b"twice") == 0


def test_a_copy_whose_original_is_gone_ages_as_every_object(hosts: Hosts) -> None:
    low, ns = spaces(hosts)
    full = hosts[1].stats()["free_chunks"][1] // (OBJECT >> 16)
    store_at_once(hosts, b"twice")
    fill(ns, b"new", full - 1)
    assert low.evict([b"twice"]) == 1
    assert ns.lookup([b"twice"]) == 1
    fill(ns, b"more", 3)
    assert owner(hosts[1], b"twice") == 1


def test_the_lower_domain_s_object_does_not_age_for_a_copy_above(hosts: Hosts) -> None:
    ns, _ = spaces(hosts)
    full = hosts[0].stats()["free_chunks"][0] // (OBJECT >> 16)
    older = fill(ns, b"old", 3)
    store_at_once(hosts, b"twice")
    fill(ns, b"new", full - 4)
    fill(ns, b"more", 1)
    assert ns.contains(older) != b"\1\1\1"
    assert owner(hosts[0], b"twice") == 0


def test_uses_of_a_copy_count_for_the_original(hosts: Hosts) -> None:
    store_at_once(hosts, b"twice")
    _, ns = spaces(hosts)
    before = hosts[1].stats()["touches_sent"]
    assert ns.lookup([b"twice"]) == 1
    end = time.monotonic() + 10
    while hosts[1].stats()["touches_sent"] == before and time.monotonic() < end:
        time.sleep(0.02)
    assert hosts[1].stats()["touches_sent"] == before + 1
