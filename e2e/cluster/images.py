"""Our own images, from this repository alone: packages resolved by uv from the lock, copied over a Debian base.

Each is a target of charts/images/Containerfile. One archive holds all of them, so that their base is stored and loaded
once; it is an artefact, keyed by the lock files and the sources, so a second run only loads it.

    python -m cluster.images --base REFERENCE          writes $OUT/images.tar: the build step behind `archive`
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from cluster import containers
from cluster.command import CommandError, run, step
from cluster.debian import WORKLOAD_PACKAGES, root_tar
from cluster.settings import CLUSTER, HERE, ROOT

CONTAINERFILE = ROOT / "charts" / "images" / "Containerfile"
PYTHON = "3.11"
BASE = os.environ.get("E2E_BASE_IMAGE", "")
"""Reference of a base image to use instead of the Debian one that is made here."""


@dataclass(frozen=True)
class Image:
    """One of our images: a stage of the Containerfile, and the distribution that it gets with all it needs."""

    target: str
    distribution: str

    @property
    def reference(self) -> str:
        """The name that manifests use."""
        return f"docker.io/hymcache/{self.target}:{version()}"


IMAGES = (
    Image("operator", "hymcache-operator"),
    Image("plugin", "hymcache-dra"),
    Image("appliance", "hymcache-emulator"),
    Image("engine", "hymcache-vllm"),
)
SOURCES = (
    *("crds", "operator", "dra-plugin", "emulator", "connector"),
    *("pyproject.toml", "uv.lock", "Cargo.toml", "Cargo.lock"),
)
"""What decides the images' contents, relative to the root."""


def version() -> str:
    """The chart's appVersion: images and chart are released together."""
    for line in (ROOT / "charts/hymcache/Chart.yaml").read_text().splitlines():
        key, _, value = line.partition(": ")
        if key == "appVersion":
            return value.strip().strip('"')
    raise CommandError("charts/hymcache/Chart.yaml has no appVersion")


def sources_hash() -> str:
    """Hash of the source files that git tracks or would track; tests do not go into an image."""
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *SOURCES], cwd=ROOT)
    digest = hashlib.sha256()
    for name in sorted(set(listed.split("\0")) - {""}):
        path = ROOT / name
        if "/tests/" in name or not path.is_file():
            continue
        digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def base_image() -> str:
    """Reference of the base in the engine's storage; made from Debian packages when it is missing."""
    if BASE:
        return BASE
    tar = root_tar("workload-root", WORKLOAD_PACKAGES)
    reference = f"localhost/{CLUSTER}-base:{tar.parent.name.rpartition('-')[2]}"
    containers.import_once(tar, reference)
    return reference


def uv(*words: str | Path) -> str:
    """Run uv in the workspace; standard output."""
    return run([run(["tools/bootstrap.sh"], cwd=ROOT).strip(), *words], cwd=ROOT, seconds=900)


def requirements(distribution: str) -> tuple[list[str], list[str]]:
    """What the lock says a distribution needs: our own distributions' names, itself included, and pinned others."""
    lines = uv("export", "--frozen", "--no-dev", "--no-hashes", "--no-annotate", "--package", distribution).splitlines()
    ours, others = [], []
    for line in lines:
        path = line.removeprefix("-e ").partition(" ")[0]
        if path.startswith("./"):
            project = tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"]
            ours.append(str(project["name"]))
        elif line and not line.startswith("#"):
            others.append(line)
    return ours, others


def stage(distribution: str, wheels: Path, context: Path) -> None:
    """Install a distribution and its locked requirements below `context`: `site-packages` and `bin`."""
    ours, others = requirements(distribution)
    listed = context / "requirements.txt"
    listed.write_text("\n".join(others) + "\n")
    site = context / "site-packages"
    python = shutil.which(f"python{PYTHON}", path="/usr/bin:/usr/local/bin") or PYTHON
    into: list[str | Path] = [
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--compile-bytecode",
        "--python",
        python,
        "--target",
        site,
    ]
    uv(*into, "--requirements", listed)
    uv(*into, *(next(wheels.glob(f"{name.replace('-', '_')}-*.whl")) for name in ours))
    scripts = context / "bin"
    scripts.mkdir()
    for script in sorted((site / "bin").glob("hymcache*")):
        _, _, rest = script.read_text().partition("\n")
        (scripts / script.name).write_text(f"#!/usr/bin/env python3\n{rest}")
        (scripts / script.name).chmod(0o755)


def build(base: str, out: Path) -> None:
    """Build every image and save them together as `images.tar` in `out`."""
    with tempfile.TemporaryDirectory(prefix="hymcache-wheels-") as folder:
        wheels = Path(folder)
        with step("building our distributions"):
            uv("build", "--quiet", "--all-packages", "--wheel", "--out-dir", wheels)
        for image in IMAGES:
            with step(f"building {image.reference}"):
                build_one(image, base, wheels)
    several = ["--multi-image-archive"] if containers.engine() == "podman" else []
    containers.call("save", *several, "--output", out / "images.tar", *(image.reference for image in IMAGES))
    containers.call("rmi", *(image.reference for image in IMAGES))


def build_one(image: Image, base: str, wheels: Path) -> None:
    """Build one image into the engine's storage."""
    with tempfile.TemporaryDirectory(prefix="hymcache-image-") as folder:
        context = Path(folder)
        stage(image.distribution, wheels, context)
        words = ["--target", image.target, "--build-arg", f"BASE={base}", "--tag", image.reference]
        containers.call("build", "--network=none", *words, "--file", CONTAINERFILE, context)


def archive() -> Path:
    """The docker-archive with all our images in the artefact cache; built when it is missing."""
    base = base_image()
    command = ["python3", "tools/artefact.py", "images", "--key", f"{version()} {sources_hash()}"]
    command += [f"--input={CONTAINERFILE}", f"--input={HERE / 'images.py'}", "--"]
    command += ["env", "PYTHONPATH=e2e", "python3", "-m", "cluster.images", "--base", base]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise CommandError("the images could not be built; the output is above")
    return Path(done.stdout.strip()) / "images.tar"


def main() -> int:
    """Build the images into `$OUT`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True)
    options = parser.parse_args()
    try:
        build(options.base, Path(os.environ["OUT"]))
    except CommandError as error:
        sys.stderr.write(f"images: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
