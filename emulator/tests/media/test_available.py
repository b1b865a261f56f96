"""How much memory there is: the least of what the machine and every control group around the process leave."""

from __future__ import annotations

from pathlib import Path

import pytest
from hymcache.emulator.media.available import available_bytes, huge_pages_free

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable:    1048576 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("")
    return tmp_path


def group(machine: Path, path: str, version: int, limit: str, usage: int, cache: int = 0) -> None:
    folder = machine / "cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    limit_file, usage_file, key = (
        ("memory.max", "memory.current", "inactive_file")
        if version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    )
    (folder / limit_file).write_text(f"{limit}\n")
    (folder / usage_file).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{key} {cache}\n")


def found(machine: Path) -> int:
    return available_bytes(proc=machine / "proc", cgroups=machine / "cgroup")


def test_without_groups_it_is_what_the_machine_has(machine: Path) -> None:
    assert found(machine) == 1 << 30


def test_a_limit_of_version_2_counts_with_its_old_cache_as_free(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("0::/pod/container\n")
    group(machine, "pod/container", 2, str(100 * MIB), 60 * MIB, 10 * MIB)
    assert found(machine) == 50 * MIB


def test_the_narrowest_of_all_parents_counts(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("0::/pod/container\n")
    group(machine, "pod/container", 2, "max", 60 * MIB)
    group(machine, "pod", 2, str(70 * MIB), 60 * MIB)
    assert found(machine) == 10 * MIB


def test_a_limit_of_version_1_counts(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("5:cpu,cpuacct:/x\n4:memory:/pod\n1:name=systemd:/y\n")
    group(machine, "memory/pod", 1, str(100 * MIB), 90 * MIB, 5 * MIB)
    group(machine, "memory", 1, "9223372036854771712", 500 * MIB)
    assert found(machine) == 15 * MIB


def test_a_group_that_is_mounted_elsewhere_is_passed_over(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("0::/../../other\n4:memory:/gone\n")
    assert found(machine) == 1 << 30


def test_more_in_use_than_allowed_is_nothing(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("0::/pod\n")
    group(machine, "pod", 2, str(10 * MIB), 20 * MIB)
    assert found(machine) == 0


def test_huge_pages_that_somebody_reserved_are_not_free(tmp_path: Path) -> None:
    pool = tmp_path / "kernel/mm/hugepages/hugepages-2048kB"
    assert huge_pages_free(sys=tmp_path) == 0
    pool.mkdir(parents=True)
    (pool / "free_hugepages").write_text("7\n")
    (pool / "resv_hugepages").write_text("3\n")
    assert huge_pages_free(sys=tmp_path) == 4


def test_this_machine_has_some() -> None:
    assert 16 * MIB < available_bytes() < 1 << 50
