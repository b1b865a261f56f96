"""Two engines share KV exactly when every byte means the same to both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hymcache.vllm.fingerprint import describe_engine, describe_pages, fingerprint


def engine(**changes: Any) -> tuple[Any, Any]:
    """A configuration as vLLM has it, with single values changed by dotted name."""
    model = SimpleNamespace(
        hf_config=SimpleNamespace(to_dict=lambda: {"_name_or_path": changes.get("path", "/m"), "hidden_size": 64}),
        dtype="torch.float32",
        quantization=None,
        quantization_config=None,
        hf_overrides={},
        model_class_overrides={},
        model_impl="auto",
        disable_sliding_window=False,
        multimodal_config=None,
        seed=0,
    )
    cache = SimpleNamespace(
        cache_dtype="auto",
        kv_cache_dtype_skip_layers=[],
        kv_sharing_fast_prefill=False,
        prefix_caching_hash_algo="sha256_cbor",
    )
    vllm = SimpleNamespace(model_config=model, cache_config=cache, speculative_config=None)
    group = SimpleNamespace(group_id=0, tokens_per_block=32, layer_names=("a", "b"))
    offloading = SimpleNamespace(
        model=SimpleNamespace(dtype="float32"),
        kv_cache_layout="LBHNC",
        canonical_layout=False,
        cache=SimpleNamespace(tokens_per_hash=32, blocks_per_chunk=8),
        groups=(group,),
        worker_kv_bytes_per_block=4096,
        parallel=SimpleNamespace(tp_size=1, pp_size=1, pcp_size=1, dcp_size=1),
    )
    roots = {"vllm": vllm, "model": model, "cache": cache, "offloading": offloading, "group": group}
    for name, value in changes.items():
        if "." in name:
            root, _, attribute = name.partition(".")
            target = roots[root]
            *parents, last = attribute.split(".")
            for parent in parents:
                target = getattr(target, parent)
            setattr(target, last, value)
    return vllm, offloading


def of(**changes: Any) -> bytes:
    return fingerprint({"config": describe_engine(*engine(**changes))})


def test_the_same_engine_in_another_process_has_the_same_fingerprint():
    assert of() == of()
    assert len(of()) == 32


def test_the_place_where_the_model_lies_does_not_count():
    assert of(path="/models/a") == of(path="/mnt/other")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.dtype", "torch.bfloat16"),
        ("model.quantization", "fp8"),
        ("model.hf_overrides", {"rope_theta": 1e6}),
        ("model.model_class_overrides", {"A": "B"}),
        ("model.model_impl", "transformers"),
        ("model.disable_sliding_window", True),
        ("model.seed", 1),
        ("cache.cache_dtype", "fp8"),
        ("cache.kv_cache_dtype_skip_layers", ["0"]),
        ("cache.prefix_caching_hash_algo", "sha256"),
        ("cache.kv_sharing_fast_prefill", True),
        ("offloading.model.dtype", "bfloat16"),
        ("offloading.kv_cache_layout", "BLHNC"),
        ("offloading.canonical_layout", True),
        ("offloading.cache.tokens_per_hash", 16),
        ("offloading.cache.blocks_per_chunk", 4),
        ("offloading.worker_kv_bytes_per_block", 8192),
        ("offloading.parallel.tp_size", 2),
        ("offloading.parallel.pp_size", 2),
        ("offloading.parallel.dcp_size", 2),
        ("group.tokens_per_block", 64),
        ("group.layer_names", ("b", "a")),
        (
            "vllm.speculative_config",
            SimpleNamespace(method="ngram", draft_model_config=None),
        ),
    ],
)
def test_whatever_changes_the_meaning_of_a_byte_changes_the_fingerprint(name, value):
    assert of(**{name: value}) != of()


def test_the_seed_of_the_block_hashes_counts(monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    before = of()
    monkeypatch.setenv("PYTHONHASHSEED", "42")
    assert of() != before


def pages(*, page: int = 4096, kernels: tuple[str, ...] = ("CPU_ATTN", "AVX512"), device: str = "cpu") -> bytes:
    ref = SimpleNamespace(tensor_idx=0, page_size_bytes=page)
    caches = SimpleNamespace(tensors=[SimpleNamespace(page_size_bytes=page)], group_data_refs=[[ref]])
    groups = [SimpleNamespace(kv_cache_spec="FullAttentionSpec(heads=2)")]
    return fingerprint({"pages": describe_pages(groups, caches, list(kernels), device)})


def test_pages_of_another_size_or_arrangement_are_not_shared():
    assert pages() == pages()
    assert len({pages(), pages(page=8192), pages(kernels=("CPU_ATTN", "AVX512", "amx")), pages(device="cuda")}) == 4
