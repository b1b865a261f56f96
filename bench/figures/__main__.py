"""`make bench-region`: every figure of the region with its floor and goal; exit status 1 when a floor is missed."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from hymcache.cli.region.command import Failure
from hymcache.region import RegionError
from rich.console import Console
from rich.table import Table

from figures import copies, lookups, processes, scale
from figures.target import Figure, missed, until_reached
from figures.world import is_busy, shared_memory

GROUPS: dict[str, Callable[[Path], Iterable[Figure]]] = {
    "own": copies.own_domain,
    "foreign": copies.foreign_domain,
    "fresh": copies.fresh_slots,
    "pages": copies.pages,
    "threads": copies.two_threads,
    "second": copies.second_thread,
    "overhead": copies.overhead,
    "lookup": lookups.lookups,
    "view": lookups.views,
    "attach": processes.attach,
    "scale": scale.ten_terabytes,
    "death": processes.death,
    "portable": processes.portable,
}


def limit(figure: Figure, value: float | None) -> str:
    """A floor or goal as text."""
    return "" if value is None else f"{'<=' if figure.at_most else '>='} {value:.4g}"


def table(figures: list[Figure]) -> Table:
    """One row per figure."""
    made = Table()
    for column in ("figure", "measured", "floor", "goal", "verdict", "times", "detail"):
        made.add_column(column, justify="right" if column in {"measured", "floor", "goal", "times"} else "left")
    for figure in figures:
        measured = "" if figure.wrong else f"{figure.value:.3g} {figure.unit}"
        verdict = f"{figure.wrong} wrong" if figure.wrong else figure.verdict.value
        limits = limit(figure, figure.floor), limit(figure, figure.goal)
        made.add_row(figure.name, measured, *limits, verdict, str(figure.measurements), figure.detail)
    return made


def main() -> int:
    """Measure the chosen groups; the exit status."""
    parser = argparse.ArgumentParser(prog="make bench-region", description=__doc__)
    parser.add_argument("--only", default=",".join(GROUPS), help=f"groups, of {', '.join(GROUPS)}")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--folder", type=Path, default=shared_memory(), help="where regions are made")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(GROUPS):
        parser.error(f"--only: expected groups of {', '.join(GROUPS)}, found {', '.join(sorted(unknown))}")
    figures: list[Figure] = []
    console = Console(stderr=True)
    for name in names:
        with console.status(name):
            try:
                figures += until_reached(partial(GROUPS[name], options.folder))
            except (Failure, RegionError, RuntimeError, OSError) as error:
                print(f"{name}: could not be measured: {error}", file=sys.stderr)
                return 1
    failed, load = missed(figures), os.getloadavg()[0]
    clock = "CPU" if is_busy() else "elapsed"
    if options.json:
        shown = {"clock": clock, "load": load, "figures": [figure.json() for figure in figures], "missed": len(failed)}
        print(json.dumps(shown, indent=2))
    else:
        out = Console() if Console().is_terminal else Console(width=180)
        out.print(table(figures), f"copies compared by {clock} time; load {load:.1f}")
    for figure in failed:
        print(f"{figure.name}: {figure.verdict.value} in {figure.measurements} measurements", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
