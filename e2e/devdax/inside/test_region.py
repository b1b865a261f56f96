"""A region on a device-dax node: what it is attached by, what it refuses, who shares it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from attached import FINGERPRINT, content
from hymcache.region import Region, RegionError

from conftest import MIB, SIZE, Node, Process

SIZES = [1 << 10, 4 << 10, 64 << 10, (1 << 20) - 8, 1 << 20, 4 << 20]
Start = Callable[..., Process]


def refused(call: Callable[..., object], *arguments: object, **options: object) -> str:
    """Kind and message of the error, shown."""
    with pytest.raises((RegionError, ValueError)) as caught:
        call(*arguments, **options)
    text = f"{getattr(caught.value, 'kind', 'ValueError')}: {caught.value}"
    print(text)
    return text


def test_objects_of_all_sizes_come_back_as_they_were(node: Node) -> None:
    info = Region.format(node.path, lock_file=node.lock_file)
    assert info.bytes == SIZE
    with Region.attach(node.path, lock_file=node.lock_file) as region:
        ns = region.namespace(FINGERPRINT)
        for size in SIZES:
            assert ns.put(b"%d" % size, content(str(size), size)), region.stats()
        for size in SIZES:
            buffer = bytearray(size)
            assert ns.get_into(b"%d" % size, buffer) == size
            assert buffer == content(str(size), size)
        while region.info().populating:
            time.sleep(0.1)
        print(region.info())
        assert region.info().page_bytes == 2 * MIB
        assert not region.info().lost
        assert region.stats()["out_of_bounds"] == 0


def test_a_device_is_formatted_and_attached_with_a_lock_file_only(node: Node) -> None:
    assert "lock_file" in refused(Region.format, node.path)
    assert node.read(0, 4096) == bytes(4096)
    Region.format(node.path, lock_file=node.lock_file)
    before = node.digest()
    assert "lock_file" in refused(Region.attach, node.path)
    assert node.digest() == before


def test_a_reader_needs_no_lock_file_but_counts_users_only_with_it(node: Node, process: Start) -> None:
    Region.format(node.path, lock_file=node.lock_file, domains=2)
    process()
    with Region.attach(node.path, read_only=True) as region:
        assert [region.users(0), region.users(1)] == [None, None]
    with Region.attach(node.path, read_only=True, lock_file=node.lock_file) as region:
        assert [region.users(0), region.users(1)] == [1, 0]


def test_who_locks_another_file_is_refused_while_users_live(node: Node, process: Start) -> None:
    Region.format(node.path, lock_file=node.lock_file)
    user = process()
    other = node.lock_file.with_suffix(".other")
    said = refused(Region.attach, node.path, lock_file=other)
    assert said.startswith("busy:")
    assert str(other) in said
    assert user.ask("put", "kept", 1 * MIB)
    user.kill()
    with Region.attach(node.path, lock_file=other) as region:
        buffer = bytearray(1 * MIB)
        assert region.namespace(FINGERPRINT).get_into(b"kept", buffer) == 1 * MIB
        assert buffer == content("kept", 1 * MIB)


def test_processes_of_two_domains_read_one_another(node: Node, process: Start) -> None:
    Region.format(node.path, lock_file=node.lock_file, domains=2)
    first, second, other = process(domain=0), process(domain=0), process(domain=1)
    assert first.ask("put", "of first", 3 * MIB)
    assert other.ask("put", "of other", 100_000)
    for reader in (first, second, other):
        assert [reader.ask("get", "of first", 3 * MIB), reader.ask("get", "of other", 100_000)] == ["same", "same"]
    assert [first.begun["slot"], second.begun["slot"], other.begun["slot"]] == [0, 1, 0]
    assert [other.ask("users", 0), other.ask("users", 1)] == [2, 1]


def test_what_a_killed_process_held_is_usable_again(node: Node, process: Start) -> None:
    Region.format(node.path, lock_file=node.lock_file)
    one, other = process(), process()
    free = other.ask("stats")["free_chunks"]
    assert one.ask("reserve", "held", 2 * MIB) == [1]
    assert other.ask("stats")["free_chunks"] == [free[0] - 1]
    one.kill()
    begin = time.monotonic()
    while other.ask("stats")["free_chunks"] != free:
        assert time.monotonic() < begin + 10
        time.sleep(0.02)
    print(f"usable again after {time.monotonic() - begin:.2f} s")
    assert other.ask("users", 0) == 1
    assert other.ask("put", "held", 2 * MIB)


def test_a_format_waits_for_nobody_and_takes_nobodys_memory(node: Node, process: Start) -> None:
    Region.format(node.path, lock_file=node.lock_file)
    process()
    assert refused(Region.format, node.path, lock_file=node.lock_file, replaces=1).startswith("busy:")


def test_zeros_foreign_bytes_and_a_smaller_device_are_named_and_left_alone(node: Node) -> None:
    options = {"lock_file": node.lock_file}
    before = node.digest()
    assert refused(Region.attach, node.path, **options).startswith("unformatted:")
    assert node.digest() == before
    node.write(0, b"#!/bin/sh\necho no region\n")
    before = node.digest()
    assert refused(Region.attach, node.path, **options).startswith("foreign:")
    assert refused(Region.format, node.path, **options).startswith("foreign:")
    assert refused(Region.format, node.path, replaces=1, **options).startswith("foreign:")
    assert node.digest() == before
    node.write(0, bytes(4096))
    Region.format(node.path, **options)
    node.shape(SIZE // 2)
    before = node.digest()
    assert refused(Region.attach, node.path, **options).startswith("truncated:")
    assert node.digest() == before


@pytest.mark.parametrize("size", [34 * MIB, 66 * MIB, 130 * MIB, 510 * MIB])
@pytest.mark.parametrize("domains", [1, 3])
def test_devices_of_any_multiple_of_the_alignment_work(node: Node, size: int, domains: int) -> None:
    node.shape(size)
    info = Region.format(node.path, lock_file=node.lock_file, domains=domains)
    print(info)
    with Region.attach(node.path, lock_file=node.lock_file, domain=domains - 1) as region:
        ns = region.namespace(FINGERPRINT)
        assert ns.put(b"key", content("key", 3 * MIB))
        buffer = bytearray(3 * MIB)
        assert ns.get_into(b"key", buffer) == len(buffer)
        assert buffer == content("key", len(buffer))


@pytest.mark.parametrize("chunk_bytes", [64 << 10, 1 << 20, 8 << 20])
def test_chunks_smaller_and_larger_than_a_page_of_the_device_work(node: Node, chunk_bytes: int) -> None:
    Region.format(node.path, lock_file=node.lock_file, domains=2, chunk_bytes=chunk_bytes)
    for domain in range(2):
        with Region.attach(node.path, lock_file=node.lock_file, domain=domain) as region:
            assert region.namespace(FINGERPRINT).put(b"%d" % domain, content("key", 300_000))


def test_a_region_can_be_smaller_than_its_device(node: Node) -> None:
    info = Region.format(node.path, lock_file=node.lock_file, size=33 * MIB + 4096)
    print(info)
    with Region.attach(node.path, lock_file=node.lock_file) as region:
        assert region.namespace(FINGERPRINT).put(b"key", content("key", MIB))


def test_a_region_whose_domains_share_pages_of_the_device_is_only_read(node: Node) -> None:
    """Formatted where pages are small: its domains cannot be protected from one another here."""
    file = Path("/dev/shm/small")
    Region.format(file, size=16 * MIB, domains=2, chunk_bytes=64 << 10)
    with Region.attach(file) as region:
        assert region.namespace(FINGERPRINT).put(b"key", content("key", 5000))
    node.write(0, file.read_bytes())
    file.unlink()
    before = node.digest()
    assert "alignment" in refused(Region.attach, node.path, lock_file=node.lock_file)
    with Region.attach(node.path, read_only=True) as region:
        buffer = bytearray(5000)
        assert region.namespace(FINGERPRINT).get_into(b"key", buffer) == 5000
        assert buffer == content("key", 5000)
    assert node.digest() == before


def test_a_device_of_huge_alignment_is_refused(node: Node) -> None:
    options = {"lock_file": node.lock_file}
    node.shape(1 << 30)
    Region.format(node.path, **options)
    node.shape(1 << 30, align=1 << 30)
    try:
        for call in (Region.attach, Region.format):
            assert "an alignment of at most 2097152 bytes, found 1073741824" in refused(call, node.path, **options)
        assert "an alignment of at most" in refused(Region.attach, node.path, read_only=True)
    finally:
        node.shape(SIZE)


def test_what_was_there_is_given_up_only_by_name(node: Node) -> None:
    options = {"lock_file": node.lock_file}
    old = Region.format(node.path, **options)
    with Region.attach(node.path, **options) as region:
        region.namespace(FINGERPRINT).put(b"secret", b"secret bytes" * 1000)
    before = node.digest()
    assert refused(Region.format, node.path, **options).startswith("exists:")
    assert refused(Region.format, node.path, replaces=7, **options).startswith("exists:")
    assert node.digest() == before
    new = Region.format(node.path, replaces=old.epoch, **options)
    assert (new.epoch, new.uuid == old.uuid) == (old.epoch + 1, False)
    with Region.attach(node.path, **options) as region:
        assert region.namespace(FINGERPRINT).lookup([b"secret"]) == 0


def test_clear_leaves_nothing_of_another_owner(node: Node) -> None:
    node.shape(48 * MIB)
    node.write(0, b"another owner's bytes")
    node.write(15 * MIB, b"another owner's bytes")
    begin = time.monotonic()
    Region.format(node.path, lock_file=node.lock_file, clear=True)
    print(f"48 MiB cleared in {time.monotonic() - begin:.1f} s")
    assert b"another owner" not in node.read(0, 16 * MIB)


def test_a_descriptor_is_enough_where_the_node_may_not_be_opened(node: Node) -> None:
    """A pod gets a descriptor and no node: its device rules, or its user, forbid to open one."""
    Region.format(node.path, lock_file=node.lock_file)
    node.lock_file.chmod(0o666)
    program = f"""
import os
from hymcache.region import Region
os.setgid(1000), os.setuid(1000)
with Region.attach(3, lock_file={str(node.lock_file)!r}) as region:
    print(region.namespace(bytes(32)).put(b"key", b"value"), region.info().page_bytes)
"""
    folder = node.lock_file.parent
    while folder != folder.parent:
        folder.chmod(0o755)
        folder = folder.parent
    descriptor = os.open(node.path, os.O_RDWR)
    try:
        done = subprocess.run(
            ["sh", "-c", f'exec 3<&{descriptor}; exec "$@"', "sh", sys.executable, "-c", program],
            pass_fds=[descriptor], capture_output=True, text=True,
        )  # fmt: skip
    finally:
        os.close(descriptor)
    assert done.stdout == f"True {2 * MIB}\n", done.stderr


def test_other_character_devices_are_refused(node: Node) -> None:
    for path in ("/dev/zero", "/dev/ttyS0", "/dev/mem"):
        assert re.match("foreign: .*device-dax", refused(Region.attach, path, lock_file=node.lock_file))
