"""What a copy benchmark works on: objects in a region, raw windows beside them, and an engine's private memory."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import random
from collections.abc import Iterator

from hymcache.cli.region.command import Failure, bytes_text
from hymcache.cli.region.contest import Contestant
from hymcache.region import Namespace, Region
from hymcache.region.bare import Window, copies

FINGERPRINT = hashlib.sha256(b"hymcache region bench").digest()
SKEW = 12_352
"""Engine pages do not start where chunks do: on some CPUs equal offsets halve memcpy, which would flatter us."""

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def private(size: int) -> memoryview:
    """Private memory in huge pages where the kernel grants them, written once."""
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        area.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(area)
    block = random.Random(size).randbytes(1 << 20)
    for start in range(0, size, len(block)):
        view[start : start + len(block)] = block[: size - start]
    return view


def address(view: memoryview) -> int:
    """Where a buffer lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


class Workload:
    """Objects of one size: half of `working_set` in chunks stored under keys, half reserved as windows.

    The engine's side has as many slots. Objects are stored in `units` equal units.
    """

    def __init__(self, region: Region, object_bytes: int, working_set: int, *, units: int = 1) -> None:
        self.region, self.bytes, self.units = region, object_bytes, units
        chunk_bytes = region.info().chunk_bytes
        self.chunks_each = -(-object_bytes // chunk_bytes)
        self.count = max(4, working_set // 2 // (self.chunks_each * chunk_bytes))
        self.space: Namespace = region.namespace(FINGERPRINT)
        self.keys = [b"%d-%d" % (object_bytes, index) for index in range(self.count)]
        engine = private(SKEW + self.count * object_bytes)
        source = private(SKEW + self.count * object_bytes)
        places = range(SKEW, SKEW + self.count * object_bytes, object_bytes)
        self.engine = [engine[at : at + object_bytes] for at in places]
        self.source = [source[at : at + object_bytes] for at in places]
        for index, slot in enumerate(self.source):
            slot[:8] = index.to_bytes(8, "little")
        self._addresses = [(address(a), address(b)) for a, b in zip(self.engine, self.source, strict=True)]
        self.windows: list[Window] = []
        self._refs = b""

    @contextlib.contextmanager
    def stored(self) -> Iterator[Workload]:
        """Store every object and reserve the windows; all of it is given back at the end.

        Raises:
            Failure: the domain has no room for it. Nothing is evicted for a benchmark.
        """
        info = self.region.info()
        chunks = 2 * self.count * self.chunks_each
        wanted = chunks + chunks // 4  # eviction keeps a part of a domain retired
        use = self.region.chunk_use(info.domain or 0)
        room = use["free"] + use["retired"]
        if room < wanted:
            raise Failure(
                "full",
                f"domain {info.domain}: expected {bytes_text(wanted * info.chunk_bytes)} of free chunks to measure in, "
                f"found {bytes_text(room * info.chunk_bytes)}; give a smaller --working-set or another --domain",
            )
        try:
            for key, slot in zip(self.keys, self.source, strict=True):
                self.space.evict([key])
                if not self.space.put(key, slot, units=self.units):
                    raise Failure("full", f"domain {info.domain}: an object of {self.bytes} bytes was not stored")
            names = [b"window-" + key for key in self.keys]
            self._refs, status = self.space.reserve(names, 1, unit_bytes=self.bytes)
            if status != b"\1" * self.count:
                raise Failure("full", f"domain {info.domain}: no room for {self.count} windows of {self.bytes} bytes")
            self.windows = [self.region.window(self._refs[16 * i : 16 * i + 16]) for i in range(self.count)]
            for window, slot in zip(self.windows, self.source, strict=True):
                window.copy_in(copies()[0], slot)
            yield self
        finally:
            self.windows = []
            self.region.abort(self._refs)
            self.space.evict(self.keys)

    def arrived(self, index: int) -> bool:
        """True when the engine slot holds what was stored; the slot is spoilt, so that the next copy has to be made."""
        engine, source = self._addresses[index]
        same = bool(_memcmp(engine, source, self.bytes) == 0)
        self.engine[index][::4096] = bytes(len(range(0, self.bytes, 4096)))
        self.engine[index][7::4096] = b"\xff" * len(range(7, self.bytes, 4096))
        return same

    def same_page(self, page: int, page_bytes: int) -> bool:
        """True when a page of the engine's memory, numbered over all slots, holds what the source's does; spoils it."""
        engine, source = self._addresses[0]
        offset = page * page_bytes
        same = bool(_memcmp(engine + offset, source + offset, page_bytes) == 0)
        ctypes.memset(engine + offset, page & 0xFF, 256)
        return same

    def get_one(self, index: int) -> bool:
        """One verified get; True when all bytes came."""
        return self.space.get_into(self.keys[index], self.engine[index]) == self.bytes

    def evict(self, key: bytes) -> None:
        """Take an object away, so that its key can be put."""
        self.space.evict([key])

    def get(self, space: Namespace | None = None) -> Contestant:
        """The product's verified get, by another attachment of the region where one is given."""
        keys, engine, read = self.keys, self.engine, (space or self.space).get_into
        return Contestant("get", lambda i: read(keys[i], engine[i]) == self.bytes, check=self.arrived)

    def get_bare(self, name: str) -> Contestant:
        """A copy of the same bytes out of the same memory, unverified."""

        def work(index: int) -> bool:
            self.windows[index].copy_out(name, self.engine[index])
            return True

        return Contestant(name, work, check=self.arrived)

    def put(self, space: Namespace | None = None) -> Contestant:
        """The product's put into chunks that were used before, by another attachment where one is given."""
        put = (space or self.space).put

        def check(index: int) -> bool:
            read = self.space.get_into(self.keys[index], self.engine[index]) == self.bytes
            return read and self.arrived(index)

        def work(index: int) -> bool:
            return put(self.keys[index], self.source[index], units=self.units)

        return Contestant("put", work, lambda i: self.evict(self.keys[i]), check)

    def put_bare(self, name: str) -> Contestant:
        """A copy into the same memory, without checksum and publication."""

        def work(index: int) -> bool:
            self.windows[index].copy_in(name, self.source[index])
            return True

        def check(index: int) -> bool:
            self.windows[index].copy_out(name, self.engine[index])
            return self.arrived(index)

        return Contestant(name, work, check=check)
