"""Large objects copied by two threads: the same bytes, the same misses, the same counts as by one."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hymcache.region import Namespace, Region

MIB = 1 << 20
UNIT_BYTES = MIB + 4160
UNITS = 11
FINGERPRINT = bytes(32)
CONTENT = random.Random(1).randbytes(UNITS * UNIT_BYTES)
Attached = tuple[Region, Namespace]


@pytest.fixture
def attached(medium: Path) -> Iterator[Attached]:
    Region.format(medium, size=96 * MIB, domains=2)
    with Region.attach(medium, copy_threads=2, host="a") as region:
        yield region, region.namespace(FINGERPRINT)


def threads() -> set[str]:
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}


@pytest.mark.parametrize("reader", ["same", "one thread", "another host"])
def test_what_two_threads_stored_is_read_back(attached: Attached, medium: Path, reader: str) -> None:
    region, space = attached
    assert space.put(b"key", CONTENT, units=UNITS)
    options = {"domain": 1, "host": "b"} if reader == "another host" else {"domain": 0, "host": "a"}
    with Region.attach(medium, copy_threads=1 if reader == "one thread" else 2, **options) as other:
        out = bytearray(len(CONTENT))
        assert other.namespace(FINGERPRINT).get_into(b"key", out) == len(CONTENT)
        assert out == CONTENT
        stats = other.stats()
        assert (stats["gets"], stats["get_bytes"]) == (1, len(CONTENT))
    assert (region.stats()["puts"], region.stats()["put_bytes"]) == (1, len(CONTENT))


@pytest.mark.parametrize("sizes", [[5, 0, UNIT_BYTES, 6 * UNIT_BYTES - 5], [len(CONTENT) - 1, 1], [1] * 100])
def test_a_list_of_buffers_is_cut_where_the_halves_meet(attached: Attached, sizes: list[int]) -> None:
    _, space = attached
    rest = len(CONTENT) - sum(sizes)
    buffers = [bytearray(size) for size in [*sizes, rest]]
    offset = 0
    for buffer in buffers:
        buffer[:] = CONTENT[offset : offset + len(buffer)]
        offset += len(buffer)
    assert space.put(b"key", buffers, units=UNITS)
    out = [bytearray(len(buffer)) for buffer in buffers]
    assert space.get_into(b"key", out) == len(CONTENT)
    assert b"".join(out) == CONTENT


@pytest.mark.parametrize(("first", "count"), [(0, None), (1, None), (3, 7), (2, 8), (6, 5), (10, 1)])
def test_some_units_are_read_as_by_one_thread(attached: Attached, first: int, count: int | None) -> None:
    _, space = attached
    assert space.put(b"key", CONTENT, units=UNITS)
    expected = CONTENT[first * UNIT_BYTES :][: None if count is None else count * UNIT_BYTES]
    out = bytearray(len(expected) + 100)
    assert space.get_into(b"key", out, first=first, count=count) == len(expected)
    assert out == expected + bytes(100)


def test_pages_are_halved_between_blocks(attached: Attached) -> None:
    region, space = attached
    tensors = [bytearray(16 * MIB) for _ in range(2)]
    for number, tensor in enumerate(tensors):
        tensor[:] = random.Random(number).randbytes(len(tensor))
    addresses = [ctypes.addressof((ctypes.c_char * len(t)).from_buffer(t)) for t in tensors]
    pages = region.pages([(address, MIB, MIB, 16) for address in addresses])
    ids = [7, 0, 3, 12, 5]
    refs, _ = space.reserve([b"key"], len(ids), unit_bytes=2 * MIB)
    assert list(region.write_many(refs, pages, ids, [0], [len(ids)])) == [1]
    assert list(region.commit(refs)) == [1]
    before = [bytes(tensor) for tensor in tensors]
    for tensor in tensors:
        tensor[:] = bytes(len(tensor))
    into = [1, 2, 9, 8, 4]
    assert list(region.read_many(refs, pages, into, [0], [len(ids)])) == [1]
    for then, now in zip(before, tensors, strict=True):
        for source, destination in zip(ids, into, strict=True):
            assert now[destination * MIB :][:MIB] == then[source * MIB :][:MIB]
    assert region.stats()["gets"] == 1


@pytest.mark.parametrize("unit", [0, 4, 5, UNITS - 1])
def test_a_damaged_unit_in_either_half_is_a_miss(attached: Attached, medium: Path, unit: int) -> None:
    region, space = attached
    assert space.put(b"key", CONTENT, units=UNITS)
    at = medium.read_bytes().index(CONTENT[unit * UNIT_BYTES :][:4096])
    with medium.open("r+b") as file:
        file.seek(at + 77)
        file.write(bytes([CONTENT[unit * UNIT_BYTES + 77] ^ 1]))
    assert space.get_into(b"key", bytearray(len(CONTENT))) == 0
    stats = region.stats()
    assert (stats["gets"], stats["dropped_damaged"]) == (0, 1)
    assert space.lookup([b"key"]) == 0


def test_a_buffer_that_is_too_small_is_the_same_miss(attached: Attached) -> None:
    region, space = attached
    assert space.put(b"key", CONTENT, units=UNITS)
    assert space.get_into(b"key", bytearray(len(CONTENT) - 1)) == 0
    assert region.stats()["miss_size"] == 1
    assert space.lookup([b"key"]) == 1


def test_no_thread_is_left(attached: Attached) -> None:
    _, space = attached
    assert space.put(b"key", CONTENT, units=UNITS)
    assert "hymcache-copy" not in threads()


@pytest.mark.parametrize("number", [0, 3, 255])
def test_another_number_of_threads_is_refused(medium: Path, number: int) -> None:
    Region.format(medium, size=32 * MIB)
    with pytest.raises(ValueError, match=f"copy_threads: expected 1 or 2, found {number}"):
        Region.attach(medium, copy_threads=number)  # type: ignore[arg-type]
