"""`hymcache region bench`: puts and gets of a region against plain copies of the same memory, in paired rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from hymcache.cli.region.command import RegionCommand, Size, Sizes, bytes_text, print_json, show, table
from hymcache.cli.region.contest import TURN_BYTES, Contestant, paired, quantile, ratio
from hymcache.cli.region.workload import Workload
from hymcache.region import Region
from hymcache.region.bare import copies
from rich.console import Console
from rich.table import Table

SURVEY_ROUNDS = 3
COLUMNS = (
    "work|size|memcpy GB/s|best bare|x memcpy|GB/s|x memcpy|x bare|p50 us|p99 us|p99.9 us|CPU s/GB|verified|failures"
)
SIZES = ("1Mi", "4Mi", "16Mi")


@dataclass(frozen=True)
class Row:
    """One kind of work at one size. Ratios are of times, above 1 = faster than what it is compared with.

    With failures nothing is known about speed: all figures but the counts are None.
    """

    work: str
    object_bytes: int
    best_bare: str
    verified: int
    failures: int
    memcpy_gb_per_second: float | None = None
    bare_to_memcpy: float | None = None
    gb_per_second: float | None = None
    to_memcpy: float | None = None
    to_bare: float | None = None
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    cpu_seconds_per_gb: float | None = None
    cpu_to_memcpy: float | None = None


@click.command(cls=RegionCommand)
@click.option("--domain", type=int, default=0, show_default=True, help="The domain to store into.")
@click.option(
    "--sizes",
    type=Sizes(),
    default=",".join(SIZES),
    show_default=True,
    metavar="BYTES,BYTES",
    help="Sizes of objects.",
)
@click.option("--working-set", type=Size(), default="256Mi", show_default=True, help="Free chunks to work in.")
@click.option("--rounds", type=click.IntRange(3), default=15, show_default=True, help="Paired rounds per row.")
@click.option("--host", help="Name of this host, where a plugin gave it one.")
@click.option("--lock-file", type=click.Path(path_type=Path), help="For devices: the lock file of all their users.")
def bench(target: str, as_json: bool, sizes: list[int], working_set: int, rounds: int, **options: Any) -> None:
    """Measure puts and verified gets in free chunks of TARGET; nothing that is stored there is evicted.

    Each row compares with memcpy and with this CPU's best unverified copy of the same memory in the same rounds. No
    figure is shown for a row in which anything failed, and the exit status is then 1. Choose a working set of several
    times the last-level cache; objects smaller than a chunk fill a part of it only.
    """
    with Region.attach(target, **options) as region:
        rows = list(measure(region, sizes, working_set, rounds))
        info = region.info()
        machine = {"kernel": info.kernel, "page_bytes": info.page_bytes, "coherence": info.coherence, "media": target}
    if as_json:
        print_json({**machine, "rows": [asdict(row) for row in rows]})
    else:
        show(f"kernel {info.kernel}; pages of {bytes_text(info.page_bytes)}; {info.coherence} coherence", _table(rows))
    if any(row.failures for row in rows):
        raise click.exceptions.Exit(1)


def measure(region: Region, sizes: list[int], working_set: int, rounds: int) -> Iterator[Row]:
    """A row for the get and one for the put of each size."""
    console = Console(stderr=True)
    for size in sizes:
        if size % 256 or not size:
            raise ValueError(f"--sizes: expected multiples of 256 bytes, found {size}")
        with console.status(f"objects of {bytes_text(size)}"), Workload(region, size, working_set).stored() as work:
            yield row("get", work, work.get, work.get_bare, rounds)
            yield row("put", work, work.put, work.put_bare, rounds)


def row(
    name: str,
    work: Workload,
    ours: Callable[[], Contestant],
    bare: Callable[[str], Contestant],
    rounds: int,
    *,
    cpu: bool = False,
) -> Row:
    """Find the best bare copy in a few rounds; then it, memcpy and ours in all of them.

    With `cpu` the ratios are of CPU time: the same on an idle machine, and not moved by other work on a busy one.
    """
    per_turn = max(1, min(TURN_BYTES // work.bytes, work.count // 2))
    survey = [bare(copy) for copy in copies()]
    paired(survey, work.count, per_turn, SURVEY_ROUNDS)
    best = max(survey, key=lambda one: ratio(survey[0], one, cpu=cpu)).name
    memcpy, plain, measured = bare(survey[0].name), bare(best), ours()
    paired([memcpy, plain, measured], work.count, per_turn, rounds)
    return figures(name, work.bytes, (memcpy, plain, measured), cpu=cpu)


def figures(name: str, size: int, contest: tuple[Contestant, Contestant, Contestant], *, cpu: bool = False) -> Row:
    """What a contest between memcpy, the best bare copy and ours says."""
    memcpy, plain, ours = contest
    failures = sum(one.failures for one in contest)
    if failures:
        return Row(name, size, plain.name, ours.verified, failures)
    turn_bytes = size * len(ours.samples) / len(ours.rounds)
    return Row(
        name,
        size,
        plain.name,
        ours.verified,
        0,
        memcpy_gb_per_second=1e-9 * turn_bytes / statistics.median(memcpy.rounds),
        bare_to_memcpy=ratio(memcpy, plain, cpu=cpu),
        gb_per_second=1e-9 * turn_bytes / statistics.median(ours.rounds),
        to_memcpy=ratio(memcpy, ours, cpu=cpu),
        to_bare=ratio(plain, ours, cpu=cpu),
        p50_us=1e6 * quantile(ours.samples, 0.5),
        p99_us=1e6 * quantile(ours.samples, 0.99),
        p999_us=1e6 * quantile(ours.samples, 0.999),
        cpu_seconds_per_gb=1e9 * statistics.median(ours.cpu) / turn_bytes,
        cpu_to_memcpy=1 / ratio(memcpy, ours, cpu=True),
    )


def _table(rows: list[Row]) -> Table:
    made = table(*COLUMNS.split("|"))
    for row in rows:
        head = (row.work, bytes_text(row.object_bytes))
        counts = (str(row.verified), str(row.failures))
        if row.failures:
            made.add_row(*head, "", row.best_bare, *[""] * 8, *counts)
            continue
        numbers = (row.bare_to_memcpy, row.gb_per_second, row.to_memcpy, row.to_bare)
        times = (row.p50_us, row.p99_us, row.p999_us)
        made.add_row(
            *head,
            f"{row.memcpy_gb_per_second:.2f}",
            row.best_bare,
            *(f"{number:.2f}" for number in numbers),
            *(f"{number:.1f}" for number in times),
            f"{row.cpu_seconds_per_gb:.3f}",
            *counts,
        )
    return made
