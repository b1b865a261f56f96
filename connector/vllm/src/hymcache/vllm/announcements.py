"""What KV-aware routers are told: which chunks can be loaded through this engine.

Events carry the medium `CPU` and the locality `REMOTE`: a router that does not know shared memory then ranks it like
host memory, below an engine's own cache. The list is bounded, because vLLM keeps the tokens of every announced chunk
until its removal is announced and a region does not tell an engine what other hosts evict: the oldest go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Final

from hymcache.vllm.compat import Locality, Medium, OffloadingEvent, OffloadKey

ANNOUNCED_MAX: Final = 65_536


class Announcements:
    """Events of one engine, collected between two calls of `take`. Inert unless `enabled`."""

    def __init__(self, *, enabled: bool, announced_max: int = ANNOUNCED_MAX) -> None:
        self._enabled = enabled
        self._announced_max = announced_max
        self._announced: OrderedDict[bytes, OffloadKey] = OrderedDict()
        self._changes: list[tuple[bool, OffloadKey]] = []

    def add(self, stored: Mapping[bytes, OffloadKey]) -> None:
        """These chunks are in the region now: name in the region -> vLLM's key."""
        if not self._enabled:
            return
        for name, key in stored.items():
            if name not in self._announced:
                self._changes.append((False, key))
            self._announced[name] = key
            self._announced.move_to_end(name)
        while len(self._announced) > self._announced_max:
            self._changes.append((True, self._announced.popitem(last=False)[1]))

    def remove(self, names: Collection[bytes]) -> None:
        """These chunks could not be loaded."""
        gone = (self._announced.pop(name, None) for name in names)
        self._changes += [(True, key) for key in gone if key is not None]

    def take(self) -> Iterator[OffloadingEvent]:
        """The events since the last call, in order."""
        changes, self._changes = self._changes, []
        for removed, run in groupby(changes, key=itemgetter(0)):
            keys = [key for _, key in run]
            yield OffloadingEvent(keys=keys, medium=Medium.CPU, removed=removed, locality=Locality.REMOTE)
