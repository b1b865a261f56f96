"""What comes from Debian: packages of this machine, and the root file systems of nodes and of our images."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cluster.command import CommandError, run, step
from cluster.settings import DEBIAN, ROOT

HOST_PACKAGES = {
    "podman": "podman",
    "runc": "runc",
    "mmdebstrap": "mmdebstrap",
    "netavark": "netavark",
    "aardvark-dns": "aardvark-dns",
    "nft": "nftables",
    "iptables": "iptables",
}
"""Program -> package that has it. netavark and aardvark-dns lie outside PATH."""

OUTSIDE_PATH = Path("/usr/lib/podman")

NODE_PACKAGES = (
    "systemd,systemd-sysv,dbus,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod,libseccomp2,runc,bash,"
    "ca-certificates,curl,jq,procps,hostname,findutils,containernetworking-plugins"
)
WORKLOAD_PACKAGES = "python3,libnuma1,ca-certificates"

_STRIP = "rm -rf " + " ".join(
    f'"$1"/{path}'
    for path in ("var/cache/apt/archives/*.deb", "var/lib/apt/lists/*", "usr/share/man/*", "usr/share/doc/*",
                 "usr/share/locale/*", "var/log/*", "var/cache/ldconfig/*")
)  # fmt: skip


def install_host_packages() -> None:
    """Install what is missing on this machine, with apt, as root; nothing is touched when all is there."""
    missing = sorted(
        package
        for program, package in HOST_PACKAGES.items()
        if not shutil.which(program) and not (OUTSIDE_PATH / program).exists()
    )
    if not missing:
        return
    if os.geteuid() != 0:
        raise CommandError(f"packages missing: {' '.join(missing)}; run: sudo apt-get install {' '.join(missing)}")
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    with step(f"installing {' '.join(missing)}"):
        run(["apt-get", "update", "-q"], env=environment)
        run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing], env=environment)


def fast_folder(gib: float) -> Path:
    """A folder for many small files: tmpfs when it has room (dpkg on a slow disk takes minutes), else the disk."""
    shared = Path("/dev/shm")
    if shared.is_dir() and shutil.disk_usage(shared).free > gib * 2**30:
        return shared
    return Path(os.environ.get("TMPDIR", "/var/tmp"))


def root_tar(name: str, packages: str) -> Path:
    """A Debian root file system with these packages as a tar, from the artefact cache; built when it is missing."""
    command = [
        *("mmdebstrap", "--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io"),
        f"--include={packages}",
        f"--customize-hook={_STRIP}",
        DEBIAN,
    ]
    quoted = " ".join(f"'{word}'" for word in command)
    step_command = ["sh", "-c", f'exec {quoted} "$OUT/root.tar"']
    done = subprocess.run(
        ["python3", "tools/artefact.py", name, "--key", DEBIAN, "--", *step_command],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(fast_folder(1.5))},
        stdout=subprocess.PIPE,
        stderr=sys.stderr,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CommandError(f"the Debian root {name} could not be made; the output of mmdebstrap is above")
    return Path(done.stdout.strip()) / "root.tar"
