"""What vLLM builds first in every process of an engine: the manager in the scheduler, the worker in each worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hymcache.vllm.announcements import Announcements
from hymcache.vllm.attachment import Attachment, RegionUnavailable, attach
from hymcache.vllm.compat import CanonicalKVCaches, OffloadingConfig, OffloadingSpec, init_logger
from hymcache.vllm.manager import HymCacheManager
from hymcache.vllm.metrics import ATTACHED, DEFINITIONS, Counters
from hymcache.vllm.settings import Settings, load
from hymcache.vllm.startup import UNSUPPORTED_KEY
from hymcache.vllm.worker import HymCacheWorker

logger = init_logger("vllm." + __name__)


class HymCacheSpec(OffloadingSpec):
    """Attaches to the region when its process needs it; without one, manager and worker do nothing."""

    @classmethod
    def build_metric_definitions(cls, extra_config: Mapping[str, Any]) -> dict[str, Any]:
        """Definitions of the connector's metrics; called in the API server, touches no region."""
        return dict(DEFINITIONS)

    def __init__(self, config: OffloadingConfig) -> None:
        super().__init__(config)
        self.settings: Settings = load(config.extra_config)
        self.counters = Counters()
        self._manager: HymCacheManager | None = None
        self._worker: HymCacheWorker | None = None

    def get_manager(self) -> HymCacheManager:
        """The scheduler's side; vLLM may ask more than once."""
        if self._manager is None:
            attachment = self._attach()
            self.counters.gauge(ATTACHED, 0.0)  # until the namespace is known
            announcements = Announcements(enabled=self.kv_events_config.enable_kv_cache_events)
            self._manager = HymCacheManager(attachment, self.settings, self.counters, announcements)
        return self._manager

    def get_worker(self, kv_caches: CanonicalKVCaches) -> HymCacheWorker:
        """The worker's side, once its KV cache exists."""
        if self._worker is None:
            devices = {tensor.tensor.device.type for tensor in kv_caches.tensors}
            why = None if devices == {"cpu"} else f"the KV cache is on {', '.join(sorted(devices))}, not in host memory"
            self._worker = HymCacheWorker(
                self._attach(why), kv_caches, self.blocks_per_chunk, self.settings, self.counters
            )
        return self._worker

    def _attach(self, why_not: str | None = None) -> Attachment | None:
        reason = self.extra_config.get(UNSUPPORTED_KEY) or why_not
        try:
            if reason:
                raise RegionUnavailable(f"this engine's KV cannot be shared: {reason}")
            return attach(self.settings)
        except RegionUnavailable as error:
            if self.settings.required:
                raise
            logger.warning("Running without the shared KV tier: %s", error)
            return None
