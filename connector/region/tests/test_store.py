"""put, get_into, lookup, contains, evict: what an engine sees."""

from __future__ import annotations

import array
import ctypes
import threading
from collections.abc import Callable

import pytest
from hymcache.region import Namespace, Region

MIB = 1 << 20
FINGERPRINT = bytes(range(32))
Content = Callable[[bytes, int], bytes]


def test_what_was_put_comes_back(ns: Namespace, content: Content) -> None:
    data = content(b"key", 300_000)
    out = bytearray(len(data))
    assert ns.put(b"key", data)
    assert ns.get_into(b"key", out) == len(data)
    assert out == data


@pytest.mark.parametrize("size", [1, 63, 64, 65, 4095, 65536, 65537, 1_000_003])
def test_any_size_comes_back(ns: Namespace, size: int, content: Content) -> None:
    data = content(b"s", size)
    out = bytearray(size)
    assert ns.put(b"s", data)
    assert ns.get_into(b"s", out) == size
    assert out == data


def test_units_are_read_alone(ns: Namespace, content: Content) -> None:
    data = content(b"u", 12 * 5000)
    assert ns.put(b"u", data, units=12)
    out = bytearray(3 * 5000)
    assert ns.get_into(b"u", out, first=4, count=3) == len(out)
    assert out == data[20_000:35_000]
    tail = bytearray(2 * 5000)
    assert ns.get_into(b"u", tail, first=10) == len(tail)
    assert tail == data[50_000:]


def test_many_small_units_take_more_chunks_but_work(ns: Namespace, content: Content) -> None:
    data = content(b"m", 1000 * 64)
    out = bytearray(len(data))
    assert ns.put(b"m", data, units=1000)
    assert ns.get_into(b"m", out) == len(data)
    assert out == data


def test_an_absent_key_is_a_miss_with_a_reason(region: Region, ns: Namespace) -> None:
    assert ns.get_into(b"nobody", bytearray(10)) == 0
    assert region.stats()["miss_absent"] == 1


def test_lookup_counts_the_leading_run(ns: Namespace) -> None:
    keys = [b"run-%d" % i for i in range(100)]
    for i, key in enumerate(keys):
        if i != 70:
            assert ns.put(key, b"x" * 100)
    assert ns.lookup(keys) == 70
    assert ns.lookup(keys[71:]) == 29
    assert ns.lookup([]) == 0
    assert ns.contains(keys) == bytes(i != 70 for i in range(100))


def test_packed_keys_are_the_same_keys(ns: Namespace, content: Content) -> None:
    keys = [content(b"%04d" % i, 36) for i in range(64)]
    for key in keys:
        ns.put(key, b"x")
    packed = b"".join(keys)
    assert ns.lookup(packed, width=36) == 64
    assert ns.lookup(bytearray(packed), 36) == 64
    assert ns.contains(memoryview(packed), width=36) == b"\1" * 64
    assert ns.lookup(tuple(keys)) == 64
    assert ns.lookup([bytearray(key) for key in keys]) == 64


def test_a_lookup_long_enough_to_release_the_interpreter_is_right(ns: Namespace, content: Content) -> None:
    present = [content(b"%04d" % i, 36) for i in range(50)]
    for key in present:
        ns.put(key, b"x")
    assert ns.lookup(b"".join(present) * 100 + bytes(36), width=36) == 5000


@pytest.mark.parametrize("domain", [0, 1])
def test_a_key_that_was_evicted_and_stored_again_many_times_has_its_last_bytes(
    ns: Namespace, attach: Callable[..., Region], domain: int
) -> None:
    """Retired objects of the same key keep their tags until their room is needed."""
    reader = ns if domain == 0 else attach(domain=domain).namespace(FINGERPRINT)
    for i in range(30):
        data = b"%d" % i
        assert ns.put(b"k", data)
        out = bytearray(len(data))
        assert reader.lookup([b"k"]) == 1
        assert reader.get_into(b"k", out) == len(data)
        assert out == data
        if i < 29:
            assert ns.evict([b"k"]) == 1
    assert reader.lookup([b"k"] * 100) == 100, "batches of keys with many retired objects"


def test_storing_twice_stores_once(region: Region, ns: Namespace) -> None:
    assert ns.put(b"k", b"first")
    assert not ns.put(b"k", b"again")
    assert region.stats()["put_exists"] == 1
    out = bytearray(5)
    assert ns.get_into(b"k", out) == 5
    assert out == b"first"


def test_namespaces_do_not_see_each_other(region: Region, ns: Namespace) -> None:
    other = region.namespace(FINGERPRINT[::-1])
    ns.put(b"k", b"mine")
    assert other.lookup([b"k"]) == 0
    assert other.put(b"k", b"hers")
    out = bytearray(4)
    assert ns.get_into(b"k", out) == 4
    assert out == b"mine"


def test_an_evicted_key_is_missed_and_can_be_stored_again(ns: Namespace) -> None:
    ns.put(b"k", b"one")
    assert ns.evict([b"k", b"unknown"]) == 1
    assert ns.lookup([b"k"]) == 0
    assert ns.put(b"k", b"two")
    out = bytearray(3)
    assert ns.get_into(b"k", out) == 3
    assert out == b"two"


def test_a_read_after_the_owner_retired_everything_still_succeeds(ns: Namespace, content: Content) -> None:
    keys = [b"%d" % i for i in range(50)]
    for key in keys:
        ns.put(key, content(key, 1000))
    assert ns.evict(keys) == 50
    assert ns.lookup(keys) == 0
    out = bytearray(1000)
    for key in keys:
        assert ns.get_into(key, out) == 1000
        assert out == content(key, 1000)


def test_a_full_domain_evicts_the_least_recently_used(ns: Namespace) -> None:
    blob = bytes(64 << 10)
    assert ns.put(b"hot", blob)
    stored = 0
    while ns.contains([b"cold-0"]) != b"\0" or stored == 0:
        assert ns.put(b"cold-%d" % stored, blob)
        stored += 1
        assert ns.lookup([b"hot"]) == 1, "a key that is used all the time was evicted"
        assert stored < 10_000
    assert ns.lookup([b"cold-%d" % (stored - 1)]) == 1


def test_a_chain_is_evicted_from_its_tail(region: Region, ns: Namespace) -> None:
    chain = [b"chain-%d" % i for i in range(20)]
    for key in chain:
        ns.put(key, bytes(64 << 10))
    assert ns.lookup(chain) == 20
    filler = 0
    while ns.contains(chain).count(1) > 10:
        ns.put(b"filler-%d" % filler, bytes(64 << 10))
        ns.lookup([b"filler-%d" % filler])  # used as often as the chain, but later
        filler += 1
    left = ns.contains(chain)
    assert left.rstrip(b"\0") == b"\1" * left.count(1), "eviction left a hole in the chain"


def test_an_object_larger_than_its_domain_is_refused_at_once(region: Region, ns: Namespace) -> None:
    assert ns.put(b"small", b"x")
    assert not ns.put(b"large", bytes(20 * MIB))
    assert region.stats()["put_too_large"] == 1
    assert ns.lookup([b"small"]) == 1


def test_an_object_of_k_chunks_takes_k_chunks(region: Region, ns: Namespace) -> None:
    before = region.stats()["free_chunks"][0]
    ns.put(b"k", bytes(5 * (64 << 10)), units=5)
    assert before - region.stats()["free_chunks"][0] == 5


def test_two_domains_share_what_either_stores(
    region: Region, ns: Namespace, attach: Callable[..., Region], content: Content
) -> None:
    other = attach(domain=1)
    theirs = other.namespace(FINGERPRINT)
    data = content(b"a", 200_000)
    ns.put(b"a", data)
    theirs.put(b"b", data)
    out = bytearray(len(data))
    assert theirs.lookup([b"a", b"b"]) == 2 == ns.lookup([b"a", b"b"])
    assert theirs.get_into(b"a", out) == len(data)
    assert out == data
    assert ns.get_into(b"b", out) == len(data)
    assert region.stats()["hits_by_domain"] == [0, 1]
    assert not theirs.put(b"a", data)
    assert theirs.evict([b"a"]) == 0, "a domain's objects are its owner's to evict"


def test_a_read_only_process_reads_and_never_stores(ns: Namespace, attach: Callable[..., Region]) -> None:
    ns.put(b"k", b"data")
    reader = attach(read_only=True)
    theirs = reader.namespace(FINGERPRINT)
    out = bytearray(4)
    assert theirs.lookup([b"k"]) == 1
    assert theirs.get_into(b"k", out) == 4
    assert not theirs.put(b"other", b"x")
    assert reader.stats()["put_read_only"] == 1
    assert reader.info().domain is None


def test_buffers_of_any_kind_are_gathered_and_scattered(ns: Namespace, content: Content) -> None:
    parts = [content(b"p0", 1000), array.array("d", [1.5] * 125), memoryview(content(b"p2", 500))]
    assert ns.put(b"g", parts)
    a, b, c = bytearray(700), (ctypes.c_uint8 * 800)(), array.array("I", [0] * 250)
    assert ns.get_into(b"g", (a, b, c)) == 2500
    whole = b"".join(bytes(memoryview(part).cast("B")) for part in parts)
    assert bytes(a) + bytes(b) + c.tobytes() == whole


def tensor(data: bytes, page_bytes: int, stride: int) -> tuple[ctypes.Array[ctypes.c_uint8], tuple[int, int, int, int]]:
    memory = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
    return memory, (ctypes.addressof(memory), stride, page_bytes, len(data) // stride)


def test_engine_blocks_are_stored_and_loaded_as_units(region: Region, ns: Namespace, content: Content) -> None:
    (k, krow), (v, vrow) = tensor(content(b"K", 16 * 4096), 4096, 4096), tensor(content(b"V", 16 * 3000), 1024, 3000)
    pages = region.pages([krow, vrow])
    assert pages.block_bytes == 5120
    assert ns.put(b"blocks", pages.blocks([3, 1, 7]))
    (k2, krow2), (v2, vrow2) = (
        tensor(content(b"x", 16 * 4096), 4096, 4096),
        tensor(content(b"y", 16 * 3000), 1024, 3000),
    )
    target = region.pages([krow2, vrow2])
    assert ns.get_into(b"blocks", target.blocks(array.array("q", [9, 10])), first=1) == 2 * 5120
    for source, place in ((1, 9), (7, 10)):
        assert k2[4096 * place : 4096 * (place + 1)] == k[4096 * source : 4096 * (source + 1)]
        assert v2[3000 * place : 3000 * place + 1024] == v[3000 * source : 3000 * source + 1024]
    assert bytes(k2[: 9 * 4096]) == content(b"x", 16 * 4096)[: 9 * 4096], "a page that was not asked for changed"


def test_threads_share_one_region(ns: Namespace, content: Content) -> None:
    failures: list[str] = []

    def work(name: int) -> None:
        out = bytearray(300_000)
        for i in range(60):
            key = b"%d-%d" % (name, i % 20)
            ns.put(key, content(key, 300_000))
            if ns.get_into(key, out) and out != content(key, 300_000):
                failures.append(f"{key!r} has other bytes")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
