"""The operator, ended without a word after its Nth write to the API server or a fabric (`-m controlplane.crashing`).

N is `CRASH_AFTER`. Renewals of the Lease do not count: they come by time, not by what the operator does. Each write is
noted in the file `CRASH_WRITES` before the end, so that a test can say after which one it was.
"""

from __future__ import annotations

import os
from pathlib import Path

from hymcache.operator.main import main

EXIT_CRASHED = 137


class Crash:
    """Counts writes."""

    def __init__(self, after: int, notes: Path) -> None:
        self._left = after
        self._notes = notes

    def __call__(self, write: str) -> None:
        if "/leases" in write:
            return
        self._left -= 1
        with self._notes.open("a") as sink:
            sink.write(write + "\n")
        if self._left == 0:
            os._exit(EXIT_CRASHED)


if __name__ == "__main__":
    main(obj=Crash(int(os.environ["CRASH_AFTER"]), Path(os.environ["CRASH_WRITES"])))
