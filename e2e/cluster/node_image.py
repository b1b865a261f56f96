"""The image of a kind node, from Debian packages, compiled programs and the files that kind's own module carries.

    python -m cluster.node_image --control-plane DIR --cluster DIR --containerd DIR --root TAR

writes `$OUT/node.tar`, a root file system: the build step behind `node_archive`, run by the artefact cache. It does
what kind's images/base/Dockerfile and its node builder do. Needs root: device nodes, chroot.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import component_images
from cluster.command import CommandError, run, step
from cluster.debian import NODE_PACKAGES, fast_folder, root_tar
from cluster.settings import HERE, KUBERNETES, PAUSE_TAG, ROOT

FAST_GIB = 4.0
CNI = ("host-local", "loopback", "portmap", "ptp")
UNWANTED_UNITS = (
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
    "lib/systemd/system/multi-user.target.wants/*",
    "etc/systemd/system/*.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/basic.target.wants/*",
)
"""Units that a container has no use for, or that break one (kind images/base/Dockerfile)."""

SOURCES = ("node", "node_image.py", "component_images.py", "archive.py")
"""Files of this folder that decide what the image is."""


@dataclass(frozen=True)
class Parts:
    """What the image is made of: folders of compiled programs, and a Debian root as a tar."""

    control_plane: Path
    cluster: Path
    containerd: Path
    root: Path

    def arguments(self) -> list[str]:
        """The same as a command line."""
        return [f"--{name.replace('_', '-')}={path}" for name, path in vars(self).items()]


def go_programs(*names: str) -> list[Path]:
    """Folders of compiled programs; compiled when they are missing."""
    done = subprocess.run(
        [sys.executable, "e2e/tools/build.py", *names], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise CommandError("the Go programs of the cluster could not be built; the compiler's output is above")
    return [Path(line) for line in done.stdout.split()]


def node_archive() -> Path:
    """`node.tar` in the artefact cache, built when it is missing. Everything it needs is built too."""
    control_plane, cluster, containerd = go_programs("control-plane", "cluster", "containerd")
    parts = Parts(control_plane, cluster, containerd, root_tar("node-root", NODE_PACKAGES))
    inputs = [f"--input={HERE / name}" for name in SOURCES]
    build = ["env", "PYTHONPATH=e2e", "python3", "-m", "cluster.node_image", *parts.arguments()]
    command = ["python3", "tools/artefact.py", "node-image", *inputs, "--", *build]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise CommandError("the node image could not be built; its output is above")
    return Path(done.stdout.strip()) / "node.tar"


def copy_tree(source: Path, root: Path) -> None:
    """Copy files over a root file system; scripts and folders become executable, all belongs to root."""
    for path in sorted(source.rglob("*")):
        target = root / path.relative_to(source)
        if path.is_dir():
            target.mkdir(mode=0o755, exist_ok=True)
            continue
        shutil.copyfile(path, target)
        with path.open("rb") as handle:
            target.chmod(0o755 if handle.read(2) == b"#!" else 0o644)


def install(root: Path, folder: str, programs: list[Path]) -> None:
    """Copy programs into a folder of the root file system."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    for program in programs:
        target = root / folder / program.name
        shutil.copyfile(program.resolve(), target)
        target.chmod(0o755)


def add_files(root: Path, parts: Parts) -> None:
    """kind's files, ours over them, the programs, the folders that kind expects."""
    copy_tree(parts.cluster / "node-files", root)
    copy_tree(HERE / "node", root)
    for folder in ("etc/kubernetes/manifests", "etc/cni/net.d", "etc/cdi", "kind/manifests"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    kubectl = parts.control_plane / "kubectl"
    install(root, "usr/bin", [parts.cluster / "kubelet", parts.cluster / "kubeadm", kubectl])
    install(root, "usr/local/bin", [parts.containerd / n for n in ("containerd", "containerd-shim-runc-v2", "ctr")])
    install(root, "opt/cni/bin", [root / "usr/lib/cni" / name for name in CNI])
    (root / "kind/version").write_text(KUBERNETES)


def configure_containerd(root: Path, parts: Parts) -> None:
    """Our pause image; scores that need no CAP_SYS_RESOURCE; no snapshotter that is not here; no resource limits."""
    path = root / "etc/containerd/config.toml"
    kept, skipping = [], False
    for line in path.read_text().splitlines():
        if line.startswith("["):
            skipping = line.startswith("[proxy_plugins")
        key = line.strip().partition(" = ")[0]
        if key == "sandbox_image":
            line = f'  sandbox_image = "{component_images.REGISTRY}/pause:{PAUSE_TAG}"'
        elif key == "restrict_oom_score_adj":
            line = "  restrict_oom_score_adj = true"
        if not skipping:
            kept.append(line)
    path.write_text("\n".join(kept) + "\n")
    spec = json.loads(run([parts.containerd / "ctr", "oci", "spec"]))
    spec["process"].pop("rlimits", None)
    (root / "etc/containerd/cri-base.json").write_text(json.dumps(spec))


def configure_units(root: Path) -> None:
    """Leave the services that a node in a container has: containerd, kubelet, the pod network, kind's own."""
    for pattern in UNWANTED_UNITS:
        for path in root.glob(pattern):
            path.unlink()
    with (root / "etc/systemd/journald.conf").open("a") as handle:
        handle.write("ReadKMsg=no\n")
    for verb, unit in (
        ("enable", "kubelet.service"),
        ("enable", "containerd.service"),
        ("enable", "undo-mount-hacks.service"),
        ("enable", "podnet.service"),
        ("mask", "systemd-binfmt.service"),
    ):
        run(["chroot", root, "systemctl", verb, unit])


CONTAINERD_CONFIG = """\
version = 3
root = "{root}"
state = "{state}/state"
disabled_plugins = ["io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images", "io.containerd.grpc.v1.cri",
  "io.containerd.nri.v1.nri"]
[grpc]
address = "{state}/grpc"
[ttrpc]
address = "{state}/ttrpc"
"""


@contextmanager
def containerd_on(store: Path, parts: Parts) -> Iterator[Path]:
    """A containerd of this machine that writes the node's store; yields its socket."""
    with tempfile.TemporaryDirectory(prefix="hymcache-containerd-") as name:
        state = Path(name)
        config, log = state / "config.toml", state / "log"
        config.write_text(CONTAINERD_CONFIG.format(root=store, state=state))
        with log.open("wb") as sink:
            child = subprocess.Popen([parts.containerd / "containerd", "-c", config], stdout=sink, stderr=sink)
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    run([parts.containerd / "ctr", "-a", state / "grpc", "version"])
                    break
                except CommandError:
                    if child.poll() is not None or time.monotonic() > deadline:
                        raise CommandError(f"containerd did not start:\n{log.read_text()[-2000:]}") from None
                    time.sleep(0.2)
            yield state / "grpc"
        finally:
            child.terminate()
            child.wait(30)


def preload(root: Path, parts: Parts) -> None:
    """Put the images that kubeadm starts into the node's store, pinned, so that the kubelet never collects them."""
    store = root / "var/lib/containerd"
    with tempfile.TemporaryDirectory(dir=fast_folder(1)) as folder, containerd_on(store, parts) as socket:
        for path in component_images.write_all(parts.control_plane, parts.cluster, root, Path(folder)):
            words: list[str | Path] = [
                "images",
                "import",
                "--no-unpack",
                "--label",
                "io.cri-containerd.pinned=pinned",
                path,
            ]
            run([parts.containerd / "ctr", "-a", socket, "-n", "k8s.io", *words])


def assemble(parts: Parts, out: Path) -> None:
    """Write `node.tar` into `out`."""
    with tempfile.TemporaryDirectory(prefix="hymcache-node-", dir=fast_folder(FAST_GIB)) as folder:
        root = Path(folder) / "root"
        root.mkdir()
        with step("unpacking the Debian root"):
            run(["tar", "-C", root, "-xf", parts.root])
        add_files(root, parts)
        configure_containerd(root, parts)
        configure_units(root)
        with step("writing the control plane's images into the node"):
            preload(root, parts)
        with step("packing the node"):
            run(["tar", "-C", root, "-cf", out / "node.tar", "."])


def main() -> int:
    """Assemble from the parts on the command line into `$OUT`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("control-plane", "cluster", "containerd", "root"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    try:
        assemble(Parts(**vars(options)), Path(os.environ["OUT"]))
    except CommandError as error:
        sys.stderr.write(f"node image: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
