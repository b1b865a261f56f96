"""Scheduler side: what the region has for each request, and what is worth storing.

Everything here runs on the scheduler's thread, between two forward passes, so nothing waits: a probe of the directory
is either a few microseconds of native loads or runs in a thread, and `lookup` reads its answer.

Nothing is pinned across hosts. A hit is a hint: the verified copy decides, and a chunk that was evicted in between is a
failed load, which the worker reports and `forget` records, so that the request asks again and is told to compute.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from hymcache.region import Namespace
from hymcache.vllm.announcements import Announcements
from hymcache.vllm.attachment import Attachment
from hymcache.vllm.compat import (
    CacheHitSource,
    LoadStoreSpec,
    LookupResult,
    OffloadingConnectorStats,
    OffloadingEvent,
    OffloadingManager,
    OffloadKey,
    PrepareStoreOutput,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
    init_logger,
)
from hymcache.vllm.metrics import ATTACHED, LOOKUPS, Counters
from hymcache.vllm.settings import Settings
from hymcache.vllm.transfers import ObjectsSpec

logger = init_logger("vllm." + __name__)

Clock = Callable[[], float]
KeysOf = Callable[[], list[list[bytes]]]


@dataclass
class Directory:
    """The engine's namespace in the region: `fingerprint` names it for the worker, `namespace` answers here."""

    fingerprint: bytes
    namespace: Namespace


@dataclass
class Probe:
    """What is known about one request's chunks.

    `keys_of` lists the request's keys now, one list a cache group: it grows while the request decodes. `salt` is
    appended to every key and separates what the block hashes do not (the contents of a LoRA adapter); None keeps the
    request out of the shared tier.
    """

    keys_of: KeysOf = field(default=list)
    salt: bytes | None = b""
    known: set[bytes] = field(default_factory=set)
    hits: set[bytes] = field(default_factory=set)
    running: Future[list[int]] | None = None
    asked: list[list[bytes]] = field(default_factory=list)
    answered_at: float | None = None
    seen_step: int = -1
    counted: bool = False


class HymCacheManager(OffloadingManager):
    """vLLM's view of the shared tier in the scheduler process; until `use` all lookups miss and no store is offered."""

    def __init__(
        self,
        attachment: Attachment | None,
        settings: Settings,
        counters: Counters,
        announcements: Announcements,
        clock: Clock = time.monotonic,
    ) -> None:
        self._attachment = attachment
        self._settings = settings
        self._counters = counters
        self._announcements = announcements
        self._clock = clock
        self._directory: Directory | None = None
        self._requests: dict[str, ReqContext] = {}
        self._failed: dict[bytes, float] = {}  # key -> until when it is not tried
        self._storing: dict[bytes, float] = {}  # key -> when the store was planned
        self._unstored: set[bytes] = set()
        self._full_until = 0.0
        self._step = 0
        self._computing: Future[bytes] | None = None
        self._pool = ThreadPoolExecutor(1, "hymcache-probe")

    # --- called by the connector ------------------------------------------------------------------------------------

    def use(self, fingerprint: bytes) -> None:
        """Look up and store under this fingerprint from now on; what was known about requests is asked again."""
        assert self._attachment is not None, "a namespace was chosen without a region"
        self._directory = Directory(fingerprint, self._attachment.namespace(fingerprint))
        self._counters.gauge(ATTACHED, 1.0)
        self._failed.clear()
        self._storing.clear()
        self._unstored.clear()
        for ctx in self._requests.values():
            probe = ctx.get_state(Probe)
            if probe is not None:
                ctx.set_state(Probe(keys_of=probe.keys_of, salt=probe.salt, counted=probe.counted))

    def use_when_known(self, compute: Callable[[], bytes]) -> None:
        """Compute the fingerprint in the background and use it once it is there; misses until then."""
        if self._attachment is not None:
            self._computing = self._pool.submit(compute)

    def on_request_keys(self, request_id: str, keys_of: KeysOf, salt: bytes | None) -> None:
        """Start looking for a request's chunks as it arrives, before the scheduler asks."""
        self._use_if_computed()
        ctx = self._requests.get(request_id)
        if ctx is None:
            return
        probe = Probe(keys_of=keys_of, salt=salt)
        ctx.set_state(probe)
        if self._directory is not None and salt is not None:
            self._ask(probe)

    def forget(self, unloaded: Collection[bytes], unstored: Collection[bytes]) -> None:
        """Learn from the worker: these loads failed, these stores did not happen.

        Called before vLLM completes the jobs and before the next `schedule`, which then finds a miss.
        """
        now = self._clock()
        if unloaded:
            self._failed = {key: until for key, until in self._failed.items() if until > now}
            self._failed.update(dict.fromkeys(unloaded, now + self._settings.failed_seconds))
        self._announcements.remove(unloaded)
        self._unstored.update(unstored)

    def pause_stores(self) -> None:
        """Learn from the worker that the region has no room: offer nothing for a while."""
        self._full_until = self._clock() + self._settings.full_backoff_seconds

    # --- OffloadingManager ------------------------------------------------------------------------------------------

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Remember the request; its keys follow through `on_request_keys`."""
        self._requests[req_context.req_id] = req_context
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        """Forget the request."""
        self._requests.pop(req_context.req_id, None)

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """Whether the region has the chunk: a set read, unless the answer is missing or too old."""
        probe = req_context.get_state(Probe)
        if probe is None or probe.salt is None or self._directory is None:
            return LookupResult.MISS
        if probe.seen_step != self._step and not self._fresh(probe):
            return LookupResult.RETRY
        name = key + probe.salt
        if name in self._failed and self._clock() < self._failed[name]:
            return LookupResult.MISS
        if key in probe.hits:
            return LookupResult.HIT
        if name in self._storing and self._clock() - self._storing[name] < self._settings.load_timeout_seconds:
            return LookupResult.HIT_PENDING  # our own copy is under way: waiting is cheaper than computing
        return LookupResult.MISS

    def get_load_source(self, key: OffloadKey, req_context: ReqContext) -> CacheHitSource:
        """Host memory, for vLLM's hit statistics: it has no name for a memory appliance."""
        return CacheHitSource.HOST

    def prepare_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> LoadStoreSpec:
        """Name the objects; nothing is reserved (module docstring)."""
        assert self._directory is not None, "a load was planned without a directory"
        return ObjectsSpec(self._directory.fingerprint, self._names(keys, req_context))

    def prepare_store(self, keys: Collection[OffloadKey], req_context: ReqContext) -> PrepareStoreOutput | None:
        """Offer the chunks that nobody has yet, all of them or none.

        None means no room at the moment: vLLM offers the same chunks again with the next step. A part of them would
        leave a hole that this request never fills.
        """
        probe = req_context.get_state(Probe)
        directory = self._directory
        if directory is None or probe is None or probe.salt is None:
            return PrepareStoreOutput([], ObjectsSpec(b"", []), [])
        if self._clock() < self._full_until:
            return None
        names = self._names(keys, req_context)
        present = directory.namespace.contains(names)
        wanted = [
            (key, name)
            for key, name, there in zip(keys, names, present, strict=True)
            if name not in self._storing and (not there or name in self._failed)
        ]
        now = self._clock()
        self._storing.update((name, now) for _, name in wanted)
        return PrepareStoreOutput(
            keys_to_store=[key for key, _ in wanted],
            store_spec=ObjectsSpec(directory.fingerprint, [name for _, name in wanted]),
            evicted_keys=[],
        )

    def complete_store(self, keys: Collection[OffloadKey], req_context: ReqContext, success: bool = True) -> None:
        """The copies have ended; `forget` has named those that were not stored, vLLM calls all of them successful."""
        stored: dict[bytes, OffloadKey] = {}
        for key, name in zip(keys, self._names(keys, req_context), strict=True):
            self._storing.pop(name, None)
            if name in self._unstored:
                self._unstored.discard(name)
            else:
                self._failed.pop(name, None)
                stored[name] = key
        if success:
            self._announcements.add(stored)

    def take_events(self) -> Iterable[OffloadingEvent]:
        """What was stored and removed since the last call, for KV-aware routers."""
        return self._announcements.take()

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """A scheduling pass is over: the next one checks the age of what it uses.

        A preempted request has more chunks than when it was asked about; its next pass asks again.
        """
        self._step += 1
        self._use_if_computed()
        for request_id in context.preempted_req_ids:
            probe = self._requests[request_id].get_state(Probe) if request_id in self._requests else None
            if probe is not None:
                probe.answered_at = None

    def get_stats(self) -> OffloadingConnectorStats | None:
        """Counters of this process since the last call."""
        return self._counters.take()

    def reset_cache(self) -> None:
        """Never find again what was stored before: vLLM's user replaced weights or wants cold requests.

        A shared tier is not wiped by one engine. This engine moves to a namespace of its own, which no other shares,
        until it restarts; replicas that changed weights together share again when restarted with a new
        `HYMCACHE_WEIGHTS_EPOCH`.
        """
        for ctx in self._requests.values():
            ctx.set_state(Probe(salt=None))  # a request under way may hold KV of before: it shares nothing any more
        if self._directory is not None:
            self.use(hashlib.sha256(self._directory.fingerprint + secrets.token_bytes(32)).digest())

    def shutdown(self) -> None:
        """Stop probing and let go of the region."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._attachment is not None:
            self._attachment.close()

    # --- probes -----------------------------------------------------------------------------------------------------

    def _use_if_computed(self) -> None:
        if self._computing is None or not self._computing.done():
            return
        computing, self._computing = self._computing, None
        error = computing.exception()
        if error is None:
            self.use(computing.result())
        else:
            logger.warning("Running without the shared KV tier: %s", error)

    def _names(self, keys: Collection[OffloadKey], ctx: ReqContext) -> list[bytes]:
        probe = ctx.get_state(Probe)
        salt = (probe.salt if probe is not None else None) or b""
        return [bytes(key) + salt for key in keys]

    def _fresh(self, probe: Probe) -> bool:
        """Make the answer usable for this scheduling pass; False while a probe runs in the thread."""
        if probe.running is not None:
            if not probe.running.done():
                return False
            self._adopt(probe, probe.running.result())
        elif probe.answered_at is None or self._clock() - probe.answered_at > self._settings.probe_seconds:
            self._ask(probe)
            if probe.running is not None:
                return False
        probe.seen_step = self._step
        return True

    def _ask(self, probe: Probe) -> None:
        assert self._directory is not None
        assert probe.salt is not None
        probe.asked = probe.keys_of()
        names = [[key + probe.salt for key in keys] for keys in probe.asked]
        namespace = self._directory.namespace
        if sum(map(len, names)) <= self._settings.probe_inline_keys:
            self._adopt(probe, _runs(namespace, names))
        else:
            probe.running = self._pool.submit(_runs, namespace, names)

    def _adopt(self, probe: Probe, runs: list[int]) -> None:
        probe.running = None
        probe.answered_at = self._clock()
        probe.known = {key for keys in probe.asked for key in keys}
        probe.hits = {key for keys, run in zip(probe.asked, runs, strict=True) for key in keys[:run]}
        if not probe.counted:
            probe.counted = True
            self._count(probe)

    def _count(self, probe: Probe) -> None:
        salt = probe.salt or b""
        failed = sum(key + salt in self._failed for key in probe.hits)
        self._counters.add(LOOKUPS, len(probe.hits) - failed, "hit")
        self._counters.add(LOOKUPS, len(probe.known) - len(probe.hits), "miss")
        self._counters.add(LOOKUPS, failed, "failed")


def _runs(namespace: Namespace, names: Sequence[Sequence[bytes]]) -> list[int]:
    """How many leading chunks of each group the region has: a prefix is useful up to its first gap only."""
    return [namespace.lookup(keys) if keys else 0 for keys in names]
