"""What containers leave on a machine when they have gone, and how it is taken away: nothing that was there before.

podman and netavark keep firewall chains, a mount for network namespaces and folders in /run for as long as the machine
runs. `seen` names all of it; what it names now and did not name before the cluster is the cluster's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cluster.settings import CACHE, CLUSTER, RUN

NETNS = Path("/run/netns")
MODULES = Path("/lib/modules")
NETAVARK = Path("/run/containers/networks")
STATE = (NETAVARK / "aardvark-dns", NETAVARK, Path("/run/containers"), Path("/run/runc"), NETNS, MODULES)
"""Folders that a container engine makes beside its own; netavark has two files in its one."""
NETAVARK_FILES = ("ipam.db", "aardvark.lock")
SHARED = tuple(map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")))
"""Folders of all programs: names that begin as those of our tools count."""
OURS = tuple(f"hymcache-{name}" for name in ("e2e", "containerd", "node", "wheels", "image"))
PREFIXES = (*OURS, "podman", "libpod", "buildah", "containers-", "storage-", "mmdebstrap", "kind-", "netavark")
HOME = tuple(Path.home() / name for name in (".kube", ".config/helm", ".cache/helm", ".local/share/helm"))
HOOKS = (("nat", "POSTROUTING"), ("nat", "PREROUTING"), ("nat", "OUTPUT"), ("filter", "FORWARD"))


def seen() -> set[str]:
    """Everything on this machine that a cluster may have left, a word for its kind and its name."""
    return {*_processes(), *_mounts(), *_paths(), *_interfaces(), *(f"chain {t} {c}" for t, c in _chains())}


def restore(before: set[str]) -> None:
    """Take away what was not there before. What is in use, by another container of the machine for example, stays."""
    chains = _chains()
    if any(f"chain {t} {c}" not in before for t, c in chains) and not _rules("filter", "NETAVARK_FORWARD"):
        _remove_chains(chains)
    if f"mount {NETNS}" not in before and NETNS.is_dir() and not any(NETNS.iterdir()):
        while f"mount {NETNS}" in _mounts() and _ok("umount", str(NETNS)):
            pass
    shutil.rmtree(RUN, ignore_errors=True)
    if f"path {NETAVARK}" not in before and not list((NETAVARK / "aardvark-dns").glob("*")):
        for name in NETAVARK_FILES:
            (NETAVARK / name).unlink(missing_ok=True)
    for path in STATE:
        if f"path {path}" not in before:
            with contextlib.suppress(OSError):
                path.rmdir()


def _processes() -> Iterator[str]:
    """Processes of the container engine and in containers: by their arguments, or by what is mounted where they are."""
    own = Path("/proc/self/mountinfo").read_text()
    marks = [mark for mark in (f"{CACHE}/containers", str(RUN)) if mark not in own]
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) not in (os.getpid(), os.getppid()):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                mounted = (folder / "mountinfo").read_text()
                if str(RUN) in " ".join(words) or any(mark in mounted for mark in marks):
                    yield f"process {words[0]}"


def _mounts() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place = line.split()[4]
        if place == str(NETNS) or place.startswith((f"{NETNS}/", f"{CACHE}/containers", str(RUN))):
            yield f"mount {place}"


def _paths() -> Iterator[str]:
    for folder in SHARED:
        if folder.is_dir():
            yield from (f"path {path}" for path in folder.iterdir() if path.name.startswith(PREFIXES))
    yield from (f"path {path}" for path in (RUN, *STATE, *HOME) if path.exists())
    if NETNS.is_dir():
        yield from (f"path {path}" for path in NETNS.iterdir())


def _interfaces() -> Iterator[str]:
    yield from (f"interface {path.name}" for path in Path("/sys/class/net").iterdir())


def _chains() -> list[tuple[str, str]]:
    """Table and name of every chain of netavark."""
    done = subprocess.run(["nft", "--json", "list", "chains", "ip"], capture_output=True, text=True, check=False)
    if done.returncode:
        return []
    chains = [entry["chain"] for entry in json.loads(done.stdout)["nftables"] if "chain" in entry]
    return [(c["table"], c["name"]) for c in chains if "NETAVARK" in c["name"] or CLUSTER in c["name"]]


def _rules(table: str, chain: str) -> list[str]:
    listed = subprocess.run(["iptables", "-t", table, "-S", chain], capture_output=True, text=True, check=False)
    return [line for line in listed.stdout.splitlines() if line.startswith("-A")]


def _remove_chains(chains: list[tuple[str, str]]) -> None:
    """Remove netavark's chains and the jumps to them; a table that is empty then goes as well."""
    for table, hook in HOOKS:
        for rule in _rules(table, hook):
            if "NETAVARK" in rule:
                _ok("iptables", "-t", table, "-D", *shlex.split(rule)[1:])
    for table, chain in chains:
        _ok("iptables", "-t", table, "-F", chain)
    for table, chain in chains:
        _ok("iptables", "-t", table, "-X", chain)
    for table in dict.fromkeys(table for table, _ in chains):
        listed = subprocess.run(["iptables", "-t", table, "-S"], capture_output=True, text=True, check=False)
        if all(line.startswith("-P") and line.endswith("ACCEPT") for line in listed.stdout.splitlines()):
            _ok("nft", "delete", "table", "ip", table)


def _ok(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
