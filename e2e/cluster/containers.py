"""The container engine: podman with storage, networks and locks of its own, or Docker when a server answers.

Podman's state lies under the cache and /run/hymcache-e2e, so nothing here can touch other containers of the machine,
and `clean` removes all of it. A Docker *client* without a server is common; only `docker info` tells.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from pathlib import Path

from cluster import traces
from cluster.command import CommandError, run, step
from cluster.settings import CACHE, CLUSTER, RUN

STORAGE = CACHE / "containers"
BEFORE = RUN / "before.json"
"""What the machine had before the engine was first called."""

CONTAINERS_CONF = """\
[containers]
# Without CAP_SYS_RESOURCE the engine cannot raise limits to its own defaults; these are within the usual hard limits.
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
pids_limit = 0
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{run}/libpod"
[network]
network_backend = "netavark"
network_config_dir = "{storage}/networks"
"""
STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{storage}/graph"
runroot = "{run}/storage"
"""


@functools.cache
def engine() -> str:
    """`docker` when its server answers, else `podman`."""
    if shutil.which("docker"):
        try:
            if subprocess.run(["docker", "info"], capture_output=True, timeout=20, check=False).returncode == 0:
                return "docker"
        except subprocess.TimeoutExpired:
            pass
    return "podman"


def environment() -> dict[str, str]:
    """What every call of the engine and of kind needs; writes podman's settings, and what was here before it."""
    if not BEFORE.exists():
        RUN.mkdir(mode=0o700, exist_ok=True)
        BEFORE.write_text(json.dumps(sorted(traces.seen() - {f"path {RUN}"})))
    if engine() == "docker":
        return {"KIND_EXPERIMENTAL_PROVIDER": "docker", "KIND_EXPERIMENTAL_DOCKER_NETWORK": CLUSTER}
    for folder in (RUN, STORAGE / "networks"):
        folder.mkdir(parents=True, exist_ok=True)
    paths = {"CONTAINERS_CONF": STORAGE / "containers.conf", "CONTAINERS_STORAGE_CONF": STORAGE / "storage.conf"}
    for path, text in zip(paths.values(), (CONTAINERS_CONF, STORAGE_CONF), strict=True):
        path.write_text(text.format(run=RUN, storage=STORAGE))
    return {
        "KIND_EXPERIMENTAL_PROVIDER": "podman",
        "KIND_EXPERIMENTAL_PODMAN_NETWORK": CLUSTER,
        **{name: str(path) for name, path in paths.items()},
    }


def call(*arguments: str | Path, stdin: Path | None = None, seconds: float = 600) -> str:
    """Run the engine with these arguments; standard output."""
    return run([engine(), *arguments], env=environment(), stdin=stdin, seconds=seconds)


def succeeds(*arguments: str) -> bool:
    """Whether the engine ends with status 0."""
    try:
        call(*arguments)
    except CommandError:
        return False
    return True


def has_image(reference: str) -> bool:
    """Whether the engine's storage holds an image."""
    return succeeds("image", "inspect", reference)


def import_once(tar: Path, reference: str, changes: tuple[str, ...] = ()) -> None:
    """Make an image of a root file system unless it is there; other tags of its repository are older ones and go."""
    if has_image(reference):
        return
    options = [word for change in changes for word in ("--change", change)]
    with step(f"importing {reference}"):
        call("import", *options, tar, reference)
    repository = reference.rpartition(":")[0]
    for other in call("images", "--format", "{{.Repository}}:{{.Tag}}").split():
        if other.startswith(f"{repository}:") and other != reference:
            call("rmi", other)


def make_network() -> None:
    """The cluster's own network, IPv4 only.

    kind would add IPv6 by itself; its DNS address then comes first in resolv.conf, where pods cannot reach it.
    """
    if not succeeds("network", "inspect", CLUSTER):
        call("network", "create", "--driver", "bridge", CLUSTER)


def remove_network() -> None:
    """Remove the cluster's network; one that is not there is fine."""
    if succeeds("network", "inspect", CLUSTER):
        call("network", "rm", CLUSTER)


def containers() -> list[str]:
    """Ids of all containers, running or not, that kind labelled with our cluster's name."""
    label = f"label=io.x-k8s.kind.cluster={CLUSTER}"
    return call("ps", "--all", "--quiet", "--filter", label).split()


def remove(ids: list[str]) -> None:
    """Kill containers and remove them with their volumes: a node has nothing that a graceful stop would save."""
    at_once = ["--time", "0"] if engine() == "podman" else []
    call("rm", "--force", *at_once, "--volumes", *ids, seconds=300)


def before() -> set[str]:
    """What the machine had before the engine was first called; what it has now, if that is not known."""
    return set(json.loads(BEFORE.read_text())) if BEFORE.exists() else traces.seen()


def give_back() -> None:
    """With no container left: end the engine's state on this machine but for its storage."""
    traces.restore(before())


def clean() -> None:
    """Forget podman's storage altogether: images, layers, networks."""
    environment()
    if engine() == "podman" and STORAGE.exists():
        call("system", "reset", "--force")
        shutil.rmtree(STORAGE, ignore_errors=True)
    give_back()
