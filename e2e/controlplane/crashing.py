"""Processes that end right after chosen writes, and the operator as one: `operator`.

`CRASH_NOTES` is a file that gets a line for every write, over all processes of one life: a word for what was written
and where, names left out, and how often that has happened in this life so far. `CRASH_AT` is a JSON list of such lines;
the process ends after a write whose line is in it. Renewals of the Lease are left out: they come by time.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from hymcache.operator.main import main

EXIT_CRASHED = 137
NAMES = re.compile(
    r"(?<=/)(?:r-[0-9a-f-]{36}|test-[^/]+|hymcache-test-[^/]+|fabric-test-[^/]+|kv\w*)(?=/|$)"
    r"|(?<=Connections/)[^/]+|(?<=MemoryChunks/)[^/]+"
)


def environment(at: Iterable[str], notes: Path) -> dict[str, str]:
    """What a process needs to know to end after the writes `at`."""
    return {"CRASH_AT": json.dumps(sorted(at)), "CRASH_NOTES": str(notes)}


class Crash:
    """Notes writes, and ends the process after those that it was told of. Thread-safe."""

    def __init__(self, at: set[str], notes: Path) -> None:
        self._at = at
        self._notes = notes
        self._lock = threading.Lock()

    @classmethod
    def planned(cls) -> Self:
        """As the environment has it."""
        return cls(set(json.loads(os.environ["CRASH_AT"])), Path(os.environ["CRASH_NOTES"]))

    def __call__(self, write: str) -> None:
        if "/leases" in write:
            return
        word = NAMES.sub("*", write)
        with self._lock:
            before = self._notes.read_text().splitlines() if self._notes.exists() else []
            line = f"{word} #{sum(old.rpartition(' #')[0] == word for old in before) + 1}"
            with self._notes.open("a") as sink:
                sink.write(line + "\n")
            if line in self._at:
                os._exit(EXIT_CRASHED)


def operator() -> None:
    """Run the operator; an entry for `Process`."""
    main(obj=Crash.planned())
