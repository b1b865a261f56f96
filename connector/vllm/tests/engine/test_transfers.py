"""A job's blocks become copies of objects or of parts of one, and nothing is guessed when they do not fit."""

from __future__ import annotations

import pytest
from hymcache.vllm.compat import GPULoadStoreSpec
from hymcache.vllm.transfers import Copy, ObjectsSpec, PlanError, plan
from hypothesis import given
from hypothesis import strategies as st


def test_a_load_that_begins_and_ends_inside_chunks():
    blocks = GPULoadStoreSpec([10, 11, 12, 13, 14, 15], group_sizes=[6], block_indices=[3])
    assert plan(blocks, ObjectsSpec(b"", [b"a", b"b", b"c"]), 4) == [
        Copy(0, b"a", [10], 3),
        Copy(0, b"b", [11, 12, 13, 14], 0),
        Copy(0, b"c", [15], 0),
    ]


def test_groups_follow_one_another():
    blocks = GPULoadStoreSpec([1, 2, 7], group_sizes=[2, 1], block_indices=[0, 1])
    assert plan(blocks, ObjectsSpec(b"", [b"a", b"b"]), 2) == [Copy(0, b"a", [1, 2], 0), Copy(1, b"b", [7], 1)]


@pytest.mark.parametrize("keys", [[b"a"], [b"a", b"b", b"c"]])
def test_keys_that_do_not_fit_the_blocks_are_a_defect(keys):
    with pytest.raises(PlanError, match="keys"):
        plan(GPULoadStoreSpec([1, 2, 3], group_sizes=[3], block_indices=[0]), ObjectsSpec(b"", keys), 2)


@given(st.integers(1, 9), st.integers(0, 40), st.integers(1, 60))
def test_every_block_is_copied_once_to_its_own_place(chunk, first, count):
    touched = (first + count - 1) // chunk - first // chunk + 1
    blocks = GPULoadStoreSpec(list(range(100, 100 + count)), group_sizes=[count], block_indices=[first])
    keys = [bytes([n]) for n in range(touched)]
    copies = plan(blocks, ObjectsSpec(b"", keys), chunk)

    places = [(copy.key[0] * chunk + copy.first + at, block) for copy in copies for at, block in enumerate(copy.blocks)]
    start = first // chunk * chunk
    assert places == [(first - start + n, 100 + n) for n in range(count)]
    assert all(copy.first + len(copy.blocks) <= chunk for copy in copies)
