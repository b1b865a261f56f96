"""Regions as memory files: zeros at the start, sealed, allocated by the appliance, empty for everybody at the end."""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hymcache.emulator.media import Cancelled, Memory, OutOfMemory
from hymcache.emulator.media import memfd as memfd_module
from hymcache.emulator.media.available import huge_pages_free
from hymcache.emulator.media.memfd import Allocate, MemfdMedium, PageSize

MIB = 1 << 20
SIZE = 8 * MIB


def allocate(mode: Allocate = Allocate.EAGER, size: int = SIZE, reserve: int = 0) -> Memory:
    return MemfdMedium(mode, reserve).allocate("r-1", size, lambda done: None, threading.Event())


@pytest.fixture
def memory() -> Iterator[Memory]:
    made = allocate()
    yield made
    made.destroy()


@pytest.fixture
def opened(memory: Memory) -> Iterator[int]:
    descriptor = memory.open(writable=True)
    yield descriptor
    os.close(descriptor)


def test_a_region_is_all_there_and_all_zeros(memory: Memory, opened: int) -> None:
    assert os.fstat(opened).st_blocks * 512 == SIZE == memory.resident_bytes == memory.bytes
    with mmap.mmap(opened, SIZE) as mapping:
        assert mapping[:] == bytes(SIZE)


def test_a_sparse_region_has_its_size_and_no_pages() -> None:
    made = allocate(Allocate.SPARSE, size=1 << 42)
    try:
        assert (made.bytes, made.resident_bytes) == (1 << 42, 0)
    finally:
        made.destroy()


@pytest.mark.parametrize("size", [0, SIZE - 4096, SIZE + 4096])
def test_no_host_can_change_the_size_under_another_ones_mapping(opened: int, size: int) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(opened, size)
    assert os.fstat(opened).st_size == SIZE


def test_no_host_can_grow_it_by_writing_behind_its_end(opened: int) -> None:
    with pytest.raises(PermissionError):
        os.pwrite(opened, b"x", SIZE)
    with pytest.raises(PermissionError):
        os.posix_fallocate(opened, SIZE, 4096)


def test_no_host_can_add_a_seal_that_would_stop_the_others(opened: int) -> None:
    assert fcntl.fcntl(opened, fcntl.F_GET_SEALS) == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    with pytest.raises(PermissionError):
        fcntl.fcntl(opened, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_a_destroyed_region_reads_zeros_for_those_who_still_map_it(memory: Memory, opened: int) -> None:
    with mmap.mmap(opened, SIZE) as mapping:
        for offset in range(0, SIZE, 4096):
            mapping[offset] = 0xA5
        memory.destroy()
        assert os.fstat(opened).st_blocks == 0
        assert mapping[:] == bytes(SIZE)
    memory.destroy()
    assert memory.resident_bytes == 0


def test_the_next_region_is_never_the_same_memory() -> None:
    first = allocate()
    descriptor = first.open(writable=True)
    first.destroy()
    second = allocate()
    other = second.open(writable=True)
    try:
        assert os.fstat(descriptor).st_ino != os.fstat(other).st_ino
        os.pwrite(descriptor, b"stale", 0)
        assert os.pread(other, 5, 0) == bytes(5)
    finally:
        os.close(descriptor)
        os.close(other)
        second.destroy()


def test_more_than_there_is_beside_the_reserve_is_refused_and_nothing_stays(memfds: Any) -> None:
    before = memfds()
    with pytest.raises(OutOfMemory, match="beyond the reserve"):
        allocate(reserve=1 << 50)
    with pytest.raises(OutOfMemory):
        allocate(size=1 << 50)
    assert memfds() == before


def test_the_reserve_is_kept_while_others_take_memory_in_the_meantime(
    monkeypatch: pytest.MonkeyPatch, memfds: Any
) -> None:
    left = iter([64 * MIB, 64 * MIB, 2 * MIB])
    monkeypatch.setattr(memfd_module, "available_bytes", lambda: next(left))
    monkeypatch.setattr(memfd_module, "PIECE_BYTES", 4 * MIB)
    before = memfds()
    with pytest.raises(OutOfMemory):
        allocate()
    assert memfds() == before


def test_a_kernel_that_gives_no_more_pages_is_out_of_memory_and_nothing_stays(
    monkeypatch: pytest.MonkeyPatch, memfds: Any
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(memfd_module.os, "posix_fallocate", refuse)
    before = memfds()
    with pytest.raises(OutOfMemory, match="No space left"):
        allocate()
    assert memfds() == before


def test_an_allocation_can_be_given_up_half_way(monkeypatch: pytest.MonkeyPatch, memfds: Any) -> None:
    monkeypatch.setattr(memfd_module, "PIECE_BYTES", MIB)
    cancel, seen = threading.Event(), []

    def progress(done: int) -> None:
        seen.append(done)
        if done >= 3 * MIB:
            cancel.set()

    before = memfds()
    with pytest.raises(Cancelled):
        MemfdMedium(Allocate.EAGER, 0).allocate("r-1", SIZE, progress, cancel)
    assert seen == [MIB, 2 * MIB, 3 * MIB]
    assert memfds() == before


@pytest.fixture
def pool() -> Iterator[Path]:
    """A few 2 MiB pages in the kernel's pool, given back afterwards."""
    count = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    try:
        before = int(count.read_text())
        count.write_text(str(before + 8))
    except OSError as error:
        pytest.skip(f"the pool of 2 MiB pages cannot be changed here: {error}")
    if int(count.read_text()) < before + 8:
        count.write_text(str(before))
        pytest.skip("the kernel found no 8 contiguous pieces of 2 MiB")
    yield count.parent
    count.write_text(str(before))


def test_a_region_of_huge_pages_comes_from_the_pool_and_goes_back_to_it(pool: Path) -> None:
    free = huge_pages_free()
    made = MemfdMedium(Allocate.EAGER, 1 << 50, PageSize.HUGE).allocate(
        "r-1", SIZE, lambda done: None, threading.Event()
    )
    descriptor = made.open(writable=True)
    try:
        assert os.fstat(descriptor).st_blksize == 2 * MIB
        assert huge_pages_free() == free - SIZE // (2 * MIB)
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
        with mmap.mmap(descriptor, SIZE) as mapping:
            mapping[-1] = 1
            made.destroy()
            assert huge_pages_free() == free
    finally:
        os.close(descriptor)
        made.destroy()


def test_more_huge_pages_than_the_pool_has_are_refused(pool: Path, memfds: Any) -> None:
    before = memfds()
    size = (huge_pages_free() + 1) * 2 * MIB
    with pytest.raises(OutOfMemory, match="nr_hugepages"):
        MemfdMedium(Allocate.EAGER, 0, PageSize.HUGE).allocate("r-1", size, lambda done: None, threading.Event())
    assert memfds() == before


def test_a_long_name_is_cut_where_a_character_ends() -> None:
    made = MemfdMedium(Allocate.SPARSE, 0).allocate("ü" * 200, MIB, lambda done: None, threading.Event())
    made.destroy()
