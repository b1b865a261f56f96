"""The metrics that appear on vLLM's `/metrics`, and the counters that feed them.

Both processes of an engine count; vLLM adds their deltas up every step and labels them by model and engine.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Final

from hymcache.vllm.compat import OffloadingConnectorStats, OffloadingCounterMetadata, OffloadingGaugeMetadata

LOOKUPS: Final = "hymcache:lookups"
LOADS: Final = "hymcache:loads"
STORES: Final = "hymcache:stores"
COPY_BYTES: Final = "hymcache:copy_bytes"
COPY_SECONDS: Final = "hymcache:copy_seconds"
REGION_EVENTS: Final = "hymcache:region_events"
ATTACHED: Final = "hymcache:region_attached"

DEFINITIONS: Final = {
    LOOKUPS: OffloadingCounterMetadata(
        "Chunks of arriving prompts by what the region's directory said: hit, miss, or failed (a load of it failed "
        "here a short while ago, so it is not tried).",
        ("result",),
    ),
    LOADS: OffloadingCounterMetadata(
        "Chunks to be loaded by outcome: loaded, missing (evicted since the lookup, or its bytes did not verify), "
        "timeout, withdrawn, error. All but the first are recomputed.",
        ("outcome",),
    ),
    STORES: OffloadingCounterMetadata(
        "Chunks to be stored by outcome: stored, refused (no room, or another host was first), withdrawn (the engine "
        "needed the blocks), error.",
        ("outcome",),
    ),
    COPY_BYTES: OffloadingCounterMetadata("Bytes copied, by direction: load or store.", ("direction",)),
    COPY_SECONDS: OffloadingCounterMetadata("Seconds spent copying, by direction: load or store.", ("direction",)),
    REGION_EVENTS: OffloadingCounterMetadata(
        "What the region counted in this engine's processes, by its own name for it: misses by reason, verification "
        "failures, evictions, refusals.",
        ("event",),
    ),
    ATTACHED: OffloadingGaugeMetadata("1 when the engine uses the region, 0 when it runs without the shared tier."),
}


class Counters:
    """Counts since the last `take`. Written by the copy threads and the engine's thread, taken by the latter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
        self._gauges: dict[str, float] = {}

    def add(self, name: str, amount: float, *labels: str) -> None:
        """Add to a counter of `DEFINITIONS`."""
        with self._lock:
            self._counts[name, labels] += amount

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge of `DEFINITIONS`; reported once."""
        with self._lock:
            self._gauges[name] = value

    def take(self) -> OffloadingConnectorStats | None:
        """What was counted since the last call in vLLM's shape, or None."""
        with self._lock:
            counts, self._counts = self._counts, defaultdict(float)
            gauges, self._gauges = self._gauges, {}
        if not counts and not gauges:
            return None
        stats = OffloadingConnectorStats()
        for (name, labels), amount in counts.items():
            if amount:
                stats.increase_counter(name, amount, labelvalues=labels)
        for name, value in gauges.items():
            stats.set_gauge(name, value)
        return stats
