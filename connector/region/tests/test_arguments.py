"""Wrong arguments: a TypeError or ValueError that names the argument, and nothing stored."""

from __future__ import annotations

import array
import ctypes
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hymcache.region import Namespace, Region, RegionError


class Strided:
    """Not contiguous."""

    view = memoryview(bytes(100))[::2]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda ns: ns.put(b"", b"x"), ValueError, "key: expected 1 to 120 bytes, found 0"),
        (lambda ns: ns.put(b"k" * 121, b"x"), ValueError, "key: expected 1 to 120 bytes, found 121"),
        (lambda ns: ns.put("text", b"x"), TypeError, "key: expected bytes"),
        (lambda ns: ns.put(7, b"x"), TypeError, "key: expected bytes"),
        (lambda ns: ns.put(b"k", 7), TypeError, "buffers: expected an object with the buffer protocol"),
        (lambda ns: ns.put(b"k", [b"x", None]), TypeError, "buffers: expected an object with the buffer protocol"),
        (lambda ns: ns.put(b"k", b""), ValueError, "buffers: expected units of 1"),
        (lambda ns: ns.put(b"k", b"abc", units=2), ValueError, "units: expected a divisor of the 3 bytes"),
        (lambda ns: ns.put(b"k", b"abc", units=0), ValueError, "units:"),
        (lambda ns: ns.put(b"k", bytes(65536), units=65536), ValueError, "units: expected 1 to 65535"),
        (lambda ns: ns.put(b"k", Strided.view), ValueError, "buffers: expected contiguous"),
        (lambda ns: ns.get_into(b"k", bytes(3)), TypeError, "buffers: expected writable"),
        (lambda ns: ns.get_into(b"k", Strided.view), ValueError, "buffers: expected contiguous"),
        (lambda ns: ns.put(b"k", b"abc", units=-1), ValueError, "^units: expected an integer from 0 to"),
        (lambda ns: ns.put(b"k", b"abc", units=1 << 64), ValueError, "^units: expected an integer from 0 to"),
        (lambda ns: ns.get_into(b"k", bytearray(3), first=-1), ValueError, "^first: .* from 0 to 4294967295, found -1"),
        (lambda ns: ns.get_into(b"k", bytearray(3), count=1 << 32), ValueError, "^count: .*found 4294967296"),
        (lambda ns: ns.lookup(b"abc", width=-1), ValueError, "^width: expected an integer from 0 to"),
        (lambda ns: ns.prefetch([b"k"], request_id=1, deadline_ms=1, priority=256), ValueError, "^priority: .*to 255"),
        (lambda ns: ns.reserve([b"k"], -1, unit_bytes=10), ValueError, "^units: expected an integer from 0 to"),
        (lambda ns: ns.reserve([b"k"], 1, unit_bytes=-1), ValueError, "^unit_bytes: expected an integer from 0 to"),
        (lambda ns: ns.reserve([b"k"], 1), TypeError, "^unit_bytes: .*found none; pass unit_bytes"),
        (lambda ns: ns.put(b"k", np.array([None])), TypeError, "buffers: expected plain data"),
        (lambda ns: ns.get_into(b"k", np.array([None])), TypeError, "buffers: expected plain data"),
        (lambda ns: ns.get_into(b"k", [np.zeros(2, "i4,O")]), TypeError, "buffers: expected plain data"),
        (lambda ns: ns.get_into(b"k", (ctypes.py_object * 2)()), TypeError, "buffers: expected plain data"),
        (lambda ns: ns.lookup(b"abc"), TypeError, "keys: expected a sequence of bytes"),
        (lambda ns: ns.lookup(b"abc", width=2), ValueError, "keys: expected a multiple of width=2"),
        (lambda ns: ns.lookup(b"abc", width=0), ValueError, "width:"),
        (lambda ns: ns.lookup([b"k", 7]), TypeError, "key: expected bytes"),
        (lambda ns: ns.lookup(7), TypeError, "keys:"),
        (lambda ns: ns.contains([b"k", b""]), ValueError, "key:"),
        (lambda ns: ns.reserve([b"k"], 0, unit_bytes=10), ValueError, "units:"),
        (lambda ns: ns.reserve([b"k"], 1, unit_bytes=10, sections=16), ValueError, "sections:"),
    ],
)
def test_a_wrong_argument_is_named(ns: Namespace, call: Any, error: type[Exception], match: str) -> None:
    ns.put(b"other", b"x")
    with pytest.raises(error, match=match):
        call(ns)
    assert ns.lookup([b"other"]) == 1


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([], ValueError),
        ([(0, 10, 10)], ValueError),
        ([(4096, 5, 10)], ValueError),
        ([(4096, 10, 0)], ValueError),
        ([(4096, 10)], TypeError),
        ([(4096, -1, 10)], TypeError),
        (7, TypeError),
    ],
)
def test_wrong_pages_are_refused(region: Region, rows: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        region.pages(rows)


@pytest.mark.parametrize("ids", [[-1], [4], ["a"], array.array("d", [1.0]), array.array("i", [-1]), b"ab", 7])
def test_wrong_block_ids_are_refused(region: Region, ids: Any) -> None:
    memory = bytearray(4096)
    address = memoryview(memory)
    with pytest.raises((TypeError, ValueError), match="ids"):
        region.pages([(id(address), 1024, 1024, 4)]).blocks(ids)


@pytest.mark.parametrize(
    "name", ["size", "chunk_bytes", "domains", "objects", "replaces", "epoch", "attach domain", "attach epoch"]
)
@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_a_number_that_does_not_fit_is_a_value_error_that_names_it(medium: Path, name: str, number: int) -> None:
    _, attach, argument = name.rpartition("attach ")
    options: dict[str, Any] = {argument: number}
    call = partial(Region.attach, medium) if attach else partial(Region.format, medium, size=32 << 20)
    with pytest.raises(ValueError, match=f"^{argument}: expected an integer from 0 to .*, found {number}"):
        call(**options)
    assert not medium.exists()


def test_names_of_fields_are_no_references(ns: Namespace) -> None:
    items = np.zeros(3, [("O", "i4"), ("k", "u1")])
    assert ns.put(b"k", items)
    assert ns.get_into(b"k", items) == items.nbytes


@pytest.mark.parametrize("fingerprint", [bytearray(32), memoryview(bytes(32)), np.zeros(32, "u1")])
def test_a_fingerprint_is_any_buffer(region: Region, fingerprint: Any) -> None:
    region.namespace(bytes(32)).put(b"k", b"x")
    assert region.namespace(fingerprint).lookup([b"k"]) == 1


@pytest.mark.parametrize("fingerprint", [b"", bytes(31), bytes(33)])
def test_a_fingerprint_has_32_bytes(region: Region, fingerprint: bytes) -> None:
    with pytest.raises(ValueError, match="fingerprint: expected 32 bytes"):
        region.namespace(fingerprint)


def test_a_buffer_of_another_size_is_a_miss_not_an_exception(region: Region, ns: Namespace) -> None:
    ns.put(b"k", bytes(100), units=4)
    assert ns.get_into(b"k", bytearray(99)) == 0
    assert ns.get_into(b"k", bytearray(25), first=4) == 0
    assert ns.get_into(b"k", bytearray(100), first=1, count=4) == 0
    assert ns.get_into(b"k", bytearray(25), first=0, count=0) == 0
    assert region.stats()["miss_size"] == 4
    assert ns.get_into(b"k", bytearray(200)) == 100, "a larger buffer takes what there is"


def test_a_closed_region_says_so(region: Region, ns: Namespace) -> None:
    region.close()
    region.close()
    assert region.closed
    for call in (lambda: ns.lookup([b"k"]), lambda: ns.put(b"k", b"x"), region.info, region.stats):
        with pytest.raises(RegionError, match="attach again") as caught:
            call()
        assert caught.value.kind == "closed"


USE_WHAT_IS_CLOSED = """
import sys, threading
from hymcache.region import Region, RegionError

region = Region.attach(sys.argv[1])
ns = region.namespace(bytes(32))
region.close()
refused = []


def use():
    for _ in range(20_000):
        try:
            ns.lookup([b"k"])
        except RegionError:
            refused.append(1)


threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(refused))
"""


def test_threads_that_use_a_closed_region_do_not_wait_for_each_other(medium: Path) -> None:
    Region.format(medium, size=32 << 20)
    command = [sys.executable, "-c", USE_WHAT_IS_CLOSED, medium]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["80000"]
