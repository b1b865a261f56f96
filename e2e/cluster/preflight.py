"""What a machine must have before minutes are spent: root, disk, packages. Told all at once, in sentences.

python3 -m cluster.preflight        checks, installs missing Debian packages. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from cluster import debian
from cluster.command import CommandError
from cluster.settings import CACHE, DISK_GIB

WARM_GIB = 8
"""Free disk that a run needs once the artefacts are built: containers, images in the nodes, logs."""


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def disk_needed() -> int:
    """Free GiB that this run may use: much less when the node image is in the cache."""
    return WARM_GIB if any((CACHE / "artefacts").glob("node-image-*/node.tar")) else DISK_GIB


def check() -> None:
    """Install missing packages, or say what is wrong with this machine.

    Raises:
        CommandError: one line for each thing that is missing.
    """
    problems = []
    if os.geteuid() != 0:
        problems.append("not root: nodes are privileged containers, and their file systems have device nodes; use sudo")
    if not Path("/etc/debian_version").exists():
        problems.append("not Debian: the node's file system is made by mmdebstrap; use E2E_NODE_IMAGE on other systems")
    need, place = disk_needed(), _existing(CACHE)
    free = shutil.disk_usage(place).free / 2**30
    if free < need:
        problems.append(
            f"{place} has {free:.0f} GiB free, expected {need}; free some, or move the cache (HYMCACHE_CACHE)"
        )
    if problems:
        raise CommandError("this machine cannot run the test cluster:\n  " + "\n  ".join(problems))
    debian.install_host_packages()


def main() -> int:
    """Check this machine; exit status 1 and the reasons when it will not do."""
    try:
        check()
    except CommandError as error:
        sys.stderr.write(f"preflight: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
