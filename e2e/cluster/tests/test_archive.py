"""Image archives: the layout that container runtimes read, the same bytes for the same input."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from cluster.archive import Image, write


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.write_bytes(b"#!/bin/sh\n")
    path.chmod(0o755)
    return path


def unpack(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]


def test_manifest_names_config_and_layer_by_their_digests(tmp_path: Path, program: Path) -> None:
    write(Image("example.com/a/b:1", {"/usr/bin/b": program}, ["/usr/bin/b"]), tmp_path / "image.tar")
    files = unpack(tmp_path / "image.tar")
    (entry,) = json.loads(files["manifest.json"])
    assert entry["RepoTags"] == ["example.com/a/b:1"]
    config = files[entry["Config"]]
    assert entry["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
    (layer,) = entry["Layers"]
    content = gzip.decompress(files[layer])
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    assert json.loads(config)["config"]["Entrypoint"] == ["/usr/bin/b"]


def test_layer_has_the_file_its_folders_and_a_sticky_tmp(tmp_path: Path, program: Path) -> None:
    write(Image("a:1", {"/usr/bin/b": program}), tmp_path / "image.tar")
    files = unpack(tmp_path / "image.tar")
    layer = gzip.decompress(files[json.loads(files["manifest.json"])[0]["Layers"][0]])
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        modes = {m.name: m.mode for m in tar}
    assert modes == {"etc": 0o755, "run": 0o755, "tmp": 0o1777, "usr": 0o755, "usr/bin": 0o755, "usr/bin/b": 0o755}


def test_same_input_gives_the_same_bytes_whenever_it_is_built(tmp_path: Path, program: Path) -> None:
    image = Image("a:1", {"/b": program})
    write(image, tmp_path / "one.tar")
    program.touch()
    write(image, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_link_is_stored_as_the_file_it_points_to(tmp_path: Path, program: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(program)
    write(Image("a:1", {"/b": link}), tmp_path / "image.tar")
    files = unpack(tmp_path / "image.tar")
    layer = gzip.decompress(files[json.loads(files["manifest.json"])[0]["Layers"][0]])
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert tar.extractfile("b").read() == b"#!/bin/sh\n"  # type: ignore[union-attr]
