"""What the machine must have before anything is started: a clear sentence now beats a dead server in two minutes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from engine.environment import cache_root, environment_path

from demo.settings import MIB, Settings

SERVERS_MIB = 9 * 1024  # two vLLM servers with this model, measured with the pages they share counted once
INSTALL_MIB = 9 * 1024  # packages, their cache and the model, when nothing is installed yet
RUN_MIB = 512


class PreflightError(RuntimeError):
    """The machine lacks something; the message says what was needed, what was found and what to do."""


def check(settings: Settings) -> None:
    """Check memory and disk.

    Raises:
        PreflightError: one of them is missing.
    """
    needed = SERVERS_MIB + settings.region_mib
    found = memory_available_mib()
    if found < needed:
        raise PreflightError(
            f"memory: two vLLM servers and a region of {settings.region_mib} MiB need {needed / 1024:.1f} GiB, found "
            f"{found / 1024:.1f} GiB available; close other programs or set DEMO_REGION_MIB lower"
        )
    _check_disk(cache_root(), RUN_MIB if environment_path().exists() else INSTALL_MIB, "set HYMCACHE_CACHE elsewhere")
    _check_disk(Path("/dev/shm"), 900, "enlarge it: each server keeps its message rings there")
    if shutil.which("setpriv") is None:
        raise PreflightError("setpriv: expected on PATH, found none; install util-linux")


def memory_available_mib() -> int:
    """Memory that can be used without swapping, the limit of the control group included."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:"))
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            available = min(available, (int(limit) - int((group / "memory.current").read_text())) // MIB)
    except OSError:
        pass  # no limit that this process can see
    return available


def _check_disk(folder: Path, needed_mib: int, remedy: str) -> None:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    stat = os.statvfs(existing)
    found = stat.f_bavail * stat.f_frsize // MIB
    if found < needed_mib:
        raise PreflightError(f"{folder}: {needed_mib} MiB are needed, {found} MiB are free; {remedy}")
