"""Who pays for a region's pages: the appliance, never the pod that uses them (a limit below the region's size)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hymcache.emulator.media.memfd import Allocate

MIB = 1 << 20
REGION_MIB = 320
LIMIT_MIB = 64
CGROUPS = Path("/sys/fs/cgroup")

# joins the group first, so that all it ever touches counts; then writes to every page of the region
CLIENT = """
import mmap, os, sys
group, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
open(group, "w").write(str(os.getpid()))
from hymcache.region import handover
descriptor, reply = handover.receive(path, region="r-1")
assert reply["bytes"] == size, reply
with mmap.mmap(descriptor, size) as mapping:
    for offset in range(0, size, 4096):
        mapping[offset] = 1 + offset // 4096 % 255
    assert all(mapping[offset] for offset in range(0, size, 4096))
print("touched", size)
"""


class Group:
    """A memory control group of version 1 or 2 with a limit."""

    def __init__(self) -> None:
        name = f"hymcache-test-{os.getpid()}"
        self.version = 1 if (CGROUPS / "memory/memory.limit_in_bytes").exists() else 2
        self.folder = CGROUPS / "memory" / name if self.version == 1 else CGROUPS / name
        self.folder.mkdir()
        try:
            self._write("memory.limit_in_bytes" if self.version == 1 else "memory.max", str(LIMIT_MIB * MIB))
        except OSError:
            self.folder.rmdir()
            raise

    def _write(self, file: str, value: str) -> None:
        (self.folder / file).write_text(value)

    @property
    def peak_mib(self) -> float:
        file = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        return int((self.folder / file).read_text()) / MIB

    def close(self) -> None:
        self.folder.rmdir()


@pytest.fixture
def group() -> Iterator[Group]:
    try:
        made = Group()
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    yield made
    made.close()


def touch_everything(served: Any, group: Group) -> subprocess.CompletedProcess[str]:
    size = REGION_MIB * MIB
    chunk = served.compose("r-1", REGION_MIB)
    assert chunk.status_code == 201, chunk.text
    served.connect("r-1", chunk.headers["Location"], ["node-a"])
    arguments = [str(group.folder / "cgroup.procs"), str(served.socket("node-a")), str(size)]
    return subprocess.run(
        [sys.executable, "-c", CLIENT, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_pod_with_a_small_limit_uses_the_whole_region_and_is_charged_nothing_for_it(serve: Any, group: Group) -> None:
    served = serve(capacity_bytes=512 * MIB, allocate=Allocate.EAGER)
    client = touch_everything(served, group)
    assert client.returncode == 0, client.stderr
    assert client.stdout == f"touched {REGION_MIB * MIB}\n"
    assert group.peak_mib < LIMIT_MIB / 2, "the interpreter's own memory and the page tables, nothing else"
    assert served.get("/admin/v1/regions")["regions"][0]["resident_bytes"] == REGION_MIB * MIB


def test_without_allocation_by_the_appliance_the_same_pod_is_killed(serve: Any, group: Group) -> None:
    served = serve(capacity_bytes=512 * MIB, allocate=Allocate.SPARSE)
    client = touch_everything(served, group)
    assert client.returncode == -signal.SIGKILL
