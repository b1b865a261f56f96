#!/usr/bin/env python3
"""The Go programs of the test clusters: built once from their modules, kept in the artefact cache.

    build.py control-plane          etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl
    build.py helm                   helm
    build.py cluster                kubelet, kubeadm, kube-proxy, coredns, pause, kind and its node files
    build.py containerd             containerd, its runc shim, ctr
    build.py --all

Prints the folder of each set, in the order asked for. Nothing is fetched but modules, through the Go module proxy,
each verified against the committed go.sum. Go's own caches live beside the artefacts while something is left to build
and are dropped after that: they take 6 GB, the programs 1 GB. Standard library only.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent.parent
GO_MINIMUM = (1, 26, 6)
KUBERNETES = "v1.37.2"
CONTAINERD = "v2.4.2"


def _version_flags() -> str:
    """Linker flags that give Kubernetes' programs their version; without them they call themselves v0.0.0."""
    major, minor = KUBERNETES.removeprefix("v").split(".")[:2]
    fields = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{key}={value}" for package in packages for key, value in fields.items())


@dataclass(frozen=True)
class Toolset:
    """Programs that one `go build` makes: the module's folder under e2e/tools, its packages, the compiler's flags."""

    module: str
    packages: tuple[str, ...]
    ldflags: str = ""
    tags: str = ""
    copies: tuple[str, ...] = ()


TOOLSETS = {
    "control-plane": Toolset(
        "kubernetes",
        (
            "./etcd",
            *(
                f"k8s.io/kubernetes/cmd/{name}"
                for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
            ),
        ),
        ldflags=_version_flags(),
    ),
    "helm": Toolset("kubernetes", ("helm.sh/helm/v4/cmd/helm",), ldflags=_version_flags()),
    "cluster": Toolset(
        "kubernetes",
        (
            "./coredns",
            "./pause",
            "sigs.k8s.io/kind",
            *(f"k8s.io/kubernetes/cmd/{name}" for name in ("kubelet", "kubeadm", "kube-proxy")),
        ),
        ldflags=_version_flags(),
        copies=("sigs.k8s.io/kind=images/base/files=node-files",),
    ),
    "containerd": Toolset(
        "containerd",
        tuple(
            f"github.com/containerd/containerd/v2/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        ),
        ldflags=f"-X github.com/containerd/containerd/v2/version.Version={CONTAINERD}",
        tags="no_aufs no_zfs no_btrfs no_devmapper",
    ),
}


def cache_root() -> Path:
    """The folder that outlives checkouts; `HYMCACHE_CACHE` overrides the default."""
    return Path(os.environ.get("HYMCACHE_CACHE") or Path.home() / ".cache" / "hymcache").expanduser()


def go_version() -> str:
    """What `go version` says; leaves with a sentence when Go is missing or too old for these modules."""
    need = ".".join(map(str, GO_MINIMUM))
    if not shutil.which("go"):
        sys.exit(f"build: no `go` on PATH; install Go {need} or newer: the test clusters are compiled from source")
    text = subprocess.run(["go", "env", "GOVERSION"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    if tuple(map(int, re.findall(r"\d+", text)[:3])) < GO_MINIMUM:
        sys.exit(f"build: found {text}, need Go {need} or newer; put it first on PATH")
    return text


def environment() -> dict[str, str]:
    """Go's settings: own caches, no toolchain download, no cgo, the committed go.sum as it is."""
    return {
        **os.environ,
        "GOCACHE": str(cache_root() / "go-build"),
        "GOMODCACHE": str(cache_root() / "go-mod"),
        "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }


def artefact(name: str, version: str, *, only_if_built: bool = False) -> Path | None:
    """The folder of one toolset, built when it is missing; None when it is missing and may not be built."""
    toolset = TOOLSETS[name]
    folder = f"e2e/tools/{toolset.module}"
    compile_step = ["python3", "e2e/tools/compile.py", folder, f"--ldflags=-s -w {toolset.ldflags}"]
    compile_step += [f"--tags={toolset.tags}", *(f"--copy={copy}" for copy in toolset.copies), *toolset.packages]
    command = ["python3", "tools/artefact.py", f"go-{name}", "--input", folder, "--key", version]
    command += ["--path-only"] if only_if_built else []
    done = subprocess.run(
        [*command, "--", *compile_step], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode and not only_if_built:
        sys.exit(done.returncode)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def build(names: list[str]) -> list[Path]:
    """Folders of the named toolsets. One compile at a time on a machine, whoever asks."""
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    version = go_version()
    with (root / "go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folders = [artefact(name, version) for name in names]
        rest = [name for name in TOOLSETS if name not in names]
        if any((root / cache).exists() for cache in ("go-build", "go-mod")) and all(
            artefact(name, version, only_if_built=True) for name in rest
        ):
            for cache in ("go-build", "go-mod"):
                shutil.rmtree(root / cache, ignore_errors=True)
    return [folder for folder in folders if folder]


def main() -> None:
    """Build what the command line names and print the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*TOOLSETS, []], metavar="SET", help=", ".join(TOOLSETS))
    parser.add_argument("--all", action="store_true", help="every set")
    parser.add_argument("--path-only", action="store_true", help="build nothing; exit 1 when a set is not built")
    options = parser.parse_args()
    names = list(TOOLSETS) if options.all else options.names
    if not names:
        parser.error("name a set, or --all")
    if options.path_only:
        version = go_version()
        folders = [artefact(name, version, only_if_built=True) for name in names]
        if not all(folders):
            sys.exit(1)
    else:
        folders = [*build(names)]
    for folder in folders:
        print(folder)


if __name__ == "__main__":
    main()
