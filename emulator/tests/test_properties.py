"""Whatever is asked in whatever order and whatever goes wrong: the books are right, and nothing leaks.

A model knows what each request must come to, fault by fault; after every step the appliance's whole truth - Redfish,
cables, descriptors of the process - is compared with it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from hymcache.emulator.media.memfd import Allocate
from hymcache.emulator.settings import Settings, host
from hymcache.region import handover
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

CAPACITY_MIB = 8
SIZES_MIB = (1, 2, 2, 3, 9)
HOSTS_MAX = 2
NAMES = ["r-1", "r-2", "r-3"]
HOSTS = {
    f"node-{letter}": f"0{letter}0{letter}0{letter}0{letter}-0000-4000-8000-00000000000{letter}" for letter in "abc"
}
DONE = ("none", "lost-reply", "500-but-done", "duplicate", "mangled-links", "async-task", "garbled")
NOT_DONE = ("500", "503", "404", "refuse", "reset", "ignored")
names = st.sampled_from(NAMES)
host_sets = st.lists(st.sampled_from(list(HOSTS)), min_size=1, max_size=2, unique=True)
faults = st.just("none") | st.just("none") | st.sampled_from([*DONE, *NOT_DONE])
picks = st.integers(0, 99)
steps = st.sampled_from(
    [*["compose"] * 3, *["connect"] * 5, "set hosts", "set hosts", "disconnect", "release", "release", "power cycle"]
)


@dataclass
class Model:
    """What must be true. Ids are those that the appliance gave."""

    chunks: dict[str, tuple[str, int]] = field(default_factory=dict)
    connections: dict[str, tuple[str, str, frozenset[str], bool]] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return CAPACITY_MIB - sum(size for _, size in self.chunks.values())

    def hosts_of(self, chunk: str) -> set[str]:
        return {host for _, target, hosts, _ in self.connections.values() if target == chunk for host in hosts}


class Life(RuleBasedStateMachine):
    """Random lives of one appliance."""

    def __init__(self, served_class: Any, memfds: Callable[[], Counter[int]]) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.memfds = memfds
        self.memfds_before = memfds()
        self.model = Model()
        self.seen: set[str] = set()
        self.served = served_class(
            Settings(
                capacity_bytes=CAPACITY_MIB << 20,
                granule_bytes=1 << 20,
                hosts_max=HOSTS_MAX,
                allocate=Allocate.SPARSE,
                hosts=tuple(host(name, uuid) for name, uuid in HOSTS.items()),
                cable_dir=Path(self.folder.name),
            )
        )

    @rule(step=steps, name=names, pick=picks, hosts=host_sets, flag=st.booleans(), fault=faults)
    def step(self, step: str, name: str, pick: int, hosts: list[str], flag: bool, fault: str) -> None:
        """One request. A single rule: hypothesis switches rules off at random, and lives would stay short."""
        chunks, connections = sorted(self.model.chunks), sorted(self.model.connections)
        match step:
            case "compose":
                self.compose(name, SIZES_MIB[pick % len(SIZES_MIB)], fault)
            case "connect" if chunks:
                self.connect(name, chunks[pick % len(chunks)], hosts, flag, fault)
            case "set hosts" if connections:
                self.set_hosts(connections[pick % len(connections)], hosts if flag else hosts[1:], fault)
            case "disconnect" if connections:
                self.disconnect(connections[pick % len(connections)], fault)
            case "release" if chunks:
                self.release(chunks[pick % len(chunks)], fault)
            case "power cycle":
                self.power_cycle(keep=flag or pick % 2 > 0)

    def compose(self, name: str, mib: int, fault: str) -> None:
        before = dict(self.model.chunks)
        existing = [chunk for chunk in before.values() if chunk[0] == name]
        wanted = 0
        if fault in DONE and not existing and mib <= self.model.free:
            wanted = 1
        copies = fault == "duplicate" and (not existing or existing[0][1] == mib)
        if copies and mib <= self.model.free - mib * wanted and (existing or wanted):
            wanted += 1
        self.act("POST", self.served.chunks, {"Name": name, "MemoryChunkSizeMiB": mib}, fault)
        self.adopt_chunks(name, mib, wanted)

    def connect(self, name: str, chunk: str, hosts: list[str], write: bool, fault: str) -> None:
        value = (name, chunk, frozenset(hosts), write)
        existing = [one for one in self.model.connections.values() if one[0] == name]
        fits = len(self.model.hosts_of(chunk) | set(hosts)) <= HOSTS_MAX
        wanted = 1 if fault in DONE and not existing and fits else 0
        if fault == "duplicate" and fits and (wanted or (existing and existing[0] == value)):
            wanted += 1
        info = {"MemoryChunk": {"@odata.id": chunk}, "AccessCapabilities": ["Read", "Write"] if write else ["Read"]}
        body = {"Name": name, "ConnectionType": "Memory", "MemoryChunkInfo": [info], "Links": links(hosts)}
        self.act("POST", self.served.connections, body, fault)
        fresh = [path for path in self.served.members(self.served.connections) if path not in self.model.connections]
        assert len(fresh) == wanted
        for path in fresh:
            self.note(path)
            self.model.connections[path] = value

    def set_hosts(self, path: str, hosts: list[str], fault: str) -> None:
        name, chunk, _, write = self.model.connections[path]
        others = Model(connections={key: one for key, one in self.model.connections.items() if key != path})
        self.act("PATCH", path, {"Links": links(hosts)}, fault)
        if fault in DONE and len(others.hosts_of(chunk) | set(hosts)) <= HOSTS_MAX:
            self.model.connections[path] = (name, chunk, frozenset(hosts), write)

    def disconnect(self, path: str, fault: str) -> None:
        self.act("DELETE", path, None, fault)
        if fault in DONE:
            del self.model.connections[path]

    def release(self, path: str, fault: str) -> None:
        used = any(one[1] == path for one in self.model.connections.values())
        self.act("DELETE", path, None, fault)
        if fault in DONE and not used:
            del self.model.chunks[path]

    def power_cycle(self, keep: bool) -> None:
        self.served.call("POST", "/admin/v1/power-cycle", {"keep": keep})
        if not keep:
            self.model = Model()

    @invariant()
    def the_truth_is_the_models(self) -> None:
        chunks = {path: self.served.get(path) for path in self.served.members(self.served.chunks)}
        found = {path: (chunk["Name"], chunk["MemoryChunkSizeMiB"]) for path, chunk in chunks.items()}
        assert found == self.model.chunks
        assert self.served.free_mib() == self.model.free >= 0
        assert set(self.served.members(self.served.connections)) == set(self.model.connections)
        books = self.served.get("/admin/v1/regions")
        assert books["free_bytes"] == self.model.free << 20
        assert len(self.memfds() - self.memfds_before) == len(self.model.chunks), (
            "one memory per chunk and none besides"
        )

    @invariant()
    def every_cable_gives_what_the_connections_say(self) -> None:
        for node in HOSTS:
            expected: Counter[tuple[str, str]] = Counter()
            for path, (name, _) in self.model.chunks.items():
                mine = [one for one in self.model.connections.values() if one[1] == path and node in one[2]]
                if mine:
                    expected[name, "rw" if any(one[3] for one in mine) else "ro"] += 1
            listed = handover.request(self.served.socket(node), {"op": "list"})["regions"]
            assert Counter((region["region"], region["access"]) for region in listed) == expected
            for name in NAMES:
                self.check_open(node, name, sum(count for (region, _), count in expected.items() if region == name))

    def check_open(self, node: str, name: str, connected: int) -> None:
        if connected == 1:
            with self.served.opened(node, name):
                return
        known = any(chunk[0] == name for chunk in self.model.chunks.values())
        refusal = "bad-request" if connected else "not-connected" if known else "no-such-region"
        assert self.served.refusal(node, name) == refusal

    def act(self, method: str, path: str, body: Any, fault: str) -> None:
        """One request with one fault; what it answers does not matter here."""
        if fault != "none":
            self.served.faults({"method": method, "path": "", "fault": fault})
        try:
            answer = self.served.call(method, path, body)
            while answer.status_code == 202:
                answer = self.served.call("GET", answer.headers["Location"])
        except requests.exceptions.ConnectionError:
            assert fault in ("lost-reply", "reset")
        if fault != "none":
            self.served.call("DELETE", "/admin/v1/faults")

    def adopt_chunks(self, name: str, mib: int, wanted: int) -> None:
        fresh = [path for path in self.served.members(self.served.chunks) if path not in self.model.chunks]
        assert len(fresh) == wanted
        for path in fresh:
            self.note(path)
            self.model.chunks[path] = (name, mib)

    def note(self, path: str) -> None:
        assert path not in self.seen, "an id was given twice"
        self.seen.add(path)

    def teardown(self) -> None:
        try:
            for path in [*self.model.connections, *self.model.chunks]:
                assert self.served.delete(path) == 204
            assert self.served.free_mib() == CAPACITY_MIB
            assert self.memfds() == self.memfds_before
        finally:
            self.served.close()
            self.folder.cleanup()


def links(hosts: list[str]) -> dict[str, Any]:
    return {"InitiatorEndpoints": [{"@odata.id": f"/redfish/v1/Fabrics/CXL/Endpoints/I-{host}"} for host in hosts]}


@pytest.mark.slow
def test_random_lives_with_faults(served_class: Any, memfds: Callable[[], Counter[int]]) -> None:
    few = settings(
        max_examples=30,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        phases=(Phase.generate,),  # a step takes some ten requests: shrinking would take minutes
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: Life(served_class, memfds), settings=few)
