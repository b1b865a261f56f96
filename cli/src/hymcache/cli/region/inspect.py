"""`hymcache region inspect`: what a region is and what it holds, without changing it."""

from __future__ import annotations

import click
from hymcache.cli.region.command import RegionCommand, bytes_text, print_json, show, table
from hymcache.cli.region.occupancy import Occupancy, Share, occupancy
from hymcache.region import Region
from rich.table import Table


@click.command(cls=RegionCommand)
def inspect(target: str, as_json: bool) -> None:
    """Show what TARGET is and its occupancy per domain, namespace and age.

    Attaches read-only; the region may be in use.
    """
    with Region.attach(target, read_only=True, populate=False) as region:
        found = occupancy(region)
    if as_json:
        print_json(found.json())
        return
    show(*_text(found))


def _text(found: Occupancy) -> list[Table | str]:
    region = found.region
    return [
        f"region {region['uuid']}, epoch {region['epoch']}, layout version {region['version']}, "
        f"{region['coherence']} coherence",
        f"{bytes_text(region['bytes'])}: {region['chunks']} chunks of {bytes_text(region['chunk_bytes'])}, "
        f"{bytes_text(region['metadata_bytes'])} of metadata, room for {region['objects']} objects, "
        f"pages of {bytes_text(region['page_bytes'])}",
        _domains(found),
        _shares("namespace", found.namespaces),
        _shares("age", found.ages),
    ]


def _domains(found: Occupancy) -> Table:
    rows = table(
        "domain", "processes", "objects", "bytes", "chunks free", "valid", "retired", "writing", "orphaned", "damaged"
    )
    for domain in found.domains:
        use = domain.chunk_use
        writing = use["writing"] + use["leaving"]
        numbers = (
            domain.processes,
            domain.objects,
            bytes_text(domain.bytes),
            use["free"],
            use["valid"],
            use["retired"],
        )
        damaged = sum(domain.damaged_lines.values())
        rows.add_row(*map(str, (domain.domain, *numbers, writing, use["orphaned"], damaged)))
    return rows


def _shares(name: str, shares: dict[str, Share]) -> Table:
    rows = table(name, "objects", "bytes", "chunks")
    for key, share in (
        sorted(shares.items(), key=lambda item: -item[1].bytes) if name == "namespace" else shares.items()
    ):
        rows.add_row(key, str(share.objects), bytes_text(share.bytes), str(share.chunks))
    return rows
