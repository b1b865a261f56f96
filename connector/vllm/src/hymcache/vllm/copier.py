"""The copies of one job, run on the calling thread: what is copied, in which order, and when it stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from hymcache.region import Namespace, Pages
from hymcache.vllm.attachment import Attachment
from hymcache.vllm.metrics import COPY_BYTES, COPY_SECONDS, LOADS, STORES, Counters
from hymcache.vllm.transfers import Copy


class Direction(Enum):
    """Which way a job copies."""

    LOAD = "load"
    STORE = "store"


class Ending(StrEnum):
    """How the copy of one object ended; the label values of the load and store metrics."""

    LOADED = "loaded"
    MISSING = "missing"
    STORED = "stored"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    WITHDRAWN = "withdrawn"
    ERROR = "error"


@dataclass(eq=False)
class Job:
    """One transfer job of the scheduler: its copies in block order and how far they got.

    `undone` are the copies that did not happen or did not verify; for a load their blocks hold undefined bytes. `full`:
    the region had no room for one of them.
    `withdrawn` may be set by another thread at any time and is obeyed before the next copy.
    """

    number: int
    direction: Direction
    namespace: bytes
    copies: list[Copy]
    deadline: float
    withdrawn: bool = False
    full: bool = False
    bytes: int = 0
    seconds: float = 0.0
    undone: list[Copy] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)


class Copier:
    """Copies between registered pages and the region. One instance serves the load and the store thread at once.

    Args:
        attachment: the region, attached by this process.
        pages: the registered pages of each group, in group order.
        counters: where outcomes, bytes and seconds are counted.
    """

    def __init__(self, attachment: Attachment, pages: Sequence[Pages], counters: Counters) -> None:
        self._attachment = attachment
        self._pages = pages
        self._counters = counters
        self._namespaces: dict[bytes, Namespace] = {}

    def load(self, job: Job) -> Exception | None:
        """Copy object after object until one fails; that one and those after it become `undone`.

        The request is recomputed from its first bad block on, so nothing after a failure is worth a copy. Returns the
        exception, if one ended the job: damage in the region never raises, a defect may.
        """
        started = time.monotonic()
        done = 0
        ending, defect = Ending.LOADED, None
        try:
            namespace = self._namespace(job.namespace)
            while done < len(job.copies) and ending is Ending.LOADED:
                ending = self._load_one(namespace, job, job.copies[done])
                done += ending is Ending.LOADED
        except Exception as error:
            ending, defect = Ending.ERROR, error
        job.undone = job.copies[done:]
        self._counters.add(LOADS, done, Ending.LOADED)
        self._counters.add(LOADS, len(job.undone), ending)
        self._clock(job, started)
        return defect

    def store(self, job: Job) -> Exception | None:
        """Offer every object to the region; those it does not take become `undone`. Returns an exception as `load`."""
        started = time.monotonic()
        defect = None
        for at, copy in enumerate(job.copies):
            try:
                ending = self._store_one(self._namespace(job.namespace), job, copy)
            except Exception as error:
                defect = error
                job.undone += job.copies[at:]
                self._counters.add(STORES, len(job.copies) - at, Ending.ERROR)
                break
            self._counters.add(STORES, 1, ending)
            if ending is not Ending.STORED:
                job.undone.append(copy)
        self._clock(job, started)
        return defect

    def refuse(self, job: Job, ending: Ending) -> None:
        """End a job that never started."""
        job.undone = list(job.copies)
        self._counters.add(LOADS if job.direction is Direction.LOAD else STORES, len(job.copies), ending)

    def _load_one(self, namespace: Namespace, job: Job, copy: Copy) -> Ending:
        if job.withdrawn:
            return Ending.WITHDRAWN
        if time.monotonic() > job.deadline:
            return Ending.TIMEOUT
        buffers = self._pages[copy.group].blocks(copy.blocks)
        copied = namespace.get_into(copy.key, buffers, first=copy.first, count=len(copy.blocks))
        job.bytes += copied
        return Ending.LOADED if copied else Ending.MISSING

    def _store_one(self, namespace: Namespace, job: Job, copy: Copy) -> Ending:
        if job.withdrawn:
            return Ending.WITHDRAWN
        buffers = self._pages[copy.group].blocks(copy.blocks)
        full_before = self._attachment.full_count()
        if not namespace.put(copy.key, buffers, units=len(copy.blocks)):
            job.full |= self._attachment.full_count() > full_before
            return Ending.REFUSED
        job.bytes += buffers.nbytes
        return Ending.STORED

    def _namespace(self, fingerprint: bytes) -> Namespace:
        namespace = self._namespaces.get(fingerprint)
        if namespace is None:
            namespace = self._namespaces[fingerprint] = self._attachment.namespace(fingerprint)
        return namespace

    def _clock(self, job: Job, started: float) -> None:
        job.seconds = time.monotonic() - started
        self._counters.add(COPY_BYTES, job.bytes, job.direction.value)
        self._counters.add(COPY_SECONDS, job.seconds, job.direction.value)
