import os
from collections.abc import Iterable, Sequence
from typing import Any, Self, TypeAlias, final

from typing_extensions import Buffer

__version__: str

_Medium: TypeAlias = str | os.PathLike[str] | int
_Keys: TypeAlias = Sequence[Buffer] | Buffer
_Buffers: TypeAlias = Buffer | list[Buffer] | tuple[Buffer, ...] | Blocks
_Integers: TypeAlias = Sequence[int] | Buffer

class RegionError(Exception):
    kind: str

def format(
    target: _Medium,
    *,
    size: int | None = None,
    chunk_bytes: int = ...,
    domains: int = 1,
    coherence: str = "software",
    uuid: str | None = None,
    objects: int | None = None,
    replaces: int | None = None,
    epoch: int | None = None,
    lock_file: str | os.PathLike[str] | None = None,
) -> dict[str, Any]: ...

class Region:
    def __new__(
        cls,
        target: _Medium,
        *,
        domain: int = 0,
        read_only: bool = False,
        uuid: str | None = None,
        epoch: int | None = None,
        host: str | None = None,
        lock_file: str | os.PathLike[str] | None = None,
        populate: bool = True,
    ) -> Self: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def describe(self) -> dict[str, Any]: ...
    def stats(self) -> dict[str, Any]: ...
    def namespace(self, fingerprint: bytes) -> Namespace: ...
    @staticmethod
    def pages(tensors: Iterable[tuple[int, int, int] | tuple[int, int, int, int]]) -> Pages: ...
    def sweep(self) -> int: ...
    def write_many(
        self, refs: Buffer, pages: Pages, ids: _Integers, first: _Integers, count: _Integers, *, section: int = 0
    ) -> bytes: ...
    def read_many(
        self, refs: Buffer, pages: Pages, ids: _Integers, first: _Integers, count: _Integers, *, section: int = 0
    ) -> bytes: ...
    def commit(self, refs: Buffer) -> bytes: ...
    def abort(self, refs: Buffer) -> None: ...
    def quarantine(self, refs: Buffer) -> None: ...

@final
class Namespace:
    def lookup(self, keys: _Keys, width: int | None = None) -> int: ...
    def contains(self, keys: _Keys, width: int | None = None) -> bytes: ...
    def put(self, key: Buffer, buffers: _Buffers, *, units: int | None = None) -> bool: ...
    def get_into(self, key: Buffer, buffers: _Buffers, *, first: int = 0, count: int | None = None) -> int: ...
    def evict(self, keys: _Keys, width: int | None = None) -> int: ...
    def find(self, keys: _Keys, width: int | None = None) -> tuple[int, bytes]: ...
    def reserve(
        self, keys: _Keys, units: int, *, unit_bytes: int, sections: int = 1, width: int | None = None
    ) -> tuple[bytes, bytes]: ...

@final
class Pages:
    @property
    def block_bytes(self) -> int: ...
    def blocks(self, ids: _Integers) -> Blocks: ...

@final
class Blocks:
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
