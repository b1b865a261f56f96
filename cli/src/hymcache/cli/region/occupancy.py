"""What a region holds, counted: per domain, per namespace, per age."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from hymcache.region import Region

AGES = ((60, "1 minute"), (600, "10 minutes"), (3600, "1 hour"), (86400, "1 day"), (604800, "1 week"))


class Seen(NamedTuple):
    """A header line that is not free; see `Region.objects`."""

    header: int
    generation: int
    state: str
    damage: str | None
    namespace: int
    units: int
    bytes: int
    chunks: int
    stored_seconds: int


@dataclass
class Share:
    """Valid objects of one kind."""

    objects: int = 0
    bytes: int = 0
    chunks: int = 0

    def add(self, seen: Seen) -> None:
        """Count one object."""
        self.objects += 1
        self.bytes += seen.bytes
        self.chunks += seen.chunks


@dataclass
class Domain(Share):
    """One domain: its valid objects, its other header lines by state, its chunks by what holds them."""

    domain: int = 0
    processes: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    damaged_lines: dict[str, int] = field(default_factory=dict)
    chunk_use: dict[str, int] = field(default_factory=dict)


@dataclass
class Occupancy:
    """Everything `inspect` shows. Namespaces are fingerprints in hex, `unregistered` where a header names none."""

    region: dict[str, Any]
    domains: list[Domain]
    namespaces: dict[str, Share]
    ages: dict[str, Share]

    def json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def objects(region: Region, domain: int) -> Iterator[Seen]:
    """Every header line of a domain that is not free."""
    following: int | None = None
    while following != 0:
        following, rows = region.objects(domain, following or 0)
        yield from (Seen(*row) for row in rows)


def age_name(seconds: float) -> str:
    """The first age that is not below `seconds`."""
    return next((f"up to {name}" for limit, name in AGES if seconds <= limit), "older")


def occupancy(region: Region) -> Occupancy:
    """Count what the region holds now."""
    info = region.info()
    processes = region.stats()["processes"]
    namespaces: defaultdict[str, Share] = defaultdict(Share)
    ages = {f"up to {name}": Share() for _, name in AGES} | {"older": Share()}
    domains = []
    for number in range(info.domains):
        names = {n: fingerprint.hex() for n, fingerprint in region.namespaces(number)}
        domain = Domain(domain=number, processes=processes[number], chunk_use=region.chunk_use(number))
        lines: Counter[str] = Counter()
        damaged: Counter[str] = Counter()
        for seen in objects(region, number):
            if seen.damage is not None:
                damaged[seen.damage] += 1
                continue
            lines[seen.state] += 1
            if seen.state == "valid":
                domain.add(seen)
                namespaces[names.get(seen.namespace, "unregistered")].add(seen)
                ages[age_name(time.time() - info.formatted_at - seen.stored_seconds)].add(seen)
        domain.lines, domain.damaged_lines = dict(lines), dict(damaged)
        domains.append(domain)
    described = {key: value for key, value in asdict(info).items() if key not in {"domain", "process_slot"}}
    return Occupancy(described, domains, dict(namespaces), ages)
