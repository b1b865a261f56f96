"""Writes an image as a docker-archive tar, with no container engine: one gzip layer, a config, a manifest.

The same input gives the same bytes. The layout is what `docker save` makes and `ctr images import` reads
(moby image/spec/v1.2.md).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

EPOCH = 1767225600  # 2026-01-01: files carry no build time
DATE = "2026-01-01T00:00:00Z"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """What to write: a reference, and files by their path inside the image."""

    reference: str
    files: dict[str, Path]
    entrypoint: list[str] = field(default_factory=list)


def _clean(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = EPOCH
    return entry


def _folder(name: str, mode: int = 0o755) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    return _clean(entry)


def layer(files: dict[str, Path]) -> bytes:
    """An uncompressed layer with the files, their folders, and the empty folders that programs expect."""
    folders = {"tmp", "etc", "run"}
    for name in files:
        folders |= {str(parent) for parent in Path(name.strip("/")).parents if str(parent) != "."}
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(folders):
            tar.addfile(_folder(name, 0o1777 if name == "tmp" else 0o755))
        for name, source in sorted(files.items()):
            tar.add(source.resolve(), name.strip("/"), recursive=False, filter=_clean)
    return raw.getvalue()


def write(image: Image, path: Path) -> None:
    """Write the archive of one image to `path`."""
    content = layer(image.files)
    packed = gzip.compress(content, compresslevel=1, mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": DATE,
            "config": {"Env": [PATH], "Entrypoint": image.entrypoint or None, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
            "history": [{"created": DATE}],
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    layer_name = f"{hashlib.sha256(packed).hexdigest()}/layer.tar"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [image.reference], "Layers": [layer_name]}]).encode()
    with tarfile.open(path, "w") as tar:
        for name, data in ((config_name, config), (layer_name, packed), ("manifest.json", manifest)):
            entry = _clean(tarfile.TarInfo(name))
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
