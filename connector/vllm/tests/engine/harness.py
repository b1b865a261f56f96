"""An engine without a model: vLLM's real scheduler and our real connector, both roles, in one process on CPU tensors.

The forward pass is fake. For every position it computes it fills that position's slot, in every layer, with a tag that
depends on the layer and on all tokens up to there. Before it does, it reads every position that attention would read
and compares: a block that holds another prefix, another order, another layer or old bytes is found at once, by
position. The next token is drawn from the tags that were read, so a wrong read also changes the text.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import FinishReason, Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.worker import kv_connector_model_runner_mixin as mixin

BLOCK_TOKENS = 32
HEADS, HEAD_SIZE, LAYERS = 2, 32, 3
SLOT_WORDS = 2 * HEADS * HEAD_SIZE * 4 // 8  # one token's K and V of one layer, in 8-byte words
PAGE_BYTES = BLOCK_TOKENS * SLOT_WORDS * 8
UNIT_BYTES = LAYERS * PAGE_BYTES
VOCABULARY = 1024
STEPS_MAX = 20_000

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2 * HEADS * HEAD_SIZE,
    "intermediate_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2 * HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD_SIZE,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
}


class WrongBytes(AssertionError):
    """A position that attention would read holds something else than was computed for it."""


def _mix(value: int) -> int:
    """splitmix64: every input bit moves every output bit."""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)


def _tags(tokens: list[int], known: list[int]) -> list[int]:
    """One tag a position, each depending on all tokens up to there; `known` is extended in place."""
    state = known[-1] if known else 0
    for token in tokens[len(known) :]:
        state = _mix(state ^ (token + 1))
        known.append(state)
    return known


def base_config(model: Path, **arguments: Any) -> VllmConfig:
    """vLLM's complete configuration for the model of `MODEL`, written to `model`; slow, so copy it."""
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(MODEL))
    defaults: dict[str, Any] = {
        "max_model_len": 2048,
        "max_num_batched_tokens": 512,
        "max_num_seqs": 8,
        "prefix_caching_hash_algo": "sha256_cbor",
    }
    engine = EngineArgs(
        model=str(model),
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="float32",
        block_size=BLOCK_TOKENS,
        enforce_eager=True,
        kv_cache_memory_bytes=64 << 20,
        kv_transfer_config=transfer_config({}),
        **{**defaults, **arguments},
    )
    return engine.create_engine_config()


def transfer_config(section: dict[str, Any], policy: str = "recompute", **extra: Any) -> KVTransferConfig:
    """What a user passes as `--kv-transfer-config`."""
    return KVTransferConfig(
        kv_connector="HymCacheConnector",
        kv_connector_module_path="hymcache.vllm",
        kv_role="kv_both",
        kv_load_failure_policy=policy,
        kv_connector_extra_config={"hymcache": section, **extra},
    )


@dataclass
class Running:
    """What the fake model runner knows about a request."""

    blocks: list[int]
    computed: int = 0


@dataclass
class Result:
    """How a request ended."""

    tokens: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    cached_tokens: int = 0
    external_tokens: int = 0


class Engine:
    """One engine on one domain of a region. `positions_checked` counts comparisons."""

    def __init__(self, config: VllmConfig, transfer: KVTransferConfig | None, *, blocks: int) -> None:
        self.config = copy.deepcopy(config)
        self.config.kv_transfer_config = copy.deepcopy(transfer)
        self.config.cache_config.num_gpu_blocks = blocks
        self.config.cache_config.kv_cache_layout = "LBHNC"
        layers = [f"model.layers.{n}.self_attn.attn" for n in range(LAYERS)]
        spec = FullAttentionSpec(block_size=BLOCK_TOKENS, num_kv_heads=HEADS, head_size=HEAD_SIZE, dtype=torch.float32)
        assert spec.page_size_bytes == PAGE_BYTES
        caches = KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[KVCacheTensor(LAYERS * PAGE_BYTES * blocks, layers, PAGE_BYTES * blocks, PAGE_BYTES)],
            kv_cache_groups=[KVCacheGroupSpec(layers, spec)],
            kv_cache_layout="LBHNC",
            hash_block_size=BLOCK_TOKENS,
        )
        storage = torch.zeros(LAYERS, blocks, HEADS, BLOCK_TOKENS, 2 * HEAD_SIZE, dtype=torch.float32)
        self.words = storage.view(torch.int64).numpy().view(np.uint64).reshape(LAYERS, blocks, BLOCK_TOKENS, SLOT_WORDS)
        self.worker: Any = None
        if transfer is not None:
            self.worker = KVConnectorFactory.create_connector(self.config, KVConnectorRole.WORKER, caches)
            self.worker.register_kv_caches(dict(zip(layers, storage, strict=True)))
        self.scheduler = Scheduler(
            self.config, caches, StructuredOutputManager(self.config), BLOCK_TOKENS, BLOCK_TOKENS, log_stats=True
        )
        self.connector: Any = self.scheduler.connector
        if self.worker is not None:
            handshake = self.worker.get_handshake_metadata()
            self.connector.set_xfer_handshake_metadata_pp_aware({} if handshake is None else {(0, 0): handshake})
            if handshake is not None:
                self.connector.connector_scheduler.manager._computing.result(30)
        hash_fn = get_hash_fn_by_name(self.config.cache_config.prefix_caching_hash_algo)
        init_none_hash(hash_fn)
        self._hasher = get_request_block_hasher(BLOCK_TOKENS, hash_fn)
        self._rows: dict[str, Running] = {}
        self._requests: dict[str, Request] = {}
        self._known_tags: dict[str, list[int]] = {}
        self.results: dict[str, Result] = {}
        self.stats: dict[str, float] = {}
        self.positions_checked = 0
        self.preemptions = 0
        self.steps = 0

    # --- a client ---------------------------------------------------------------------------------------------------

    def add(self, name: str, prompt: list[int], max_tokens: int = 4, **params: Any) -> None:
        """Queue a request."""
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0, **params)
        sampling.update_from_generation_config({}, None)
        request = Request(name, list(prompt), sampling, None, block_hasher=self._hasher)
        self._requests[name] = request
        self.results[name] = Result()
        self._known_tags[name] = []
        self.scheduler.add_request(request)

    def abort(self, name: str) -> None:
        """What a client that hangs up causes."""
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def run(self, name: str, prompt: list[int], max_tokens: int = 4, **params: Any) -> Result:
        """One request from arrival to end, stores included."""
        self.add(name, prompt, max_tokens, **params)
        self.drain()
        return self.results[name]

    def drain(self) -> None:
        """Step until nothing is left to do."""
        for _ in range(STEPS_MAX):
            if not self.busy():
                return
            self.step()
        raise AssertionError(f"the engine is still busy after {STEPS_MAX} steps: a request loops or waits for ever")

    def busy(self) -> bool:
        return bool(self.scheduler.has_requests())

    def forget_prefixes(self) -> None:
        """Empty the engine's own prefix cache."""
        assert self.scheduler.reset_prefix_cache()

    def close(self) -> None:
        if self.worker is not None:
            self.worker.shutdown()
        self.scheduler.shutdown()

    # --- one step of EngineCore -------------------------------------------------------------------------------------

    def step(self) -> None:
        self.steps += 1
        scheduled = self.scheduler.schedule()
        self.preemptions += len(scheduled.preempted_req_ids or ())
        output = self._execute(scheduled)
        for outputs in self.scheduler.update_from_output(scheduled, output).values():
            for out in outputs.outputs:
                result = self.results[out.request_id]
                result.tokens += out.new_token_ids
                result.reason = out.finish_reason or result.reason
                if out.prefill_stats is not None:
                    result.cached_tokens = out.prefill_stats.num_cached_tokens
                    result.external_tokens = out.prefill_stats.num_external_cached_tokens
            stats = outputs.scheduler_stats
            if stats is not None and stats.kv_connector_stats:
                self._add_stats(stats.kv_connector_stats)

    def _add_stats(self, payload: dict[str, Any]) -> None:
        for name, by_label in payload["data"].items():
            for labels, value in by_label.items():
                if isinstance(value, int | float):
                    key = ":".join([name, *labels])
                    self.stats[key] = self.stats.get(key, 0) + value

    def _execute(self, scheduled: Any) -> ModelRunnerOutput:
        if self.worker is None:
            self._update_rows(scheduled)
            return self._forward(scheduled)
        self.worker.handle_preemptions(scheduled.kv_connector_metadata)
        self._update_rows(scheduled)
        with self._as_vllm_runs_it(scheduled) as connector_output:
            output = self._forward(scheduled)
        output.kv_connector_output = connector_output
        return output

    @contextlib.contextmanager
    def _as_vllm_runs_it(self, scheduled: Any) -> Iterator[Any]:
        with (
            patch.object(mixin, "get_kv_transfer_group", lambda: self.worker),
            patch.object(mixin, "get_forward_context", lambda: None),
            mixin.KVConnectorModelRunnerMixin._get_kv_connector_output(scheduled) as connector_output,
        ):
            yield connector_output

    def _update_rows(self, scheduled: Any) -> None:
        for name in scheduled.finished_req_ids:
            self._rows.pop(name, None)
        for new in scheduled.scheduled_new_reqs:
            self._rows[new.req_id] = Running(list(new.block_ids[0]), new.num_computed_tokens)
        cached = scheduled.scheduled_cached_reqs
        for name, blocks, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            row = self._rows[name]
            row.computed = computed
            if name in cached.resumed_req_ids:
                row.blocks = list(blocks[0])
            elif blocks is not None:
                row.blocks += blocks[0]

    def _forward(self, scheduled: Any) -> ModelRunnerOutput:
        names = list(scheduled.num_scheduled_tokens)
        sampled = [self._compute(name, scheduled.num_scheduled_tokens[name]) for name in names]
        return ModelRunnerOutput(names, {name: at for at, name in enumerate(names)}, sampled)

    def _compute(self, name: str, count: int) -> list[int]:
        row, request = self._rows[name], self._requests[name]
        end = row.computed + count
        tags = np.array(_tags(request.all_token_ids[:end], self._known_tags[name])[:end], dtype=np.uint64)
        positions = np.arange(end)
        where = (np.array(row.blocks)[positions // BLOCK_TOKENS], positions % BLOCK_TOKENS)
        self._compare(name, row, tags, where)
        for layer in range(LAYERS):
            self.words[layer][where[0][row.computed :], where[1][row.computed :]] = tags[
                row.computed :, None
            ] + np.uint64(layer)
        read = np.bitwise_xor.reduce(self.words[:, where[0], where[1], 0].reshape(-1))
        return [_mix(int(read)) % VOCABULARY] if end >= request.num_tokens else []

    def _compare(self, name: str, row: Running, tags: Any, where: tuple[Any, Any]) -> None:
        past = slice(0, row.computed)
        for layer in range(LAYERS):
            found = self.words[layer][where[0][past], where[1][past]]
            wrong = (found != (tags[past, None] + np.uint64(layer))).any(axis=1)
            if wrong.any():
                at = int(np.argmax(wrong))
                raise WrongBytes(
                    f"request {name}, layer {layer}: position {at} (block {row.blocks[at // BLOCK_TOKENS]}, slot "
                    f"{at % BLOCK_TOKENS}) and {int(wrong.sum()) - 1} more hold other bytes than were computed"
                )
        self.positions_checked += LAYERS * row.computed


def prompt(seed: int, tokens: int) -> list[int]:
    """A reproducible prompt; different seeds differ from the first token on."""
    state, out = seed, []
    for _ in range(tokens):
        state = _mix(state)
        out.append(state % VOCABULARY)
    return out


def expected(text: list[int], max_tokens: int = 4) -> list[int]:
    """The tokens that an engine without any cache draws: from the tags alone."""
    tokens, tags = list(text), []
    for _ in range(max_tokens):
        _tags(tokens, tags)
        words = np.array(tags, dtype=np.uint64)
        read = 0
        for layer in range(LAYERS):
            read ^= int(np.bitwise_xor.reduce(words + np.uint64(layer)))
        tokens.append(_mix(read) % VOCABULARY)
    return tokens[len(text) :]
