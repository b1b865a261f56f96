"""Which weights are these: an identity of a model's or an adapter's files that depends on nothing but their contents.

A mount path, a file date or a sample of the bytes would let two fine-tunes of one model share KV, which is wrong text
without an error. So every byte of the weights counts, once an engine start; the files are in the page cache then,
because the engine has just read them, and several are hashed at a time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
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

_Signature = tuple[tuple[str, int, int], ...]


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

    vLLM's block hashes know an adapter by name and path only. Its files are hashed in a thread when the first request
    names it; until that is done its KV is not shared. When the files change later, nobody can tell which weights the
    engine holds, and the adapter gets no shared KV from then on.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "hymcache-adapters")
        self._known: dict[tuple[int, str], tuple[_Signature, Future[bytes | None]]] = {}
        self._given_up: set[tuple[int, str]] = set()

    def identity(self, number: int, path: str, *, reloaded_in_place: bool = False) -> bytes | None:
        """32 bytes that stand for the adapter's contents, or None while or because its KV must not be shared."""
        adapter = (number, path)
        if reloaded_in_place:
            self._given_up.add(adapter)
        if adapter in self._given_up:
            return None
        try:
            signature = _signature(Path(path))
        except OSError:
            self._given_up.add(adapter)
            return None
        if adapter not in self._known:
            self._known[adapter] = (signature, self._pool.submit(_adapter_identity, Path(path), signature))
        before, identity = self._known[adapter]
        if signature != before:
            self._given_up.add(adapter)
            return None
        return identity.result() if identity.done() else None

    def close(self) -> None:
        """Let a hash under way end."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _signature(folder: Path) -> _Signature:
    return tuple((file.name, (stat := file.stat()).st_size, stat.st_mtime_ns) for file in _meaningful(folder))


def _adapter_identity(folder: Path, signature: _Signature) -> bytes | None:
    try:
        content = content_identity([folder])
        unchanged = _signature(folder) == signature
    except OSError:
        return None
    return bytes.fromhex(content) if content is not None and unchanged else None
