"""How many bytes this process may still allocate: the machine's share and the limits of its control groups."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def available_bytes(*, proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """The least of MemAvailable and what every enclosing memory control group (v1 or v2) leaves.

    A group's file cache that has not been used lately counts as free: the kernel reclaims it first.
    """
    groups = _groups((proc / "self/cgroup").read_text(), cgroups)
    return max(0, min([_machine(proc), *(left for group in groups if (left := _left(group)) is not None)]))


def huge_pages_free(*, sys: Path = Path("/sys")) -> int:
    """2 MiB pages in the kernel's pool that nobody uses or has reserved; 0 where there is no pool."""
    pool = sys / "kernel/mm/hugepages/hugepages-2048kB"
    try:
        return int((pool / "free_hugepages").read_text()) - int((pool / "resv_hugepages").read_text())
    except FileNotFoundError:
        return 0


def _machine(proc: Path) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{proc / 'meminfo'}: expected a MemAvailable line, found none; a kernel of 3.14 or later has it")


def _groups(membership: str, cgroups: Path) -> list[Path]:
    """The folders of this process's memory group and its parents, as far as they are mounted here."""
    folders: list[Path] = []
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root = cgroups
        elif "memory" in controllers.split(","):
            root = cgroups / "memory"
        else:
            continue
        inner = root / path.lstrip("/")
        folders += [folder for folder in (inner, *inner.parents) if folder == root or root in folder.parents]
    return folders


def _left(group: Path) -> int | None:
    """Bytes that one group leaves; None where it sets no limit or is not visible."""
    for limit_file, usage_file, cache_key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = (group / limit_file).read_text().strip()
            usage = int((group / usage_file).read_text())
            stat = (group / "memory.stat").read_text()
        except OSError:
            continue
        if limit == "max":
            return None
        cache = next((int(line.split()[1]) for line in stat.splitlines() if line.startswith(f"{cache_key} ")), 0)
        return int(limit) - usage + cache
    return None
