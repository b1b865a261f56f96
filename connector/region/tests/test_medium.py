"""What a region lies on, and where its users hold their locks."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hymcache.region import Region, RegionError

MIB = 1 << 20


def test_processes_that_name_a_lock_file_and_others_do_not_take_one_another_for_dead(
    medium: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_file = tmp_path / "lock"
    Region.format(medium, size=32 * MIB, chunk_bytes=64 << 10, lock_file=lock_file)
    with Region.attach(medium) as plain, Region.attach(medium, lock_file=lock_file) as named:
        monkeypatch.setenv("HYMCACHE_LOCK_FILE", str(lock_file))
        with Region.attach(medium) as by_environment:
            everyone = (plain, named, by_environment)
            assert [region.info().process_slot for region in everyone] == [0, 1, 2]
            assert [region.users(0) for region in everyone] == [3, 3, 3]
            with pytest.raises(RegionError) as caught:
                Region.format(medium, replaces=1)
            assert caught.value.kind == "busy"
    assert not lock_file.exists(), "a file has its own locks"


def test_bytes_that_were_faulted_in_count_once(medium: Path) -> None:
    size = Region.format(medium, size=32 * MIB, chunk_bytes=64 << 10, domains=3).bytes

    def populated(**options: int) -> int:
        with Region.attach(medium, **options) as region:  # type: ignore[arg-type]
            while region.info().populating:
                time.sleep(0.01)
            return region.info().populated_bytes

    by_reader = populated(read_only=True)
    assert 31 * MIB < by_reader <= size
    assert [populated(domain=domain) for domain in range(3)] == [by_reader] * 3, "a process's own chunks count twice"


@pytest.mark.parametrize("by_descriptor", [False, True])
def test_a_character_device_that_is_no_device_dax_is_refused(by_descriptor: bool) -> None:
    with Path("/dev/zero").open("r+b", buffering=0) as zero:
        target = zero.fileno() if by_descriptor else "/dev/zero"
        for call in (Region.attach, Region.format):
            with pytest.raises(RegionError, match="expected a device-dax node, found a character device") as caught:
                call(target)  # type: ignore[operator]
            assert caught.value.kind == "foreign"
        with pytest.raises(RegionError, match="region descriptor -1: cannot open"):
            Region.attach(-1)
        assert os.fstat(zero.fileno()).st_rdev, "the caller keeps its descriptor"
