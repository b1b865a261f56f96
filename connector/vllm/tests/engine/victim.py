"""A worker to be killed: copies tagged chunks into the region and back for as long as it lives."""

from __future__ import annotations

import itertools
from multiprocessing.connection import Connection

import numpy as np
import torch
from hymcache.vllm.attachment import attach
from hymcache.vllm.compat import CanonicalKVCaches, GPULoadStoreSpec
from hymcache.vllm.metrics import Counters
from hymcache.vllm.settings import Settings
from hymcache.vllm.transfers import ObjectsSpec
from hymcache.vllm.worker import HymCacheWorker
from vllm.v1.kv_offload.base import CanonicalKVCacheRef, CanonicalKVCacheTensor

CHUNK_BLOCKS, PAGE_BYTES, TENSORS = 4, 512 << 10, 2
NAMESPACE = b"n" * 32
SOURCE, TARGET = list(range(CHUNK_BLOCKS)), list(range(CHUNK_BLOCKS, 2 * CHUNK_BLOCKS))


def key(number: int) -> bytes:
    return number.to_bytes(36, "big")


class Victim:
    """A `HymCacheWorker` on memory of its own: blocks 0-3 are stored, blocks 4-7 are loaded into."""

    def __init__(self, region: str, domain: int) -> None:
        self.pages = [torch.zeros(2 * CHUNK_BLOCKS, PAGE_BYTES, dtype=torch.int8) for _ in range(TENSORS)]
        caches = CanonicalKVCaches(
            [CanonicalKVCacheTensor(page, PAGE_BYTES) for page in self.pages],
            [[CanonicalKVCacheRef(number, PAGE_BYTES) for number in range(TENSORS)]],
        )
        settings = Settings(region=region, domain=domain)
        self.worker = HymCacheWorker(attach(settings), caches, CHUNK_BLOCKS, settings, Counters())
        self.words = [page.numpy().view(np.uint64) for page in self.pages]
        self._jobs = itertools.count()

    def fill(self, number: int) -> None:
        for layer, words in enumerate(self.words):
            words[SOURCE] = self.tags(number, layer)

    def tags(self, number: int, layer: int) -> np.ndarray:
        """What chunk `number` holds in one tensor: other words in every block and tensor."""
        return (np.arange(CHUNK_BLOCKS, dtype=np.uint64) + np.uint64((number << 16) + (layer << 8) + 1))[:, None]

    def store(self, number: int) -> bool:
        return not self._run(self.worker.submit_store, number, SOURCE).unstored_keys

    def load(self, number: int) -> str:
        """`right`, `wrong`, or `miss`."""
        for words in self.words:
            words[TARGET] = 0
        if self._run(self.worker.submit_load, number, TARGET).blocks:
            return "miss"
        same = all((words[TARGET] == self.tags(number, layer)).all() for layer, words in enumerate(self.words))
        return "right" if same else "wrong"

    def _run(self, submit, number, blocks):
        job = next(self._jobs)
        spec, objects = GPULoadStoreSpec(blocks, [CHUNK_BLOCKS], [0]), ObjectsSpec(NAMESPACE, [key(number)])
        submit(job, *((spec, objects) if submit == self.worker.submit_store else (objects, spec)))
        while not self.worker.get_finished():
            self.worker._jobs[job].ended.wait(0.001)
        return self.worker.take_outcome()


def live(region: str, domain: int, first: int, tell: Connection) -> None:
    """Store and load until killed; tells the number of each chunk that was stored, or what was wrong."""
    victim = Victim(region, domain)
    tell.send("ready")
    for number in itertools.count(first):
        victim.fill(number)
        if victim.store(number):
            tell.send(number)
        for past in (number, max(first - 3, 0)):
            if victim.load(past) == "wrong":
                tell.send(f"chunk {past} holds wrong bytes")
