"""Occupancy adds up, damage is named, nothing is changed by looking."""

from __future__ import annotations

import json
import mmap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hymcache.cli.region.occupancy import age_name
from hymcache.region import Region

Run = Callable[..., Result]
ONE, TWO = bytes(32), bytes(range(32))


@pytest.fixture
def filled(region: Region, medium: Path) -> Region:
    """30 objects of two namespaces in domain 0 and 5 in domain 1, 3 evicted, one being written."""
    one, two = region.namespace(ONE), region.namespace(TWO)
    for i in range(20):
        assert one.put(b"one-%d" % i, bytes([i]) * 100_000, units=4)
    for i in range(10):
        assert two.put(b"two-%d" % i, bytes([i]) * 1000)
    with Region.attach(medium, domain=1, host="other") as other:
        space = other.namespace(TWO)
        for i in range(5):
            assert space.put(b"other-%d" % i, bytes(70_000))
    assert one.evict([b"one-0", b"one-1", b"one-2"]) == 3
    one.reserve([b"half"], 1, unit_bytes=200_000)
    return region


def test_occupancy_is_counted_by_domain_namespace_and_age(
    filled: Region, answer: Callable[..., Any], medium: Path
) -> None:
    found = answer("inspect", medium)
    first, second = found["domains"]
    assert (first["objects"], first["bytes"]) == (27, 17 * 100_000 + 10 * 1000)
    assert (second["objects"], second["bytes"]) == (5, 5 * 70_000)
    assert first["lines"] == {"valid": 27, "retired": 3, "writing": 1}
    assert first["processes"] == 1
    assert {name: share["objects"] for name, share in found["namespaces"].items()} == {ONE.hex(): 17, TWO.hex(): 15}
    assert found["namespaces"][TWO.hex()]["bytes"] == 10 * 1000 + 5 * 70_000
    assert found["ages"]["up to 1 minute"]["objects"] == 32
    for domain in (first, second):
        use = domain["chunk_use"]
        assert sum(use.values()) == found["region"]["chunks"] // 2
        assert use["valid"] == domain["chunks"]
        assert use["orphaned"] == 0
    assert first["chunk_use"]["retired"] == 6
    assert first["chunk_use"]["writing"] == 4
    assert first["chunk_use"]["free"] == filled.stats()["free_chunks"][0]


def test_the_text_says_the_same(filled: Region, run: Run, medium: Path) -> None:
    text = run("inspect", medium).output
    assert filled.info().uuid in text
    assert TWO.hex() in text
    assert "1.63 MiB" in text
    assert "up to 1 minute" in text


@pytest.mark.parametrize(("seconds", "name"), [(0, "up to 1 minute"), (61, "up to 10 minutes"), (10**9, "older")])
def test_ages_have_names(seconds: float, name: str) -> None:
    assert age_name(seconds) == name


def test_every_object_is_verified(filled: Region, answer: Callable[..., Any], medium: Path) -> None:
    found = answer("verify", medium)
    assert found == {"objects": 35, "bytes": 20 * 100_000 + 10 * 1000 + 5 * 70_000, "left": 0, "damaged": []}


def damage(medium: Path, data: bytes) -> None:
    with medium.open("r+b") as file, mmap.mmap(file.fileno(), 0) as raw:
        at = raw.find(data)
        assert at >= 0
        raw[at + 60] ^= 1


def test_damage_is_found_named_and_left_as_it_is(filled: Region, run: Run, medium: Path) -> None:
    damage(medium, bytes([7]) * 25_000)
    before = medium.read_bytes()
    for _ in range(2):
        result = run("verify", medium, "--json")
        assert result.exit_code == 1
        found = json.loads(result.stdout)
        assert found["objects"] == 34
        assert [(d["domain"], d["reason"]) for d in found["damaged"]] == [(0, "miss_unit_crc")]
    assert "1 damaged" in run("verify", medium).output
    metadata = filled.info().metadata_bytes
    assert medium.read_bytes()[metadata:] == before[metadata:]
    assert filled.namespace(ONE).get_into(b"one-7", bytearray(100_000)) == 0


def test_a_damaged_header_is_counted_and_not_believed(
    filled: Region, answer: Callable[..., Any], run: Run, medium: Path
) -> None:
    _, rows = filled.objects(1)
    generation = rows[0][1]
    with medium.open("r+b") as file, mmap.mmap(file.fileno(), 0) as raw:
        word = (2 | generation << 16).to_bytes(8, "little")
        at = next(
            p for p in range(4096, filled.info().metadata_bytes, 64) if raw[p : p + 8] == word and raw[p + 35] == 1
        )
        raw[at + 28] ^= 0xFF
    found = answer("inspect", medium)
    assert sum(sum(domain["damaged_lines"].values()) for domain in found["domains"]) == 1
    assert sum(domain["objects"] for domain in found["domains"]) == 31
    assert run("verify", medium).exit_code == 1


def test_watch_prints_a_line_per_look_with_rates(filled: Region, run: Run, medium: Path) -> None:
    result = run("watch", medium, "--count", 2, "--interval", 0.1, "--json")
    first, second = map(json.loads, result.stdout.splitlines())
    assert "claims_per_second" not in first["domains"][0]
    assert second["domains"][0]["claims_per_second"] == 0
    assert second["domains"][0]["chunks"]["writing"] == 4
    assert second["at"] > first["at"]


def test_watch_sees_puts(filled: Region, medium: Path) -> None:
    from hymcache.cli.region.watch import look, rates

    with Region.attach(medium, read_only=True) as reader:
        before = look(reader)
        time.sleep(0.01)
        space = filled.namespace(ONE)
        for i in range(7):
            space.put(b"more-%d" % i, b"x")
        now = look(reader)
    assert now.domains[0]["claims"] - before.domains[0]["claims"] == 7
    assert rates(now, before, 0)["claims_per_second"] > 0
    assert rates(now, before, 1)["claims_per_second"] == 0


def test_watch_as_a_table(filled: Region, run: Run, medium: Path) -> None:
    assert "orphan" in run("watch", medium, "--count", 1).output


def test_watch_ends_when_the_region_is_formatted_anew(run: Run, medium: Path) -> None:
    Region.format(medium, size=32 << 20)
    anew = threading.Timer(0.5, lambda: Region.format(medium, replaces=1))
    anew.start()
    result = run("watch", medium, "--interval", 0.1, "--count", 100, "--json")
    anew.join()
    assert result.exit_code == 1
    assert json.loads(result.stdout.splitlines()[-1])["error"]["kind"] == "lost"
