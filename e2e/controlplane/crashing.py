"""The operator, ended right after chosen writes to the API server or a fabric: `python -m controlplane.crashing`.

`CRASH_NOTES` is a file that gets a line for every write, over all processes of one life: a word for what was written
and where, names left out, and how often that has happened in this life so far. `CRASH_AT` is a JSON list of such lines;
the process ends after a write whose line is in it. Renewals of the Lease are left out: they come by time.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from hymcache.operator.main import main

EXIT_CRASHED = 137
NAMES = re.compile(
    r"(?<=/)(?:r-[0-9a-f-]{36}|test-[^/]+|hymcache-test-[^/]+|fabric-test-[^/]+|kv\w*)(?=/|$)"
    r"|(?<=Connections/)[^/]+|(?<=MemoryChunks/)[^/]+"
)


class Crash:
    """Notes writes, and ends the process after those that it was told of."""

    def __init__(self, at: set[str], notes: Path) -> None:
        self._at = at
        self._notes = notes

    def __call__(self, write: str) -> None:
        if "/leases" in write:
            return
        word = NAMES.sub("*", write)
        before = self._notes.read_text().splitlines() if self._notes.exists() else []
        line = f"{word} #{sum(old.rpartition(' #')[0] == word for old in before) + 1}"
        with self._notes.open("a") as sink:
            sink.write(line + "\n")
        if line in self._at:
            os._exit(EXIT_CRASHED)


if __name__ == "__main__":
    main(obj=Crash(set(json.loads(os.environ["CRASH_AT"])), Path(os.environ["CRASH_NOTES"])))
