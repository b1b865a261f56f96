"""CXL memory regions: format, attach, look up, put and get KV objects in shared memory.

    from hymcache.region import Region

    Region.format("/dev/shm/region", size=1 << 30)
    with Region.attach("/dev/shm/region") as region:
        ns = region.namespace(fingerprint)        # 32 bytes: everything that makes KV bytes meaningful
        ns.put(key, buffers)                      # False = not stored
        hits = ns.lookup(keys)                    # length of the leading run of hits
        ns.get_into(key, buffers)                 # bytes copied and verified, 0 = miss

Every anomaly inside a region is a miss and a counter in `stats()`, never an exception. Exceptions are for format and
attach (`RegionError`, with a `kind`) and for wrong arguments (`TypeError`, `ValueError`).
"""

from __future__ import annotations

from hymcache.region.handover import HandoverError
from hymcache.region.region import (
    Blocks,
    Evicted,
    Hint,
    Namespace,
    Pages,
    Region,
    RegionError,
    RegionInfo,
    RegionStats,
    ReserveStatus,
    View,
)

__all__ = [
    "Blocks",
    "Evicted",
    "HandoverError",
    "Hint",
    "Namespace",
    "Pages",
    "Region",
    "RegionError",
    "RegionInfo",
    "RegionStats",
    "ReserveStatus",
    "View",
]
