"""DRAM as anonymous memory files: a new memfd per region, so that a region starts as zeros by construction.

`EAGER` allocates every page at compose. Pages of shared memory are charged to the control group that touches them
first, so a pod with a small limit can then map and write the whole region; without it the pod would be killed.
`SPARSE` sets the size only: for tests of accounting with sizes larger than the machine.

The size is sealed (F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL; fcntl(2)): no host can cut the file under another one's
mapping. Seals do not stop a host that punches a hole: its bytes then read as zeros, as after a power loss.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from enum import StrEnum
from threading import Event

from hymcache.emulator.media import Cancelled, Memory, OutOfMemory, Progress
from hymcache.emulator.media.available import available_bytes, huge_pages_free

PIECE_BYTES = 256 << 20  # one step of an allocation: about 0.1 s, so that progress and cancelling are prompt
PUNCH_BYTES = 32 << 20  # one step of freeing: Python's global lock is held meanwhile, some 20 ms
HUGE_BYTES = 2 << 20
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
NAME_BYTES_MAX = 249  # memfd_create(2)


class Allocate(StrEnum):
    """When pages come to be."""

    EAGER = "eager"
    SPARSE = "sparse"


class PageSize(StrEnum):
    """Which pages a region is made of."""

    BASE = "base"
    HUGE = "2Mi"


class MemfdMemory:
    """One region's memfd. Any process that was handed a descriptor keeps the file; `destroy` empties it for all."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._bytes = size

    @property
    def bytes(self) -> int:
        """Size in bytes, sealed."""
        return self._bytes

    @property
    def resident_bytes(self) -> int:
        """Bytes of it that exist at the moment."""
        return 0 if self._descriptor < 0 else os.fstat(self._descriptor).st_blocks * 512

    def open(self, *, writable: bool) -> int:
        """A new open file description of the same file: locks on it exclude every other opener's."""
        assert self._descriptor >= 0, "opened after destroy"
        flags = os.O_RDWR if writable else os.O_RDONLY
        return os.open(f"/proc/self/fd/{self._descriptor}", flags | os.O_CLOEXEC)

    def destroy(self) -> None:
        """Free all pages - a mapping that a host still holds reads zeros from now on - and close. Idempotent."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            _punch(descriptor, self._bytes)
        finally:
            os.close(descriptor)


class MemfdMedium:
    """Makes memfds; in eager mode leaves `reserve_bytes` of the memory that is available now untouched.

    `HUGE` pages come from the kernel's own pool (vm.nr_hugepages), to which the reserve does not apply. A process that
    maps such a region needs a 512th of the page tables.
    """

    def __init__(self, allocate: Allocate, reserve_bytes: int, page_size: PageSize = PageSize.BASE) -> None:
        self._allocate = allocate
        self._reserve_bytes = reserve_bytes
        self._page_size = page_size

    def allocate(self, name: str, size: int, progress: Progress, cancel: Event) -> Memory:
        """A sealed memfd of `size` bytes, populated in eager mode; see `Medium`."""
        label = name.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
        huge = os.MFD_HUGETLB | os.MFD_HUGE_2MB if self._page_size is PageSize.HUGE else 0
        descriptor = os.memfd_create(label, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | huge)
        memory = MemfdMemory(descriptor, size)
        try:
            # hosts' processes of any user reopen the file to get locks of their own
            os.fchmod(descriptor, 0o666)
            os.ftruncate(descriptor, size)
            if self._allocate is Allocate.EAGER:
                self._populate(descriptor, size, progress, cancel)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        except BaseException:
            memory.destroy()
            raise
        return memory

    def _populate(self, descriptor: int, size: int, progress: Progress, cancel: Event) -> None:
        self._require(size)
        for offset in range(0, size, PIECE_BYTES):
            if cancel.is_set():
                raise Cancelled
            piece = min(PIECE_BYTES, size - offset)
            self._require(piece)  # others allocate meanwhile: stop before the machine is out of memory
            try:
                os.posix_fallocate(descriptor, offset, piece)
            except OSError as error:
                raise OutOfMemory(f"the kernel gave {offset} of {size} bytes: {error.strerror}") from error
            progress(offset + piece)

    def _require(self, size: int) -> None:
        if self._page_size is PageSize.HUGE:
            pool = huge_pages_free() * HUGE_BYTES
            if size > pool:
                raise OutOfMemory(f"{pool} bytes of free 2 MiB pages; raise vm.nr_hugepages")
            return
        free = available_bytes() - self._reserve_bytes
        if size > free:
            raise OutOfMemory(f"{max(0, free)} bytes of memory beyond the reserve of {self._reserve_bytes}")


def _punch(descriptor: int, size: int) -> None:
    """Free every page of the file, step by step."""
    for offset in range(0, size, PUNCH_BYTES):
        if os.fstat(descriptor).st_blocks == 0:
            return
        with mmap.mmap(descriptor, min(PUNCH_BYTES, size - offset), offset=offset) as mapping:
            mapping.madvise(mmap.MADV_REMOVE)
