"""Worker side: copies between the paged KV cache and the region, one thread for loads and one for stores.

Never wrong, in two rules that the code below keeps:

- A block that a load may have touched is either verified or reported as failed, and reported only once no copy can
  still write to it.
- A block that a store reads is not handed back before the copy has ended: bytes of a reused block would be published
  under the old key, with a right checksum.

So a copy that runs is never abandoned. It moves one object and neither waits nor allocates; everything else can be
withdrawn.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from hymcache.vllm.attachment import Attachment
from hymcache.vllm.compat import (
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    OffloadingConnectorStats,
    OffloadingWorker,
    TransferResult,
    init_logger,
)
from hymcache.vllm.copier import Copier, Direction, Ending, Job
from hymcache.vllm.lane import Lane
from hymcache.vllm.metrics import REGION_EVENTS, Counters
from hymcache.vllm.settings import Settings
from hymcache.vllm.transfers import Copy, ObjectsSpec, PlanError, plan

logger = init_logger("vllm." + __name__)

CLOSE_SECONDS = 5.0
SLOW_FLUSH_SECONDS = 1.0


@dataclass
class Outcome:
    """What went wrong in finished jobs, for vLLM's scheduler and ours.

    `blocks` hold undefined bytes and must be recomputed; `jobs` are the load jobs they belong to. Keys of failed loads
    and of stores that did not happen let our scheduler side forget what it believed about them; `full` makes it pause.
    """

    blocks: set[int] = field(default_factory=set)
    jobs: set[int] = field(default_factory=set)
    unloaded_keys: set[bytes] = field(default_factory=set)
    unstored_keys: set[bytes] = field(default_factory=set)
    full: bool = False


class HymCacheWorker(OffloadingWorker):
    """Runs the copies of one worker process; without an attachment every load fails and every store is dropped.

    Every method is called on the worker's main thread and returns without waiting for a copy, `wait` excepted. A job
    always ends as successful for vLLM, which stops the engine otherwise; what failed is in `take_outcome`.
    """

    def __init__(
        self,
        attachment: Attachment | None,
        caches: CanonicalKVCaches,
        blocks_per_chunk: int,
        settings: Settings,
        counters: Counters,
    ) -> None:
        self._attachment = attachment
        self.caches = caches  # the tensors own the memory that the page lists name by address
        self._blocks_per_chunk = blocks_per_chunk
        self._settings = settings
        self._counters = counters
        self._copier = None if attachment is None else self._make_copier(attachment)
        self._jobs: dict[int, Job] = {}
        self._done: deque[Job] = deque()
        self._outcome = Outcome()
        self._region_events: dict[str, int] = {}
        self._lanes = {way: Lane[Job](f"hymcache-{way.value}", self._run) for way in Direction}

    @property
    def attached(self) -> bool:
        """Whether this worker has a region."""
        return self._attachment is not None

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        """Queue a copy of whole chunks into the region."""
        return self._submit(job_id, Direction.STORE, src_spec, dst_spec)

    def submit_load(self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec) -> bool:
        """Queue a copy from the region into blocks that nobody reads before the job has ended."""
        return self._submit(job_id, Direction.LOAD, dst_spec, src_spec)

    def get_finished(self) -> list[TransferResult]:
        """Jobs that have ended since the last call; loads that waited past their deadline are ended here."""
        now = time.monotonic()
        for job in self._lanes[Direction.LOAD].withdraw(lambda job: job.deadline < now):
            self._refuse(job, Ending.TIMEOUT)
        results = []
        while self._done:
            job = self._done.popleft()
            del self._jobs[job.number]
            self._note(job)
            results.append(TransferResult(job.number, success=True, transfer_size=job.bytes, transfer_time=job.seconds))
        return results

    def wait(self, job_ids: set[int]) -> None:
        """Return when none of the jobs touches its blocks any more: the engine wants them back.

        Jobs get `flush_seconds` to end; then what has not been started is withdrawn and only the object that is being
        copied is waited for.
        """
        jobs = [self._jobs[number] for number in job_ids if number in self._jobs]
        started = time.monotonic()
        patience = started + self._settings.flush_seconds
        for job in jobs:
            job.ended.wait(max(0.0, patience - time.monotonic()))
        late = {job for job in jobs if not job.ended.is_set()}
        for job in late:
            job.withdrawn = True
        for lane in self._lanes.values():
            for job in lane.withdraw(late.__contains__):
                self._refuse(job, Ending.WITHDRAWN)
        for job in late:
            job.ended.wait()
        waited = time.monotonic() - started
        if waited > self._settings.flush_seconds + SLOW_FLUSH_SECONDS:
            logger.warning("The engine waited %.1f s for the copy of one object; the region's memory is slow", waited)

    def shutdown(self) -> None:
        """End the copy threads and let go of the region; a copy under way is finished first."""
        ended = [lane.close(CLOSE_SECONDS) for lane in self._lanes.values()]
        if self._attachment is not None and all(ended):
            self._attachment.close()

    def take_outcome(self) -> Outcome:
        """What failed in the jobs that `get_finished` has returned since the last call."""
        outcome, self._outcome = self._outcome, Outcome()
        return outcome

    def take_stats(self) -> OffloadingConnectorStats | None:
        """Counters of this process since the last call, with what the region counted in it."""
        if self._attachment is not None:
            now = self._attachment.events()
            for name, total in now.items():
                self._counters.add(REGION_EVENTS, total - self._region_events.get(name, 0), name)
            self._region_events = now
        return self._counters.take()

    def _make_copier(self, attachment: Attachment) -> Copier:
        pages = []
        for refs in self.caches.group_data_refs:
            tensors = [(self.caches.tensors[ref.tensor_idx].tensor, ref.page_size_bytes) for ref in refs]
            pages.append(attachment.pages([(t.data_ptr(), t.stride(0), size, t.shape[0]) for t, size in tensors]))
        return Copier(attachment, pages, self._counters)

    def _submit(self, number: int, way: Direction, blocks: GPULoadStoreSpec, objects: LoadStoreSpec) -> bool:
        assert isinstance(objects, ObjectsSpec), f"job {number}: expected ObjectsSpec, found {type(objects).__name__}"
        deadline = time.monotonic() + self._settings.load_timeout_seconds
        job = self._jobs[number] = Job(number, way, objects.namespace, [], deadline)
        try:
            job.copies = plan(blocks, objects, self._blocks_per_chunk)
        except PlanError:
            logger.exception("Job %d cannot be carried out; its blocks are recomputed", number)
            job.copies = [Copy(0, b"", [int(block) for block in blocks.block_ids], 0)]
            self._refuse(job, Ending.ERROR)
            return True
        if self._copier is None:
            self._refuse(job, Ending.ERROR)
        else:
            self._lanes[way].submit(job)
        return True

    def _run(self, job: Job) -> None:
        assert self._copier is not None
        defect = self._copier.load(job) if job.direction is Direction.LOAD else self._copier.store(job)
        if defect is not None:
            logger.error("A %s of job %d failed: %s", job.direction.value, job.number, defect, exc_info=defect)
        self._end(job)

    def _refuse(self, job: Job, ending: Ending) -> None:
        job.undone = list(job.copies)
        if self._copier is not None:
            self._copier.refuse(job, ending)
        self._end(job)

    def _end(self, job: Job) -> None:
        self._done.append(job)
        job.ended.set()

    def _note(self, job: Job) -> None:
        self._outcome.full |= job.full
        for copy in job.undone:
            if job.direction is Direction.STORE:
                self._outcome.unstored_keys.add(copy.key)
            else:
                self._outcome.unloaded_keys.add(copy.key)
                self._outcome.blocks.update(copy.blocks)
                self._outcome.jobs.add(job.number)
