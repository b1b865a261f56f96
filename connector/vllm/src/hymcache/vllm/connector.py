"""The connector: vLLM's own `OffloadingConnector` plus what a tier that is shared and can fail needs.

vLLM keeps the bookkeeping of blocks, chunks, preemption and events. Added here are a probe of the directory when a
request arrives, the report of failed loads, the namespace fingerprint, and checks at start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hymcache.vllm.compat import (
    KVConnectorHandshakeMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    OffloadingConnector,
    OffloadingConnectorStats,
    OffloadingWorkerMetadata,
    attention_kernels,
    init_logger,
    make_offload_key,
)
from hymcache.vllm.fingerprint import describe_pages
from hymcache.vllm.identity import EngineIdentity
from hymcache.vllm.manager import HymCacheManager
from hymcache.vllm.startup import name_spec, prepare
from hymcache.vllm.weights import Adapters
from hymcache.vllm.worker import HymCacheWorker, Outcome

logger = init_logger("vllm." + __name__)


@dataclass
class HymCacheHandshake(KVConnectorHandshakeMetadata):
    """What a worker tells the scheduler once its KV cache exists: the pages as registered."""

    pages: dict[str, Any]


@dataclass
class HymCacheWorkerMetadata(OffloadingWorkerMetadata):
    """vLLM's report of completed jobs, with the keys of the copies in them that did not happen."""

    unloaded_keys: set[bytes] = field(default_factory=set)
    unstored_keys: set[bytes] = field(default_factory=set)
    full: bool = False

    def aggregate(self, other: HymCacheWorkerMetadata) -> HymCacheWorkerMetadata:
        """Join the reports of two workers: what failed in one rank failed."""
        joined = super().aggregate(other)
        return HymCacheWorkerMetadata(
            completed_jobs=joined.completed_jobs,
            transfer_stats=joined.transfer_stats,
            unloaded_keys=self.unloaded_keys | other.unloaded_keys,
            unstored_keys=self.unstored_keys | other.unstored_keys,
            full=self.full or other.full,
        )


class HymCacheConnector(OffloadingConnector):
    """Named in `--kv-transfer-config`; built once in the scheduler process and once in every worker process.

    vLLM calls every method on the main thread of its process; none waits for a copy or a lookup.
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        warnings = prepare(vllm_config, kv_cache_config)
        super().__init__(vllm_config, role, kv_cache_config)
        self._outcome = Outcome()
        self._adapters = Adapters()
        if role == KVConnectorRole.SCHEDULER:
            for warning in warnings:
                logger.warning("%s", warning)

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        """Metrics of the API server, which knows the connector by its raw configuration only."""
        name_spec(vllm_config.kv_transfer_config)
        return super().build_prom_metrics(vllm_config, *args, **kwargs)

    # --- scheduler process ------------------------------------------------------------------------------------------

    @property
    def _manager(self) -> HymCacheManager:
        manager = self.connector_scheduler.manager
        assert isinstance(manager, HymCacheManager)
        return manager

    def set_xfer_handshake_metadata(self, metadata: dict[int, HymCacheHandshake]) -> None:
        """Learn the pages from the worker and find the engine's namespace; until then every lookup is a miss.

        vLLM calls it with nothing when no worker has a region.
        """
        if metadata:
            identity = EngineIdentity(self._vllm_config, self._kv_cache_config, metadata[0].pages)
            self._manager.use_when_known(identity.compute)

    def on_new_request(self, request: Any) -> None:
        """Probe the directory for the request's chunks as it arrives, before it is scheduled."""
        super().on_new_request(request)
        if request.skip_reading_prefix_cache:
            return
        groups = self.connector_scheduler.config.kv_group_configs
        self._manager.on_request_keys(request.request_id, partial(_keys, request, groups), self._salt(request))

    def update_connector_output(self, connector_output: Any) -> None:
        """Learn what failed before vLLM completes the jobs and schedules again."""
        report = connector_output.kv_connector_worker_meta
        if isinstance(report, HymCacheWorkerMetadata):
            self._manager.forget(report.unloaded_keys, report.unstored_keys)
            if report.full:
                self._manager.pause_stores()
        super().update_connector_output(connector_output)

    def shutdown(self) -> None:
        """End threads and let go of the region."""
        super().shutdown()
        self._adapters.close()

    def _salt(self, request: Any) -> bytes | None:
        adapter = request.lora_request
        if adapter is None:
            return b""
        return self._adapters.identity(adapter.lora_int_id, adapter.lora_path, reloaded_in_place=adapter.load_inplace)

    # --- worker process ---------------------------------------------------------------------------------------------

    @property
    def _worker(self) -> HymCacheWorker:
        worker = self.connector_worker.worker
        assert isinstance(worker, HymCacheWorker)
        return worker

    def get_handshake_metadata(self) -> HymCacheHandshake | None:
        """The pages of this worker, for the namespace; None without a region, which keeps the scheduler's side off."""
        if not self._worker.attached:
            return None
        caches = self._worker.caches
        device = caches.tensors[0].tensor.device.type
        kernels = attention_kernels(self._vllm_config, device)
        return HymCacheHandshake(describe_pages(self._kv_cache_config.kv_cache_groups, caches, kernels, device))

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Finished jobs; with several cache groups a failed load is reported by its request."""
        requests = dict(self.connector_worker._load_jobs)  # job -> request; the call below takes finished ones out
        results = super().get_transfer_results(finished_req_ids)
        self._outcome = self._worker.take_outcome()
        if len(self._kv_cache_config.kv_cache_groups) > 1:
            results.failed_recving = {requests[job] for job in self._outcome.jobs}
        return results

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks of the jobs just finished that hold undefined bytes; vLLM recomputes from the first of them on."""
        single_group = len(self._kv_cache_config.kv_cache_groups) == 1
        return self._outcome.blocks if single_group else set()

    def build_connector_worker_meta(self) -> HymCacheWorkerMetadata | None:
        """Completed jobs and what failed in them."""
        report = super().build_connector_worker_meta()
        if report is None:
            return None
        outcome, self._outcome = self._outcome, Outcome()
        return HymCacheWorkerMetadata(
            completed_jobs=report.completed_jobs,
            transfer_stats=report.transfer_stats,
            unloaded_keys=outcome.unloaded_keys,
            unstored_keys=outcome.unstored_keys,
            full=outcome.full,
        )

    def get_kv_connector_stats(self) -> OffloadingConnectorStats | None:
        """Counters of this process since the last call; vLLM adds both processes up."""
        if self.connector_worker is None:
            return super().get_kv_connector_stats()
        return self._worker.take_stats()


def _keys(request: Any, groups: Any) -> list[list[bytes]]:
    """The request's chunks, one list a cache group: a chunk is named by the hash of its last block."""
    return [
        [make_offload_key(block_hash, group.group_idx) for block_hash in request.block_hashes[last :: last + 1]]
        for group in groups
        for last in (group.hashes_per_chunk - 1,)
    ]
