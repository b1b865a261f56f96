"""What the guest is made of, from Debian: QEMU with CXL devices, a kernel, a small userland. Nothing is installed.

    python3 tools/artefact.py devdax --input e2e/devdax/packages.py -- python3 e2e/devdax/packages.py

fills `$OUT` with `qemu`, `kernel` and `userland`, each a root with the files of its packages. Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SUITES = ("bookworm", "bookworm-backports")
"""Volatile type-3 devices came with QEMU 8.1, /dev/dax on CXL regions with kernels after 6.1: both are backports."""

QEMU = "qemu-system-x86"
KERNEL = re.compile(r"linux-image-6\.12\.\d+\+deb12-amd64")
USERLAND = ("busybox-static", "python3.11-minimal", "libpython3.11-stdlib")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Archive:
    """The archive as seen by a machine on which `status` (dpkg's) is installed; lists and packages lie in `folder`."""

    def __init__(self, folder: Path, status: Path | None) -> None:
        self._folder = folder
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        shutil.copy(status or "/dev/null", folder / "status")
        lines = [f"deb [signed-by={KEYRING}] {_mirror()} {suite} main\n" for suite in SUITES]
        (folder / "sources.list").write_text("".join(lines))
        self._run("apt-get", "update", "-qq")

    def closure(self, *packages: str, release: str) -> None:
        """Download packages and what they need beside what is installed."""
        options = ("-qq", "--yes", "--no-install-recommends", "--download-only", "-t", release)
        self._run("apt-get", *options, "install", *packages)

    def alone(self, package: str) -> None:
        """Download one package."""
        self._run("apt-get", "-qq", "download", package, cwd=self._folder / "cache/archives")

    def newest(self, name: re.Pattern[str]) -> str:
        """The package of the highest version among those whose whole name matches."""
        found = [line for line in self._run("apt-cache", "pkgnames", "linux-image").split() if name.fullmatch(line)]
        if not found:
            sys.exit(f"devdax: {' '.join(SUITES)} have no package {name.pattern}; run apt-get update, or name another")
        return max(found, key=lambda package: [int(number) for number in re.findall(r"\d+", package)])

    def extract(self, root: Path) -> None:
        """Put the files of everything downloaded into `root`."""
        root.mkdir()
        for package in sorted((self._folder / "cache/archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, root], check=True)

    def _run(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        settings = {
            "Dir::Etc::sourcelist": "sources.list",
            "Dir::State::lists": "lists",
            "Dir::State::status": "status",
            "Dir::Cache": "cache",
        }
        options = [f"-o{name}={self._folder / value}" for name, value in settings.items()]
        options += ["-oDir::Etc::sourceparts=/dev/null", "-oAPT::Sandbox::User=root"]
        return subprocess.run(
            [program, *options, *arguments], stdout=subprocess.PIPE, text=True, check=True, cwd=cwd
        ).stdout


def _mirror() -> str:
    """Where this machine gets Debian from."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Codename: bookworm"],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout.split()  # fmt: skip
    return next((site for site in listed if "security" not in site), "http://deb.debian.org/debian")


def main() -> None:
    """Download and extract."""
    out = Path(os.environ["OUT"])
    with tempfile.TemporaryDirectory() as work:
        qemu = Archive(Path(work) / "qemu", Path("/var/lib/dpkg/status"))
        qemu.closure(QEMU, release="bookworm-backports")
        qemu.extract(out / "qemu")
        kernel = Archive(Path(work) / "kernel", None)
        kernel.alone(kernel.newest(KERNEL))
        kernel.extract(out / "kernel")
        userland = Archive(Path(work) / "userland", None)
        userland.closure(*USERLAND, release="bookworm")
        userland.extract(out / "userland")


if __name__ == "__main__":
    main()
