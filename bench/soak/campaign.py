"""What a campaign is, and how it is run: seeded steps whose results are kept, so that it can go on where it ended."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Result = dict[str, Any]


@dataclass(frozen=True)
class Campaign:
    """`steps` independent steps; each gets a path for a region and a random generator of its own.

    `problems` says what in a step's result must not be, one sentence each; `total` adds the results up for the summary.
    """

    name: str
    what: str
    steps: int
    step: Callable[[Path, random.Random], Result]
    problems: Callable[[Result], list[str]]
    total: Callable[[list[Result]], Result]


@contextmanager
def region_path(folder: Path) -> Iterator[Path]:
    """A path for the region of one step."""
    with TemporaryDirectory(prefix="hymcache-soak-", dir=folder) as name:
        yield Path(name) / "region"


class Log:
    """Results of a campaign under one seed, a line per step; a line that was cut by a crash is dropped."""

    def __init__(self, folder: Path, campaign: Campaign, seed: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{campaign.name}-{seed}.jsonl"
        self.results: dict[int, Result] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                try:
                    result = json.loads(line)
                except ValueError:
                    continue
                self.results[result["step"]] = result

    def add(self, result: Result) -> None:
        """Keep a result, whole or not at all."""
        self.results[result["step"]] = result
        with self.path.open("a") as file:
            file.write("\n" * self._is_cut() + json.dumps(result) + "\n")

    def _is_cut(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0 and not self.path.read_bytes().endswith(b"\n")


def run(
    campaign: Campaign, log: Log, *, seed: int, steps: int, folder: Path, progress: Callable[[int], None]
) -> list[str]:
    """Run the steps that the log does not have; return the problems of all of them."""
    for step in range(steps):
        if step not in log.results:
            started = time.monotonic()
            with region_path(folder) as path:
                result = campaign.step(path, random.Random(f"{seed} {campaign.name} {step}"))
            log.add({"step": step, **result, "seconds": round(time.monotonic() - started, 3)})
        progress(step + 1)
    found = [(step, problem) for step in range(steps) for problem in campaign.problems(log.results[step])]
    return [f"{campaign.name}, step {step} of seed {seed}: {problem}" for step, problem in found]
