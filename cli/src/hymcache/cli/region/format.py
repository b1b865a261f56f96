"""`hymcache region format`: write an empty region. The only verb that overwrites anything."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
from hymcache.cli.region.command import RegionCommand, Size, bytes_text, print_json, show
from hymcache.region import Region


@click.command("format", cls=RegionCommand)
@click.option("--size", type=Size(), help="Bytes of the region; by default all of the medium. Creates a missing file.")
@click.option("--chunk-size", type=Size(), default="2Mi", show_default=True, help="A power of two, 64Ki to 64Mi.")
@click.option("--domains", type=int, default=1, show_default=True, help="Parts with one writing host each.")
@click.option("--coherence", type=click.Choice(["software", "hardware"]), default="software", show_default=True)
@click.option("--objects", type=int, help="Objects to expect, which sizes the directory; by default one per chunk.")
@click.option("--uuid", help="Identity of the region; random by default.")
@click.option("--replaces", type=int, metavar="EPOCH", help="Give up the region that is there, named by its epoch.")
@click.option("--clear", is_flag=True, help="Zero every byte first: gives up whatever another owner left there.")
@click.option("--lock-file", type=click.Path(path_type=Path), help="For devices: the lock file of all their users.")
def format_region(target: str, as_json: bool, chunk_size: int, **options: Any) -> None:
    """Write an empty region to TARGET.

    Refuses what is not empty: foreign bytes unless --clear is given, a region unless --replaces names its epoch.
    """
    info = Region.format(target, chunk_bytes=chunk_size, **options)
    if as_json:
        print_json(dataclasses.asdict(info))
        return
    show(
        f"region {info.uuid}, epoch {info.epoch}: {bytes_text(info.bytes)} in {info.domains} "
        f"domain{'s' if info.domains > 1 else ''}, {info.chunks} chunks of {bytes_text(info.chunk_bytes)}, "
        f"{bytes_text(info.metadata_bytes)} of metadata for {info.objects} objects"
    )
