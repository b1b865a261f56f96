"""What is checked and completed in vLLM's configuration before the connector is built, in every process alike."""

from __future__ import annotations

from typing import Any, Final

from hymcache.vllm.settings import Settings, load

SPEC_NAME: Final = "HymCacheSpec"
SPEC_MODULE: Final = "hymcache.vllm"
HASH_ALGORITHM: Final = "sha256_cbor"
UNSUPPORTED_KEY: Final = "hymcache_unsupported"
"""Where the spec finds why this engine's configuration cannot use the tier, if it cannot."""


class ConfigurationError(ValueError):
    """The engine was started in a way that would share nothing or the wrong thing; the message says what to set."""


def name_spec(kv_transfer_config: Any) -> dict[str, Any]:
    """Tell vLLM which spec belongs to the connector, so that users need not. Returns the extra config.

    The API server picks the spec for its metrics from the raw JSON and never builds the connector: this is called from
    both doors.
    """
    extra: dict[str, Any] = kv_transfer_config.kv_connector_extra_config
    extra["spec_name"], extra["spec_module_path"] = SPEC_NAME, SPEC_MODULE
    return extra


def prepare(vllm_config: Any, kv_cache_config: Any) -> list[str]:
    """Check the configuration and fill in the connector's part of it; returns warnings.

    Raises:
        ConfigurationError: prefix hashes that other processes cannot reproduce.
        SettingsError: a setting with an unusable value.
    """
    extra = name_spec(vllm_config.kv_transfer_config)
    settings = load(extra)
    _check_hash(vllm_config.cache_config.prefix_caching_hash_algo)
    if "blocks_per_chunk" not in extra and "block_size" not in extra:
        extra["blocks_per_chunk"] = _blocks_per_chunk(settings, kv_cache_config)
    why_not = unsupported(vllm_config, kv_cache_config, extra)
    if why_not:
        extra[UNSUPPORTED_KEY] = why_not
    warnings = []
    policy = vllm_config.kv_transfer_config.kv_load_failure_policy
    if policy != "recompute":
        warnings.append(
            f'kv_load_failure_policy is "{policy}": a chunk that another host evicts at the wrong moment fails its '
            'request; set "kv_load_failure_policy": "recompute" in --kv-transfer-config'
        )
    return warnings


def unsupported(vllm_config: Any, kv_cache_config: Any, extra: dict[str, Any]) -> str | None:
    """Why this engine's KV cannot be shared, or None.

    Each reason is a way to meet other bytes than the engine would compute, or a layout that is not handled.
    """
    parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
    groups = kv_cache_config.kv_cache_groups
    if parallel.world_size != 1:
        return f"{parallel.world_size} workers share one model; one worker is supported"
    if len(groups) != 1:
        return f"the model has {len(groups)} KV cache groups; one is supported"
    if getattr(cache, "calculate_kv_scales", False):
        return "KV scales are calculated at run time and differ between engines; use scales of the checkpoint"
    if extra.get("canonical_layout"):
        return "canonical_layout is not supported; remove it from kv_connector_extra_config"
    return None


def _check_hash(found: str) -> None:
    if found != HASH_ALGORITHM:
        reason = (
            "hashes pickled objects, and equal prompts may hash differently in two processes"
            if found == "sha256"
            else "starts from a random value in every process"
        )
        raise ConfigurationError(
            f"prefix_caching_hash_algo: expected {HASH_ALGORITHM}, found {found}, which {reason}; "
            f"start vLLM with --prefix-caching-hash-algo {HASH_ALGORITHM}"
        )


def _blocks_per_chunk(settings: Settings, kv_cache_config: Any) -> int:
    tokens = max(int(group.kv_cache_spec.block_size) for group in kv_cache_config.kv_cache_groups)
    return max(1, settings.chunk_tokens // tokens)
