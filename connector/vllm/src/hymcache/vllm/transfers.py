"""What travels from the scheduler to the worker, and how it becomes copies of whole objects or parts of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hymcache.vllm.compat import GPULoadStoreSpec, LoadStoreSpec


class ObjectsSpec(LoadStoreSpec):
    """The region's side of a job: the namespace and the keys, group by group, in block order.

    Keys and not addresses: nothing is reserved when a job is planned, so the copy looks the object up again and
    verifies what it finds. An object that went meanwhile is a failed load, never other bytes.
    """

    def __init__(self, namespace: bytes, keys: Sequence[bytes]) -> None:
        self.namespace = namespace
        self.keys = list(keys)

    def __repr__(self) -> str:
        return f"ObjectsSpec({len(self.keys)} objects)"


class PlanError(ValueError):
    """Blocks and keys of a job do not fit together: a defect here or in vLLM, never a state of the region."""


@dataclass(frozen=True)
class Copy:
    """One object and the engine's blocks it is copied from or to: its units `first .. first + len(blocks)`."""

    group: int
    key: bytes
    blocks: list[int]
    first: int


def plan(blocks: GPULoadStoreSpec, objects: ObjectsSpec, blocks_per_chunk: int) -> list[Copy]:
    """Split a job into copies, one per object.

    A group's blocks are logically contiguous from block index `block_indices[g]` of the request. A load may begin and
    end inside a chunk: the engine's own cache held the blocks before, the prompt ended after.

    Raises:
        PlanError: the number of keys is not the number of chunks that the blocks touch.
    """
    ids = [int(block) for block in blocks.block_ids]
    copies: list[Copy] = []
    at = 0
    for group, (size, index) in enumerate(zip(blocks.group_sizes, blocks.block_indices, strict=True)):
        end = at + int(size)
        first = int(index) % blocks_per_chunk
        while at < end:
            take = min(blocks_per_chunk - first, end - at)
            if len(copies) == len(objects.keys):
                raise PlanError(f"a job of {len(ids)} blocks touches more chunks than its {len(objects.keys)} keys")
            copies.append(Copy(group, objects.keys[len(copies)], ids[at : at + take], first))
            at += take
            first = 0
    if len(copies) != len(objects.keys):
        raise PlanError(f"a job of {len(ids)} blocks touches {len(copies)} chunks but has {len(objects.keys)} keys")
    return copies
