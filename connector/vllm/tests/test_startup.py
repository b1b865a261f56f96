"""What a user may start vLLM with, and what is refused with the flag to set."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hymcache.vllm.startup import UNSUPPORTED_KEY, ConfigurationError, prepare


def config(
    *, hash_algorithm="sha256_cbor", policy="recompute", workers=1, extra=None, groups=1, block=32, scales=False
):
    vllm = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(kv_connector_extra_config=extra or {}, kv_load_failure_policy=policy),
        cache_config=SimpleNamespace(prefix_caching_hash_algo=hash_algorithm, calculate_kv_scales=scales),
        parallel_config=SimpleNamespace(world_size=workers),
    )
    group = SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=block))
    return vllm, SimpleNamespace(kv_cache_groups=[group] * groups)


def extra_of(vllm):
    return vllm.kv_transfer_config.kv_connector_extra_config


def test_the_documented_flags_are_enough():
    vllm, caches = config()
    assert prepare(vllm, caches) == []
    assert extra_of(vllm) == {"spec_name": "HymCacheSpec", "spec_module_path": "hymcache.vllm", "blocks_per_chunk": 8}


def test_preparing_twice_changes_nothing():
    vllm, caches = config()
    prepare(vllm, caches)
    once = dict(extra_of(vllm))
    prepare(vllm, caches)
    assert extra_of(vllm) == once


@pytest.mark.parametrize(("block", "blocks"), [(16, 16), (32, 8), (128, 2), (256, 1), (1024, 1), (96, 2)])
def test_a_chunk_is_about_256_tokens_in_whole_blocks(block, blocks):
    vllm, caches = config(block=block)
    prepare(vllm, caches)
    assert extra_of(vllm)["blocks_per_chunk"] == blocks


@pytest.mark.parametrize("own", [{"blocks_per_chunk": 2}, {"block_size": 64}])
def test_a_chunk_size_in_vllms_own_words_is_kept(own):
    vllm, caches = config(extra=dict(own))
    prepare(vllm, caches)
    assert own.items() <= extra_of(vllm).items()
    assert not {"blocks_per_chunk", "block_size"} <= extra_of(vllm).keys()


@pytest.mark.parametrize("algorithm", ["sha256", "xxhash", "xxhash_cbor"])
def test_hashes_that_other_processes_cannot_reproduce_are_refused_with_the_flag_to_set(algorithm):
    with pytest.raises(ConfigurationError) as caught:
        prepare(*config(hash_algorithm=algorithm))
    assert f"found {algorithm}" in str(caught.value)
    assert "--prefix-caching-hash-algo sha256_cbor" in str(caught.value)


def test_the_default_failure_policy_is_warned_about():
    (warning,) = prepare(*config(policy="fail"))
    assert '"kv_load_failure_policy": "recompute"' in warning


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"workers": 2}, "2 workers"),
        ({"groups": 2}, "2 KV cache groups"),
        ({"scales": True}, "KV scales"),
        ({"extra": {"canonical_layout": True}}, "canonical_layout"),
    ],
)
def test_an_engine_whose_bytes_cannot_be_shared_runs_without_the_tier(changes, word):
    vllm, caches = config(**changes)
    prepare(vllm, caches)
    assert word in extra_of(vllm)[UNSUPPORTED_KEY]
