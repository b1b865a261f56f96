"""Any sequence of operations from two hosts: what is read is what was stored, what is missing was let go."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hymcache.region import Namespace, Region
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

MIB = 1 << 20
FINGERPRINT = bytes(range(32))
KEYS = st.sampled_from([b"key-%d" % i for i in range(12)])
HOSTS = st.sampled_from([0, 1])


class Store(RuleBasedStateMachine):
    """A region in two domains beside a dictionary of every version that was ever stored under a key."""

    medium: Path
    serial = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self.medium.unlink(missing_ok=True)
        Region.format(self.medium, size=4 * MIB, chunk_bytes=64 << 10, domains=2)
        self.regions = [Region.attach(self.medium, domain=domain, populate=False) for domain in range(2)]
        self.spaces: list[Namespace] = [region.namespace(FINGERPRINT) for region in self.regions]
        self.stored: dict[bytes, list[tuple[int, bytes]]] = {}
        self.evictions = 0

    def teardown(self) -> None:
        for region in self.regions:
            region.close()

    @rule(host=HOSTS, key=KEYS, units=st.integers(1, 5), unit_bytes=st.integers(1, 30_000))
    def put(self, host: int, key: bytes, units: int, unit_bytes: int) -> None:
        stamp = next(self.serial).to_bytes(4, "little")
        data = (stamp * (units * unit_bytes // 4 + 1))[: units * unit_bytes]
        was_there = self.spaces[host].lookup([key])
        if self.spaces[host].put(key, data, units=units):
            assert not was_there
            self.stored.setdefault(key, []).append((units, data))
        else:
            assert was_there, "refused, though the key was missing and the domain can evict"

    @rule(host=HOSTS, key=KEYS)
    def get(self, host: int, key: bytes) -> None:
        out = bytearray(5 * 30_000)
        found = self.spaces[host].get_into(key, out)
        if self.spaces[host].lookup([key]):
            assert found, "a lookup finds what a read misses"
        if found:
            assert bytes(out[:found]) in {data for _, data in self.stored[key]}

    @precondition(lambda self: self.stored)
    @rule(host=HOSTS, data=st.data())
    def get_units(self, host: int, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.stored)))
        units, whole = self.stored[key][-1]
        first = data.draw(st.integers(0, units - 1))
        count = data.draw(st.integers(1, units - first))
        size = len(whole) // units
        out = bytearray(count * size)
        if self.spaces[host].get_into(key, out, first=first, count=count) == len(out):
            parts = {d[first * size : (first + count) * size] for u, d in self.stored[key] if len(d) // u == size}
            assert bytes(out) in parts

    @rule(host=HOSTS, key=KEYS)
    def evict(self, host: int, key: bytes) -> None:
        self.spaces[host].evict([key])

    @rule(host=HOSTS)
    def restart(self, host: int) -> None:
        self.regions[host].close()
        self.regions[host] = Region.attach(self.medium, domain=host, populate=False)
        self.spaces[host] = self.regions[host].namespace(FINGERPRINT)

    @invariant()
    def hosts_agree(self) -> None:
        keys = sorted(self.stored)
        assert self.spaces[0].contains(keys) == self.spaces[1].contains(keys)

    @invariant()
    def nothing_fails_its_checks(self) -> None:
        for region in self.regions:
            stats = region.stats()
            assert not any(
                stats[name] for name in ("miss_unit_crc", "miss_table_crc", "miss_header_crc", "miss_bounds")
            )


@pytest.mark.slow
def test_any_sequence_of_operations(medium: Path) -> None:
    Store.medium = medium
    case = Store.TestCase
    case.settings = settings(
        max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
    case("runTest").runTest()
