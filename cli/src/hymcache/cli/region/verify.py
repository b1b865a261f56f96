"""`hymcache region verify`: read every object and check every checksum."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import click
from hymcache.cli.region.command import Failure, RegionCommand, bytes_text, print_json, show, table
from hymcache.cli.region.occupancy import objects
from hymcache.region import Region
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LEFT = "miss_changed"  # evicted while it was read: nothing is wrong with it


class Damage(NamedTuple):
    """An object that is not what was stored."""

    domain: int
    header: int
    generation: int
    reason: str


@dataclass
class Verified:
    """What a walk over all objects found."""

    objects: int = 0
    bytes: int = 0
    left: int = 0
    damaged: list[Damage] = field(default_factory=list)


@click.command(cls=RegionCommand)
def verify(target: str, as_json: bool) -> None:
    """Read and verify every object of TARGET; exit status 1 if one is damaged.

    Attaches read-only and repairs nothing. Objects that are evicted meanwhile are counted as left.
    """
    with Region.attach(target, read_only=True, populate=False) as region:
        found = walk(region, progress=not as_json)
        if region.info().lost:
            raise Failure(
                "lost", f"{target}: the region was formatted anew or lost memory while it was read; try again"
            )
    if as_json:
        print_json({**asdict(found), "damaged": [damage._asdict() for damage in found.damaged]})
    else:
        _show(found)
    if found.damaged:
        raise click.exceptions.Exit(1)


def walk(region: Region, *, progress: bool) -> Verified:
    """Verify the objects of every domain, valid and retired."""
    found = Verified()
    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    stderr = Console(stderr=True)
    with Progress(*columns, console=stderr, transient=True, disable=not (progress and stderr.is_terminal)) as bar:
        task = bar.add_task("", total=region.info().objects)
        lines = region.info().objects // region.info().domains
        for domain in range(region.info().domains):
            for seen in objects(region, domain):
                if seen.damage is not None:
                    found.damaged.append(Damage(domain, seen.header, seen.generation, seen.damage))
                elif seen.state in {"valid", "retired"}:
                    _one(found, region, (domain, seen.header, seen.generation))
                bar.update(task, completed=domain * lines + seen.header)
    return found


def _one(found: Verified, region: Region, place: tuple[int, int, int]) -> None:
    count, reason = region.verify(*place)
    if reason is None:
        found.objects += 1
        found.bytes += count
    elif reason == LEFT:
        found.left += 1
    else:
        found.damaged.append(Damage(*place, reason))


def _show(found: Verified) -> None:
    show(f"{found.objects} objects verified, {bytes_text(found.bytes)}; {found.left} left meanwhile")
    if found.damaged:
        rows = table("reason", "domain", "header", "generation", title=f"{len(found.damaged)} damaged")
        for damage in found.damaged:
            rows.add_row(damage.reason, str(damage.domain), str(damage.header), str(damage.generation))
        show(rows)
