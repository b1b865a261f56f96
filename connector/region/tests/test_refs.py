"""The engine surface: reserve, write, commit and read by reference, in several processes."""

from __future__ import annotations

import array
import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hymcache.region import Namespace, Pages, Region, ReserveStatus

MIB = 1 << 20
FINGERPRINT = bytes(range(32))
PAGE = 4096
UNITS = 3


class Tensor:
    """One paged tensor of 64 pages; page i is filled with i + salt."""

    def __init__(self, salt: int = 0) -> None:
        self.memory = (ctypes.c_uint8 * (64 * PAGE))()
        for i in range(64):
            ctypes.memset(ctypes.addressof(self.memory) + i * PAGE, (i + salt) % 256, PAGE)

    def pages(self, region: Region) -> Pages:
        return region.pages([(ctypes.addressof(self.memory), PAGE, PAGE, 64)])

    def page(self, i: int) -> bytes:
        return bytes(self.memory[i * PAGE : (i + 1) * PAGE])


def reserve(ns: Namespace, keys: list[bytes], sections: int = 1) -> bytes:
    refs, status = ns.reserve(keys, UNITS, unit_bytes=PAGE, sections=sections)
    assert status == bytes([ReserveStatus.NEW]) * len(keys)
    assert len(refs) == 16 * len(keys)
    return refs


def test_reserve_write_commit_find_read(region: Region, ns: Namespace) -> None:
    tensor, target = Tensor(), Tensor(100)
    refs = reserve(ns, [b"a", b"b"])
    assert ns.lookup([b"a"]) == 0, "visible before its commit"
    assert region.write_many(refs, tensor.pages(region), [0, 1, 2, 10, 11, 12], [0, 0], [UNITS, UNITS]) == b"\1\1"
    assert region.commit(refs) == b"\1\1"
    run, found = ns.find([b"a", b"b", b"c"])
    assert run == 2
    assert found == refs
    ids = array.array("i", [20, 21, 22, 30])
    assert region.read_many(found, target.pages(region), ids, [0, 2], [UNITS, 1]) == b"\1\1"
    assert [target.page(i) for i in (20, 21, 22, 30)] == [tensor.page(i) for i in (0, 1, 2, 12)]


def test_a_unit_is_a_block_of_the_registered_pages_unless_it_is_told(region: Region, ns: Namespace) -> None:
    tensor, target = Tensor(), Tensor(100)
    source, to = tensor.pages(region), target.pages(region)
    refs, status = ns.reserve([b"a", b"b"], UNITS)
    assert list(status) == [ReserveStatus.NEW] * 2
    assert region.write_many(refs, source, [0, 1, 2, 10, 11, 12], 0, UNITS) == b"\1\1"
    assert region.commit(refs) == b"\1\1"
    assert region.read_many(refs, to, [20, 21, 30, 31], 1, 2) == b"\1\1"
    assert [target.page(i) for i in (20, 21, 30, 31)] == [tensor.page(i) for i in (1, 2, 11, 12)]
    region.pages([(ctypes.addressof(tensor.memory), PAGE, PAGE // 2)])
    with pytest.raises(TypeError, match=r"^unit_bytes: .*found several"):
        ns.reserve([b"c"], UNITS)
    assert list(ns.reserve([b"c"], UNITS, unit_bytes=PAGE)[1]) == [ReserveStatus.NEW]


def test_what_is_there_or_under_way_is_not_reserved_again(region: Region, ns: Namespace) -> None:
    ns.put(b"there", b"x")
    first = reserve(ns, [b"pending"])
    refs, status = ns.reserve([b"there", b"pending", b"new"], 1, unit_bytes=10)
    assert list(status) == [ReserveStatus.EXISTS, ReserveStatus.PENDING, ReserveStatus.NEW]
    region.abort(refs[32:])
    region.abort(first)
    assert list(ns.reserve([b"pending"], 1, unit_bytes=10)[1]) == [ReserveStatus.NEW]


def test_a_reservation_that_does_not_fit_takes_nothing(region: Region, ns: Namespace) -> None:
    free = region.stats()["free_chunks"][0]
    refs, status = ns.reserve([b"a", b"b", b"c"], 1, unit_bytes=6 * MIB)
    assert status == bytes([ReserveStatus.FULL]) * 3
    assert len(refs) == 48
    assert region.stats()["free_chunks"][0] == free
    assert list(ns.reserve([b"a"], 1, unit_bytes=6 * MIB)[1]) == [ReserveStatus.NEW]


def test_an_aborted_reservation_returns_its_chunks(region: Region, ns: Namespace) -> None:
    free = region.stats()["free_chunks"][0]
    refs = reserve(ns, [b"a"])
    assert region.stats()["free_chunks"][0] == free - 1
    region.abort(refs)
    region.abort(refs)
    assert region.stats()["free_chunks"][0] == free
    assert region.commit(refs) == b"\0"
    assert region.write_many(refs, Tensor().pages(region), [0, 1, 2], [0], [UNITS]) == b"\0"
    assert ns.lookup([b"a"]) == 0


def test_a_commit_without_its_write_publishes_nothing(region: Region, ns: Namespace) -> None:
    free = region.stats()["free_chunks"][0]
    refs = reserve(ns, [b"a"])
    assert region.commit(refs) == b"\0"
    assert ns.lookup([b"a"]) == 0
    assert region.stats()["free_chunks"][0] == free
    assert region.stats()["put_gone"] == 1


def test_a_write_of_another_size_fails_and_so_does_its_commit(region: Region, ns: Namespace) -> None:
    refs = reserve(ns, [b"a"])
    assert region.write_many(refs, Tensor().pages(region), [0, 1], [0], [2]) == b"\0"
    assert region.write_many(refs, Tensor().pages(region), [0, 1, 2], [0], [UNITS]) == b"\1"
    assert region.commit(refs) == b"\0", "a failed section is remembered"


def test_ranks_store_sections_of_one_object(region: Region, ns: Namespace) -> None:
    one, two, target = Tensor(), Tensor(50), Tensor(200)
    refs = reserve(ns, [b"a"], sections=2)
    assert region.write_many(refs, one.pages(region), [1, 2, 3], [0], [UNITS], section=0) == b"\1"
    _, pending = ns.reserve([b"a"], UNITS, unit_bytes=PAGE)
    assert list(pending) == [ReserveStatus.PENDING]
    assert region.write_many(refs, two.pages(region), [1, 2, 3], [0], [UNITS], section=1) == b"\1"
    assert region.commit(refs) == b"\1"
    assert region.read_many(refs, target.pages(region), [0, 1], [1], [2], section=1) == b"\1"
    assert [target.page(0), target.page(1)] == [two.page(2), two.page(3)]
    assert region.read_many(refs, target.pages(region), [5], [0], [1], section=2) == b"\0"


WRITE = """
import ctypes, sys
from hymcache.region import Region
region = Region.attach(sys.argv[1])
memory = (ctypes.c_uint8 * 12288)()
ctypes.memset(memory, 77, 12288)
pages = region.pages([(ctypes.addressof(memory), 4096, 4096, 3)])
print(list(region.write_many(bytes.fromhex(sys.argv[2]), pages, [0, 1, 2], [0], [3])))
"""


def test_reserve_write_and_commit_in_three_processes(
    region: Region, ns: Namespace, medium: Path, attach: Callable[..., Region]
) -> None:
    refs = reserve(ns, [b"a"])
    done = subprocess.run(
        [sys.executable, "-c", WRITE, medium, refs.hex()], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[1]"
    assert attach().commit(refs) == b"\1"
    out = bytearray(UNITS * PAGE)
    assert ns.get_into(b"a", out) == len(out)
    assert out == b"\x4d" * len(out)


def test_a_quarantined_reference_is_not_found_again(
    region: Region, ns: Namespace, attach: Callable[..., Region]
) -> None:
    ns.put(b"a", b"x")
    other = attach(domain=1)
    theirs = other.namespace(FINGERPRINT)
    other.quarantine(theirs.find([b"a"])[1])
    assert theirs.lookup([b"a"]) == 0
    assert ns.lookup([b"a"]) == 1


@pytest.mark.parametrize("ref", [b"\xff" * 16, bytes(16), b"\0\0\0\0\xff\xff\xff\x7f" + bytes(8)])
def test_a_reference_to_nowhere_is_a_miss(region: Region, ns: Namespace, ref: bytes) -> None:
    pages = Tensor().pages(region)
    assert region.read_many(ref, pages, [0], [0], [1]) == b"\0"
    assert region.write_many(ref, pages, [0], [0], [1]) == b"\0"
    assert region.commit(ref) == b"\0"
    region.abort(ref)
    region.quarantine(ref)


def test_counts_that_do_not_add_up_are_refused(region: Region, ns: Namespace) -> None:
    refs = reserve(ns, [b"a"])
    for ids, first, count in (([0, 1], [0], [3]), ([0, 1, 2], [0, 0], [3]), ([0, 1, 2], [0], [1, 2])):
        with pytest.raises(TypeError, match="first, count"):
            region.write_many(refs, Tensor().pages(region), ids, first, count)
    with pytest.raises(TypeError, match="first, count"):  # not even modulo 2^64
        region.read_many(refs * 2, Tensor().pages(region), [], [0, 0], array.array("Q", [1 << 63, 1 << 63]))
    with pytest.raises(TypeError, match="first, count"):
        region.read_many(refs, Tensor().pages(region), [0, 1], 0, 3)
    with pytest.raises(ValueError, match=r"^count: expected an integer from 0"):
        region.read_many(refs, Tensor().pages(region), [0, 1], 0, -1)
    with pytest.raises(ValueError, match="refs: expected a multiple of 16"):
        region.commit(refs[:-1])


UUID = "01234567-89ab-cdef-0123-456789abcdef"


def test_a_reference_from_before_a_format_reads_nobody_elses_object(medium: Path) -> None:
    def formatted(**options: int) -> Region:
        Region.format(medium, size=32 * MIB, chunk_bytes=64 << 10, uuid=UUID, **options)
        return Region.attach(medium)

    with formatted() as region:
        ns = region.namespace(FINGERPRINT)
        ns.put(b"theirs", b"A" * PAGE)
        before = ns.find([b"theirs"])[1]
    with formatted(replaces=1) as region:
        other = region.namespace(bytes(32))
        for key in (b"%d" % i for i in range(5000)):
            other.put(key, b"B" * PAGE)
            ref = other.find([key])[1]
            if ref[:14] == before[:14]:  # all but the epoch
                break
            other.evict([key])
        assert ref[:14] == before[:14], "no object took the same place"
        target = Tensor()
        assert region.read_many(ref, target.pages(region), [0], [0], [1]) == b"\1"
        assert region.read_many(before, target.pages(region), [1], [0], [1]) == b"\0"
        assert target.page(1) == Tensor().page(1), "nothing was copied"
        region.quarantine(before)
        assert region.lease(before) == b"\0"
        assert other.lookup([key]) == 1


def test_pages_are_filled_whole_or_the_read_is_a_miss(region: Region, ns: Namespace) -> None:
    ns.put(b"small units", b"x" * PAGE, units=2)
    target = Tensor()
    refs = ns.find([b"small units"])[1]
    assert region.read_many(refs, target.pages(region), [1, 2], [0], [2]) == b"\0"
    assert ns.get_into(b"small units", target.pages(region).blocks([1, 2])) == 0
    assert region.stats()["miss_size"] == 2
    assert [target.page(i) for i in (1, 2)] == [Tensor().page(i) for i in (1, 2)]
