"""Who this engine is to others: its namespace fingerprint, from the configuration, the files and the worker's pages."""

from __future__ import annotations

from typing import Any

from hymcache.vllm.compat import build_offloading_config, init_logger, model_folder, vllm_version
from hymcache.vllm.fingerprint import describe_engine, fingerprint
from hymcache.vllm.settings import Settings, load
from hymcache.vllm.weights import content_identity

logger = init_logger("vllm." + __name__)


class IdentityUnknown(RuntimeError):
    """Nobody can say which weights the engine runs; the message says what to set."""


class EngineIdentity:
    """Computes the fingerprint in the scheduler process, off the scheduler's thread.

    Args:
        vllm_config: vLLM's `VllmConfig`, complete.
        kv_cache_config: vLLM's `KVCacheConfig` of the scheduler.
        pages: what the worker reported (`describe_pages`).
    """

    def __init__(self, vllm_config: Any, kv_cache_config: Any, pages: dict[str, Any]) -> None:
        self._settings: Settings = load(vllm_config.kv_transfer_config.kv_connector_extra_config)
        self._models = [vllm_config.model_config]
        draft = getattr(vllm_config.speculative_config, "draft_model_config", None)
        if draft is not None:
            self._models.append(draft)
        self._made_up = vllm_config.load_config.load_format == "dummy"
        self._parts = {
            "engine": ["vllm", *vllm_version[:2]],
            "config": describe_engine(vllm_config, build_offloading_config(vllm_config, kv_cache_config)),
            "pages": pages,
        }

    def compute(self) -> bytes:
        """The 32-byte fingerprint. Reads every weight file once; seconds for a large model.

        Raises:
            IdentityUnknown: the weights are nowhere on disk and `HYMCACHE_WEIGHTS_ID` is not set.
            OSError: a weight file cannot be read.
        """
        parts = {**self._parts, "weights": self._weights(), "epoch": self._settings.weights_epoch}
        result = fingerprint(parts)
        logger.info("KV is shared under namespace %s", result.hex()[:16])
        return result

    def _weights(self) -> list[str]:
        if self._settings.weights_id is not None:
            return ["named", self._settings.weights_id]
        if self._made_up:
            return ["dummy"]
        folders = [folder for model in self._models if (folder := model_folder(model)) is not None]
        content = content_identity(folders) if len(folders) == len(self._models) else None
        if content is None:
            raise IdentityUnknown(
                f"the weights of {self._models[0].model} are not in files on this disk; set HYMCACHE_WEIGHTS_ID to a "
                "name that no other weights carry"
            )
        return ["content", content]
