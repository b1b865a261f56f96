#!/usr/bin/env python3
"""Run named stages one after the other: a deadline each, one table and one test count at the end.

    tools/stages.py lint test-rust ...        # `--list` names them

Each stage is a make target; its output is shown as it comes and kept in `out/logs/STAGE.log`. A stage that fails does
not stop the ones after it, unless they depend on it. Exit status 0 when all passed. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "out" / "logs"
TOTAL_MINUTES = 80  # the guard: a run that would be cut from outside ends here with a table


@dataclass(frozen=True)
class Stage:
    """One make target: what it shows, how long it may take (minutes, cold), what must have passed before."""

    target: str
    what: str
    minutes: float
    needs: tuple[str, ...] = ()


@dataclass
class Outcome:
    """How a stage ended: status word, seconds, tests passed and failed."""

    status: str
    seconds: float
    passed: int
    failed: int


STAGES = (
    Stage("preflight", "root, disk and Debian packages", 5),
    Stage("install", "Python workspace and Rust extension", 12),
    Stage("lint", "ruff, clippy, rustfmt, import layers, generated files, budgets", 8, ("install",)),
    Stage("types", "mypy strict", 4, ("install",)),
    Stage("test-unit", "Python tests of every distribution", 12, ("install",)),
    Stage("test-rust", "Rust tests: protocol, adversary, kernels", 15, ("install",)),
    Stage("bench-copy", "copy kernels against memcpy: the floors", 8, ("install",)),
    Stage("bench-region", "the region's figures: puts, gets, lookups, attach; the floors", 8, ("install",)),
    Stage("bench-traces", "hit rates of eviction on Mooncake's traces, if they are there, beside LRU and ARC", 6),
    Stage("test-engine", "the connector on vLLM's scheduler, and real vLLM servers", 25, ("install",)),
    Stage("test-controlplane", "operator and plugin on a real API server and scheduler", 30, ("install",)),
    Stage("demo-small", "two vLLM servers share a prefix through a region", 12, ("install",)),
    Stage("e2e", "a kind cluster, the chart, two vLLM pods on two workers", 45, ("preflight", "install")),
)
BY_NAME = {stage.target: stage for stage in STAGES}

PYTEST = re.compile(r"^=+ .*\bin [\d.]+s.* =+$|^\d+ (?:passed|failed).* in [\d.]+s")
CARGO = re.compile(r"^test result: .*? (\d+) passed; (\d+) failed")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def counts(log: str) -> tuple[int, int]:
    """Tests passed and failed in a stage's output: pytest summaries and cargo results, summed."""
    passed = failed = 0
    for raw in log.splitlines():
        line = ANSI.sub("", raw)
        if match := CARGO.match(line):
            passed += int(match[1])
            failed += int(match[2])
        elif PYTEST.match(line):
            passed += sum(int(n) for n in re.findall(r"(\d+) passed", line))
            failed += sum(int(n) for n in re.findall(r"(\d+) (?:failed|error)", line))
    return passed, failed


def run(stage: Stage, seconds_left: float) -> Outcome:
    """Run one stage in its own process group and end it, children included, at its deadline."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{stage.target}.log"
    deadline = min(stage.minutes * 60, seconds_left)
    started = time.monotonic()
    with log.open("wb") as sink:
        child = subprocess.Popen(
            ["make", "--no-print-directory", stage.target],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        cut = threading.Timer(deadline, lambda: os.killpg(child.pid, signal.SIGTERM))
        hard = threading.Timer(deadline + 30, lambda: os.killpg(child.pid, signal.SIGKILL))
        for timer in (cut, hard):
            timer.daemon = True
            timer.start()
        assert child.stdout is not None
        try:
            for line in child.stdout:
                sink.write(line)
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            code = child.wait()
        except BaseException:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait(30)
            raise
        finally:
            late = not cut.is_alive()
            cut.cancel()
            hard.cancel()
    passed, failed = counts(log.read_text(errors="replace"))
    status = "ok" if code == 0 else f"timeout after {deadline / 60:.0f} min" if late else f"exit status {code}"
    if code and not failed:
        failed = 1  # a stage that broke outside its tests still counts
    return Outcome(status, time.monotonic() - started, passed, failed)


def table(outcomes: dict[str, Outcome]) -> str:
    """The closing table, one row a stage, then the total line that CI reads."""
    rows = [f"{'stage':<20} {'result':<24} {'time':>8} {'passed':>8} {'failed':>7}"]
    for name, outcome in outcomes.items():
        minutes, seconds = divmod(round(outcome.seconds), 60)
        rows.append(
            f"{name:<20} {outcome.status:<24} {minutes:>4}:{seconds:02d} {outcome.passed:>10} {outcome.failed:>7}"
        )
    total = sum(o.seconds for o in outcomes.values())
    passed, failed = sum(o.passed for o in outcomes.values()), sum(o.failed for o in outcomes.values())
    rows += ["-" * 72, f"total {total / 60:.1f} min", f"{passed} passed, {failed} failed"]
    return "\n".join(rows)


def main() -> int:
    """Run the named stages; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", choices=[*BY_NAME, []])
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for stage in STAGES:
            print(f"{stage.target:<20} {stage.what} (at most {stage.minutes:g} min)")
        return 0
    outcomes: dict[str, Outcome] = {}
    started = time.monotonic()
    for name in options.stages or BY_NAME:
        stage = BY_NAME[name]
        missing = [need for need in stage.needs if need in outcomes and outcomes[need].status != "ok"]
        left = TOTAL_MINUTES * 60 - (time.monotonic() - started)
        if missing or left <= 0:
            why = f"not run: {missing[0]} failed" if missing else "not run: no time left"
            outcomes[name] = Outcome(why, 0.0, 0, 1)
            continue
        print(f"\n=== {name}: {stage.what}", flush=True)
        outcomes[name] = run(stage, left)
    print("\n" + table(outcomes), flush=True)
    return 0 if all(o.status == "ok" and not o.failed for o in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
