"""One of two hosts that share a device: `format`, `put OWN`, `get OWN OTHER`, `churn OWN OTHER SECONDS`; JSON out."""

from __future__ import annotations

import json
import random
import sys
import time

import memory
from attached import FINGERPRINT, content
from hymcache.region import Namespace, Region

LOCK = "/run/lock-file"
SIZES = (1000, 64 << 10, 3 << 20)
CHURN_BYTES = 48 << 10
CHURN_KEYS = 600
"""More than a domain has room for."""


def main() -> None:
    verb, *numbers = sys.argv[1:]
    node = memory.enable(memory.composed())
    if verb == "format":
        info = Region.format(node, domains=2, lock_file=LOCK, chunk_bytes=64 << 10, size=64 << 20)
        print(json.dumps({"uuid": info.uuid, "chunks": info.chunks}))
        return
    own, other = int(numbers[0]), int([*numbers, "0"][1])
    with Region.attach(node, domain=own, lock_file=LOCK) as region:
        ns = region.namespace(FINGERPRINT)
        if verb == "put":
            print(json.dumps([ns.put(key.encode(), content(key, size)) for key, size in _objects(own)]))
        elif verb == "get":
            print(json.dumps([_get(ns, key, size) for key, size in _objects(other)]))
        else:
            counts = _churn(ns, own, other, float(numbers[2]))
            print(json.dumps({"counts": counts, "stats": {k: v for k, v in region.stats().items() if v}}))


def _objects(domain: int) -> list[tuple[str, int]]:
    return [(f"host {domain} size {size}", size) for size in SIZES]


def _get(ns: Namespace, key: str, size: int) -> str:
    buffer = bytearray(size)
    copied = ns.get_into(key.encode(), buffer)
    if not copied:
        return "miss"
    return "same" if copied == size and buffer == content(key, size) else "WRONG"


def _churn(ns: Namespace, own: int, other: int, seconds: float) -> dict[str, int]:
    """Put own keys, round after round, and read some of the other host's all the while."""
    counts = {"put": 0, "refused": 0, "same": 0, "miss": 0, "WRONG": 0}
    rng = random.Random(own)
    deadline = time.monotonic() + seconds
    number = 0
    while time.monotonic() < deadline:
        key = f"churn {own} {number % CHURN_KEYS}"
        counts["put" if ns.put(key.encode(), content(key, CHURN_BYTES)) else "refused"] += 1
        for _ in range(4):
            counts[_get(ns, f"churn {other} {rng.randrange(CHURN_KEYS)}", CHURN_BYTES)] += 1
        number += 1
    return counts


if __name__ == "__main__":
    main()
