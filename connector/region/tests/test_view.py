"""Objects looked at where they lie, without a copy."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from hymcache.region import Namespace, Region, View

FINGERPRINT = bytes(range(32))
CHUNK = 64 << 10
MIB = 1 << 20
Content = Callable[[bytes, int], bytes]


def seen(view: View | None) -> bytes:
    assert view is not None
    return b"".join(bytes(part) for part in view.parts)


@pytest.mark.parametrize(
    ("size", "units"), [(1, 1), (100, 1), (CHUNK, 4), (3 * CHUNK + 64, 1), (1000, 10), (5 * CHUNK, 5)]
)
def test_a_view_shows_what_was_stored(ns: Namespace, content: Content, size: int, units: int) -> None:
    data = content(b"k", size)
    assert ns.put(b"k", data, units=units)
    view = ns.view(b"k")
    assert seen(view) == data
    assert view is not None
    assert len(view) == view.nbytes == size
    assert view.still_valid()
    assert view.verify()


def test_one_piece_has_the_buffer_protocol_and_is_read_only(ns: Namespace, content: Content) -> None:
    ns.put(b"k", content(b"k", 1000))
    view = ns.view(b"k")
    assert view is not None
    assert bytes(view) == content(b"k", 1000)
    assert memoryview(view).readonly
    with pytest.raises(TypeError):
        memoryview(view)[0] = 1
    ns.put(b"spread", content(b"s", 300), units=3)
    spread = ns.view(b"spread")
    assert spread is not None
    assert [part.nbytes for part in spread.parts] == [100, 100, 100]
    with pytest.raises(BufferError, match="use its parts"):
        memoryview(spread)


def test_a_missing_key_has_no_view(region: Region, ns: Namespace) -> None:
    assert ns.view(b"absent") is None
    assert region.stats()["miss_absent"] == 1


def test_an_evicted_object_stays_in_view_until_its_memory_is_reused(
    region: Region, ns: Namespace, content: Content
) -> None:
    ns.put(b"k", content(b"k", CHUNK))
    view = ns.view(b"k")
    assert view is not None
    ns.evict([b"k"])
    assert view.still_valid()
    assert bytes(view) == content(b"k", CHUNK)
    chunks = region.stats()["free_chunks"][0]
    for i in range(chunks + 2):
        ns.put(b"%d" % i, bytes(CHUNK))
    assert not view.still_valid()
    assert not view.verify()


def test_another_hosts_object_is_seen_without_a_copy(
    ns: Namespace, content: Content, attach: Callable[..., Region]
) -> None:
    theirs = attach(domain=1).namespace(FINGERPRINT)
    for version in range(3):
        data = content(b"%d" % version, 2 * CHUNK)
        assert ns.put(b"k", data)
        view = theirs.view(b"k")
        assert seen(view) == data
        assert view is not None
        assert view.verify()
        ns.evict([b"k"])


def test_damage_is_seen_by_verify(ns: Namespace, region: Region, medium: Path, content: Content) -> None:
    data = content(b"k", 1000)
    ns.put(b"k", data)
    view = ns.view(b"k")
    assert view is not None
    with medium.open("r+b") as file:
        at = file.read().index(data)
        file.seek(at + 500)
        file.write(b"\xff")
    assert view.still_valid(), "the header stands still"
    assert not view.verify()
    assert region.stats()["miss_unit_crc"] == 1
    assert ns.lookup([b"k"]) == 0, "it is dropped"


def test_a_closed_region_stays_mapped_while_a_view_lives(medium: Path, content: Content) -> None:
    Region.format(medium, size=32 << 20, chunk_bytes=CHUNK)
    region = Region.attach(medium)
    region.namespace(FINGERPRINT).put(b"k", content(b"k", CHUNK))
    view = region.namespace(FINGERPRINT).view(b"k")
    assert view is not None
    buffer = memoryview(view)
    start = time.monotonic()
    region.close()
    assert time.monotonic() - start < 5, "close waits for calls, not for views"
    with Region.attach(medium) as other:
        assert sum(other.stats()["processes"]) == 1, "the slot was given back"
    assert bytes(buffer) == content(b"k", CHUNK)
    assert view.still_valid()
    del view
    gc.collect()
    assert bytes(buffer) == content(b"k", CHUNK)
    with pytest.raises(Exception, match="closed"):
        region.stats()


def test_the_mapping_goes_with_the_last_view(medium: Path) -> None:
    Region.format(medium, size=32 << 20, chunk_bytes=CHUNK)
    region = Region.attach(medium)
    ns = region.namespace(FINGERPRINT)
    ns.put(b"k", b"x")
    view = ns.view(b"k")
    region.close()
    assert medium.name in Path("/proc/self/maps").read_text()
    del view
    gc.collect()
    assert medium.name not in Path("/proc/self/maps").read_text()


TRUNCATED = """
import os, sys
from hymcache.region import Region
region = Region.attach(sys.argv[1])
ns = region.namespace(bytes(range(32)))
ns.put(b"k", b"x" * 1000)
view = ns.view(b"k")
os.truncate(sys.argv[1], 4096)
print(bytes(view)[:2], view.still_valid(), view.verify(), region.info().lost)
"""


def test_a_view_of_a_medium_that_shrinks_reads_zeros_and_is_not_valid(medium: Path) -> None:
    Region.format(medium, size=32 << 20, chunk_bytes=CHUNK)
    done = subprocess.run([sys.executable, "-c", TRUNCATED, medium], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, r"b'\x00\x00' False False True")


def test_a_forked_child_gets_no_view(region: Region, ns: Namespace) -> None:
    ns.put(b"k", b"x")
    view = ns.view(b"k")
    assert view is not None
    child = os.fork()
    if child == 0:
        os._exit(1 if view.still_valid() or view.verify() or ns.view(b"k") is not None else 0)
    assert os.waitpid(child, 0)[1] == 0
    assert view.still_valid()


def test_a_new_format_ends_a_view(medium: Path) -> None:
    Region.format(medium, size=32 << 20, chunk_bytes=CHUNK, epoch=1)
    region = Region.attach(medium, read_only=True)
    with Region.attach(medium) as writer:
        writer.namespace(FINGERPRINT).put(b"k", b"x")
    view = region.namespace(FINGERPRINT).view(b"k")
    assert view is not None
    assert view.still_valid()
    Region.format(medium, chunk_bytes=CHUNK, replaces=1)
    assert not view.still_valid()
    del view
    region.close()


def test_a_view_is_no_source_of_a_put(medium: Path) -> None:
    Region.format(medium, size=MIB, chunk_bytes=CHUNK)
    with Region.attach(medium) as region, Region.attach(medium) as other:
        ns = region.namespace(FINGERPRINT)
        data = os.urandom(region.info().chunks * CHUNK)  # the put has to reuse the chunks it reads from
        assert ns.put(b"from", data)
        view = ns.view(b"from")
        assert view is not None
        for source in (list(view.parts), memoryview(view.parts[-1])[1:]):
            for process in (region, other):
                with pytest.raises(ValueError, match=r"^buffers: .* copy it first"):
                    process.namespace(FINGERPRINT).put(b"to", source)
        numbers = numpy.frombuffer(view.parts[0], numpy.uint8)
        with pytest.raises(ValueError, match=r"^pages: "):
            region.pages([(numbers.ctypes.data, 4096, 4096)])
        with pytest.raises(ValueError, match=r"^pages: "):
            region.pages([(numbers.ctypes.data - 4096, 4096, 4096, 2)])
        assert ns.put(b"to", seen(view))
        target = bytearray(len(data))
        assert ns.get_into(b"to", target) == len(data)
        assert target == data
