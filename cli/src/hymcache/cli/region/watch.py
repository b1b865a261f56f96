"""`hymcache region watch`: counters of a region in use, again and again."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from typing import Any, Self

import click
from hymcache.cli.region.command import Failure, RegionCommand, bytes_text, console, table
from hymcache.region import Region
from rich.live import Live
from rich.table import Table


@dataclass(frozen=True)
class Look:
    """One look at a region; one dictionary per domain."""

    at: float
    domains: list[dict[str, Any]]

    def json(self, before: Look | None) -> dict[str, Any]:
        """As plain values; rates need an earlier look."""
        return {"at": self.at, "domains": [domain | rates(self, before, i) for i, domain in enumerate(self.domains)]}


def look(region: Region) -> Look:
    """Read the counters now: chunks by use, process slots, puts ever begun, uses by the domain's own host."""
    processes = region.stats()["processes"]
    domains = [
        {
            "domain": number,
            "processes": processes[number],
            "chunks": region.chunk_use(number),
            **region.activity(number),
        }
        for number in range(region.info().domains)
    ]
    return Look(time.time(), domains)


def rates(now: Look, before: Look | None, domain: int) -> dict[str, float]:
    """Puts and uses per second since an earlier look."""
    seconds = now.at - before.at if before else 0
    if before is None or seconds <= 0:
        return {}
    old, new = before.domains[domain], now.domains[domain]
    return {f"{name}_per_second": round((new[name] - old[name]) / seconds, 1) for name in ("claims", "uses")}


@click.command(cls=RegionCommand)
@click.option("--interval", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--count", type=click.IntRange(1), help="Looks; by default until interrupted.")
def watch(target: str, as_json: bool, interval: float, count: int | None) -> None:
    """Show what happens in TARGET; with --json one line per look. Attaches read-only.

    claims are puts begun, uses are lookup hits, reads and puts of the domain's own host.
    """
    with Region.attach(target, read_only=True, populate=False) as region:
        chunk_bytes = region.info().chunk_bytes
        before: Look | None = None
        with Live(console=console(), auto_refresh=False) if not as_json else _Lines() as live:
            for number in itertools.count(1):
                now = look(region)
                if region.info().lost:
                    raise Failure("lost", f"{target}: the region was formatted anew or lost memory; watch it again")
                live.update(json.dumps(now.json(before)) if as_json else _table(now, before, chunk_bytes), refresh=True)
                if number == count:
                    return
                before = now
                time.sleep(interval)


class _Lines:
    """Prints every update as a line."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def update(self, line: Table | str, *, refresh: bool) -> None:
        """Print it at once."""
        del refresh
        click.echo(str(line))


def _table(now: Look, before: Look | None, chunk_bytes: int) -> Table:
    rows = table("domain", "procs", "used", "free", "valid", "retired", "writing", "orphan", "claims/s", "uses/s")
    for number, domain in enumerate(now.domains):
        use = domain["chunks"]
        rate = rates(now, before, number)
        used = sum(use.values()) - use["free"]
        speeds = [f"{rate[name]:,.0f}" if rate else "" for name in ("claims_per_second", "uses_per_second")]
        numbers = (use["free"], use["valid"], use["retired"], use["writing"] + use["leaving"], use["orphaned"])
        rows.add_row(str(number), str(domain["processes"]), bytes_text(used * chunk_bytes), *map(str, numbers), *speeds)
    return rows
