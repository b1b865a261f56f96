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
    if not containers.has_image(reference):
        with step("importing the base image"):
            containers.call("import", tar, reference)
    return reference


def stage(distribution: str, context: Path) -> None:
    """Install a distribution and its locked requirements below `context`: `site-packages` and `bin`."""
    virtual = context / "venv"
    python = shutil.which(f"python{PYTHON}", path="/usr/bin:/usr/local/bin") or PYTHON
    uv = run(["tools/bootstrap.sh"], cwd=ROOT).strip()
    words = ["sync", "--frozen", "--no-dev", "--no-editable", "--compile-bytecode", "--package", distribution]
    environment = {"UV_PROJECT_ENVIRONMENT": str(virtual), "UV_LINK_MODE": "copy"}
    run([uv, *words, "--python", python], cwd=ROOT, env=environment, seconds=900)
    (virtual / "lib" / f"python{PYTHON}" / "site-packages").rename(context / "site-packages")
    scripts = context / "bin"
    scripts.mkdir()
    for script in sorted((virtual / "bin").glob("hymcache*")):
        first, _, rest = script.read_text().partition("\n")
        if first.startswith("#!"):
            (scripts / script.name).write_text(f"#!/usr/bin/env python3\n{rest}")
            (scripts / script.name).chmod(0o755)
    shutil.rmtree(virtual)


def build(base: str, out: Path) -> None:
    """Build every image and save them together as `images.tar` in `out`."""
    for image in IMAGES:
        with step(f"building {image.reference}"), tempfile.TemporaryDirectory(prefix="hymcache-image-") as folder:
            context = Path(folder)
            stage(image.distribution, context)
            words = ["--target", image.target, "--build-arg", f"BASE={base}", "--tag", image.reference]
            containers.call("build", "--network=none", *words, "--file", CONTAINERFILE, context)
    several = ["--multi-image-archive"] if containers.engine() == "podman" else []
    containers.call("save", *several, "--output", out / "images.tar", *(image.reference for image in IMAGES))
    containers.call("rmi", *(image.reference for image in IMAGES))


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
