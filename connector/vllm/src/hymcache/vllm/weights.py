"""Which weights are these: an identity of a model's or an adapter's files that depends on nothing but their contents.

A mount path, a file date or a sample of the bytes would let two fine-tunes of one model share KV, which is wrong text
without an error. So every byte of the weights counts, once an engine start; the files are in the page cache then,
because the engine has just read them, and several are hashed at a time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

WEIGHT_SUFFIXES: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
MEANING_SUFFIXES: Final = (*WEIGHT_SUFFIXES, ".py")  # remote code changes what the weights mean
MEANING_FILES: Final = (
    "params.json",
    "hf_quant_config.json",
    "quant_config.json",
    "quantize_config.json",
    "adapter_config.json",
)
HASHED_AT_ONCE: Final = 4
CONTENT_NAME: Final = re.compile(r"[0-9a-f]{64}")  # a hub cache names a large file by the sha256 of its content


def _content_id(path: Path) -> str:
    blob = path.resolve()
    if path.is_symlink() and blob.parent.name == "blobs" and CONTENT_NAME.fullmatch(blob.name):
        return blob.name
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _meaningful(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and (path.suffix in MEANING_SUFFIXES or path.name in MEANING_FILES)
    )


def content_identity(folders: Iterable[Path]) -> str | None:
    """Hex sha256 over the weight and meaning files of `folders`, in order; None when one of them has no weights.

    Takes about as long as reading the files at 1-2 GB/s and file, `HASHED_AT_ONCE` files in parallel.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    with ThreadPoolExecutor(HASHED_AT_ONCE, "hymcache-weights") as pool:
        for folder in folders:
            files = _meaningful(folder)
            if not any(path.suffix in WEIGHT_SUFFIXES for path in files):
                return None
            for path, content in zip(files, pool.map(_content_id, files), strict=True):
                digest.update(f"{path.name} {content}\n".encode())
            digest.update(b"--\n")
    return digest.hexdigest()


class Adapters:
    """Identities of LoRA adapters, so that a reloaded or replaced adapter never meets the KV of the old one.

    vLLM's block hashes know an adapter by name and path only. The identity is taken at the first request that names
    the adapter; when its files change later, nobody can tell which weights the engine holds, and the adapter gets no
    shared KV from then on.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[tuple[object, ...], bytes | None]] = {}

    def identity(self, number: int, path: str, *, reloaded_in_place: bool = False) -> bytes | None:
        """32 bytes that stand for the adapter's contents, or None when its KV must not be shared."""
        folder = Path(path)
        try:
            files = _meaningful(folder)
            signature: tuple[object, ...] = tuple((f.name, (s := f.stat()).st_size, s.st_mtime_ns) for f in files)
        except OSError:
            return None
        known = self._known.get((number, path))
        if known is None:
            content = None if reloaded_in_place else content_identity([folder])
            known = (signature, None if content is None else bytes.fromhex(content))
            self._known[number, path] = known
        elif reloaded_in_place or known[0] != signature:
            self._known[number, path] = known = (signature, None)
        return known[1]
