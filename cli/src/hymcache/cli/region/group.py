"""The group of `hymcache region`."""

from __future__ import annotations

import click
from hymcache.cli.region.bench import bench
from hymcache.cli.region.format import format_region
from hymcache.cli.region.inspect import inspect
from hymcache.cli.region.verify import verify
from hymcache.cli.region.watch import watch


@click.group()
def region() -> None:
    """Memory regions: format, look into, verify, measure, watch.

    TARGET is a file or device, or unix:/path.sock[?region=NAME]; without it HYMCACHE_REGION is taken. Exit status: 0;
    1 when the region refuses or holds damage; 2 for wrong arguments.
    """


for command in (format_region, inspect, verify, bench, watch):
    region.add_command(command)
