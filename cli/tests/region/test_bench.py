"""The benchmark verifies what it times, says nothing about speed when something failed, and evicts nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hymcache.cli.region.bench import figures
from hymcache.cli.region.contest import Contestant, paired, quantile, ratio
from hymcache.region import Region

Run = Callable[..., Result]
OPTIONS = ("--sizes", "64Ki,256Ki", "--working-set", "8Mi", "--rounds", 3)


def test_a_row_per_size_and_direction(region: Region, answer: Callable[..., Any], medium: Path) -> None:
    space = region.namespace(bytes(32))
    kept = [b"kept-%d" % i for i in range(50)]
    for key in kept:
        assert space.put(key, key)
    found = answer("bench", medium, "--host", "one", *OPTIONS)
    assert found["page_bytes"] in {4096, 2 << 20}
    assert found["kernel"]
    assert [(row["work"], row["object_bytes"]) for row in found["rows"]] == [
        ("get", 64 << 10),
        ("put", 64 << 10),
        ("get", 256 << 10),
        ("put", 256 << 10),
    ]
    for row in found["rows"]:
        assert row["failures"] == 0
        assert row["verified"] >= 3
        assert 0 < row["p50_us"] <= row["p99_us"] <= row["p999_us"]
        assert all(row[name] > 0 for name in ("to_memcpy", "to_bare", "gb_per_second", "cpu_seconds_per_gb"))
    assert space.lookup(kept) == 50, "the benchmark evicted what was stored"
    use = region.chunk_use(0)
    assert use["writing"] == 0, "windows were left behind"


def test_the_table_has_every_column(region: Region, run: Run, medium: Path) -> None:
    result = run("bench", medium, "--host", "one", "--sizes", "64Ki", "--working-set", "4Mi", "--rounds", 3)
    assert result.exit_code == 0
    for word in ("memcpy GB/s", "best bare", "p99.9 us", "CPU s/GB", "verified", "failures", "kernel", "pages of"):
        assert word in result.output


def test_a_region_without_room_is_left_alone(region: Region, run: Run, medium: Path) -> None:
    result = run("bench", medium, "--host", "one", "--working-set", "1Gi", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["kind"] == "full"


def test_sizes_are_checked(region: Region, run: Run, medium: Path) -> None:
    for sizes in ("1000", "0", "big", ",", "1Mi,"):
        result = run("bench", medium, "--host", "one", "--sizes", sizes)
        assert result.exit_code == 2
        assert "--sizes" in result.stderr


def test_a_domain_that_the_region_does_not_have_is_refused(region: Region, run: Run, medium: Path) -> None:
    result = run("bench", medium, "--domain", 2)
    assert result.exit_code == 2
    assert "domain: expected 0 to 1, found 2" in result.stderr


def test_another_hosts_domain_is_refused(region: Region, run: Run, medium: Path) -> None:
    result = run("bench", medium, "--host", "two", "--json")
    assert json.loads(result.stdout)["error"]["kind"] == "owned"


def timed(name: str, seconds: list[float], failures: int = 0) -> Contestant:
    return Contestant(name, lambda _: True, None, None, seconds, seconds, seconds, len(seconds), failures)


def test_no_throughput_is_given_when_anything_failed() -> None:
    good = [timed(name, [1.0, 1.0]) for name in ("memcpy", "bare", "get")]
    assert figures("get", 1000, (good[0], good[1], good[2])).gb_per_second == pytest.approx(1e-6)
    for index in range(3):
        contest = [timed(one.name, [1.0, 1.0], int(i == index)) for i, one in enumerate(good)]
        row = figures("get", 1000, (contest[0], contest[1], contest[2]))
        assert row.failures == 1
        assert row.gb_per_second is row.to_memcpy is row.p50_us is None


def test_wrong_bytes_are_failures() -> None:
    contestant = Contestant("get", lambda i: i != 1, check=lambda i: i != 2)
    contestant.turn([0, 1, 2, 3])
    assert (contestant.verified, contestant.failures) == (2, 2)


def test_turns_rotate_over_pieces_and_order() -> None:
    seen: list[tuple[str, int]] = []
    contestants = [Contestant(n, lambda i, n=n: bool(seen.append((n, i))) or True) for n in "ab"]  # type: ignore[misc]
    paired(contestants, 5, 2, 2)
    assert seen == [("a", 0), ("a", 1), ("b", 2), ("b", 3), ("b", 4), ("b", 0), ("a", 1), ("a", 2)]


def test_ratio_and_quantile() -> None:
    assert ratio(timed("a", [1.0, 2.0, 9.0]), timed("b", [1.0, 1.0, 1.0])) == 2.0
    assert [quantile([3.0, 1.0, 2.0], q) for q in (0.0, 0.5, 0.999)] == [1.0, 2.0, 3.0]
