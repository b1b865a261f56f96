"""A process that attaches to a region as told and does what it is asked: one JSON line in, one JSON line out."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

from hymcache.region import Region

FINGERPRINT = bytes(range(32))


def content(key: str, size: int) -> bytes:
    """Bytes that only this key has."""
    digest = hashlib.shake_128(key.encode())
    return digest.digest(4096) * (size // 4096) + digest.digest(size % 4096)


def main() -> None:
    options = json.loads(sys.argv[1])
    with Region.attach(options.pop("target"), **options) as region:
        ns = region.namespace(FINGERPRINT)

        def put(key: str, size: int) -> bool:
            return ns.put(key.encode(), content(key, size))

        def get(key: str, size: int) -> str:
            buffer = bytearray(size)
            copied = ns.get_into(key.encode(), buffer)
            if not copied:
                return "miss"
            return "same" if copied == size and buffer == content(key, size) else "WRONG"

        def reserve(key: str, size: int) -> list[int]:
            return list(ns.reserve([key.encode()], 1, unit_bytes=size)[1])

        verbs: dict[str, Any] = {
            "put": put,
            "get": get,
            "reserve": reserve,
            "lookup": lambda *keys: ns.lookup([key.encode() for key in keys]),
            "users": region.users,
            "info": lambda: {name: getattr(region.info(), name) for name in ("lost", "page_bytes", "process_slot")},
            "stats": region.stats,
        }
        print(json.dumps({"slot": region.info().process_slot}), flush=True)
        for line in sys.stdin:
            verb, *arguments = json.loads(line)
            print(json.dumps(verbs[verb](*arguments)), flush=True)


if __name__ == "__main__":
    main()
