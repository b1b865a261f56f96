"""The images that kubeadm starts, under the names it gives them: control plane, kube-proxy, etcd, CoreDNS, pause."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.archive import Image, write
from cluster.command import run
from cluster.settings import COREDNS_TAG, ETCD_TAG, KUBERNETES, PAUSE_TAG

REGISTRY = "registry.k8s.io"
PROXY_PROGRAMS = ("/usr/sbin/nft", "/usr/sbin/conntrack", "/usr/bin/kmod")
"""What kube-proxy calls in nftables mode."""


def closure(root: Path, programs: tuple[str, ...]) -> dict[str, Path]:
    """Programs of a root file system and the shared libraries they load: path inside -> file."""
    found: dict[str, Path] = {}
    for program in programs:
        listed = run(["chroot", root, "/usr/bin/ldd", program])
        for name in (program, *re.findall(r"(/[^\s()]+) \(0x", listed)):
            inside = Path(run(["chroot", root, "/usr/bin/readlink", "-f", name]).strip())
            found[name] = root / str(inside).lstrip("/")
    return found


def images(control_plane: Path, cluster: Path, root: Path) -> list[Image]:
    """All of them, from the compiled programs and a node's root file system."""
    made = [
        Image(f"{REGISTRY}/{name}:{KUBERNETES}", {f"/usr/local/bin/{name}": control_plane / name})
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ]
    proxy = {"/usr/local/bin/kube-proxy": cluster / "kube-proxy", **closure(root, PROXY_PROGRAMS)}
    return [
        *made,
        Image(f"{REGISTRY}/kube-proxy:{KUBERNETES}", proxy),
        Image(f"{REGISTRY}/etcd:{ETCD_TAG}", {"/usr/local/bin/etcd": control_plane / "etcd"}),
        Image(f"{REGISTRY}/coredns/coredns:{COREDNS_TAG}", {"/coredns": cluster / "coredns"}, ["/coredns"]),
        Image(f"{REGISTRY}/pause:{PAUSE_TAG}", {"/pause": cluster / "pause"}, ["/pause"]),
    ]


def write_all(control_plane: Path, cluster: Path, root: Path, folder: Path) -> list[Path]:
    """Write every archive into `folder`; their paths."""
    paths = []
    for image in images(control_plane, cluster, root):
        path = folder / (image.reference.rpartition("/")[2].partition(":")[0] + ".tar")
        write(image, path)
        paths.append(path)
    return paths
