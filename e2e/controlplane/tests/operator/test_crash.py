"""The operator dies after each of its writes: same end, no second compose, nothing left over.

A first life without crashes gives the list of writes. Then every write of the list is the last one of a process once.
A life has many such processes; a write that a life does not come to, because a death before it has changed the way, is
tried again in the next life. Each shard takes the writes that hash to it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hymcache.operator.operator import EXIT_DEPOSED

from controlplane import crashing, wait
from controlplane.operators import REGION
from controlplane.stage import Stage

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.timeout(900)]

SHARDS = 3
LIVES_MAX = 3


class Life:
    """One claim with two pods on two nodes, from nothing to nothing, under operators that die."""

    def __init__(self, stage: Stage, number: int, at: list[str], notes: Path) -> None:
        self.stage = stage
        self.claim = f"kv{number}"
        self.pods = (f"a{number}", f"b{number}")
        self.notes = notes
        self.env = crashing.environment(at, notes)
        self.processes = 0
        self.most = 0

    def start(self) -> None:
        """The next operator."""
        self.processes += 1
        name = f"{self.claim}-{self.processes}"
        self.stage.start_operator(name=name, entry="controlplane.crashing:operator", env=self.env)

    def until(self, what: str, done: Callable[[], bool]) -> None:
        """Wait for a state; an operator that has died is followed by another."""

        def probe() -> bool:
            self.most = max(self.most, len(self.stage.appliances["b1"].regions()))
            if not self.stage.operator.process.running:
                self.stage.operator.process.require_status(crashing.EXIT_CRASHED, EXIT_DEPOSED)
                self.start()
            return done()

        wait(f"{what} ({self.claim}, process {self.processes})", probe, seconds=180, pause=0.1)

    def run(self) -> list[str]:
        """Returns the writes."""
        stage = self.stage
        self.start()
        stage.claim(self.claim, "4Gi")
        for pod, node in zip(self.pods, ("n1", "n2"), strict=True):
            stage.pod(pod, self.claim, node=node)
        self.until("pods bound", lambda: stage.bound(*self.pods))
        share = stage.allocation(self.claim)["shareID"]
        name = f"r-{share}"
        self.until("both nodes ready", lambda: all(name in actor.ready for actor in stage.actors.values()))
        self.until("2/2 hosts", lambda: stage.region(self.claim)["status"].get("hostsAttached") == "2/2")
        self.until("phase Ready", lambda: stage.phase(self.claim) == "Ready")
        assert stage.allocation(self.claim)["shareID"] == share
        assert len({actor.inodes[name] for actor in stage.actors.values()}) == 1
        assert [r["metadata"]["name"] for r in stage.api.list(REGION)] == [name]
        stage.remove_pods(*self.pods)
        self.until("region gone", lambda: not stage.api.list(REGION))
        self.until("blade empty", lambda: not stage.appliances["b1"].regions())
        assert self.most == 1, "a second region was composed"
        stage.operator.process.kill()
        return self.notes.read_text().splitlines()


def of_shard(points: list[str], shard: int) -> list[str]:
    """By the words of a write, so that shards agree although each makes its own list."""
    return [point for point in points if zlib.crc32(point.encode()) % SHARDS == shard]


@pytest.mark.parametrize("shard", range(SHARDS))
def test_killed_after_each_write_of_a_life(stage: Stage, tmp_path: Path, shard: int) -> None:
    stage.build()
    stage.start_operator(name="setup")
    stage.add_fabrics(pollIntervalSeconds=10)
    stage.wait_published()
    stage.operator.process.stop()
    begun = time.monotonic()
    points = list(dict.fromkeys(Life(stage, 0, [], tmp_path / "0").run()))
    fabric = {point for point in points if "/redfish/" in point}
    assert {point.split()[0] for point in fabric} == {"POST", "DELETE"}
    assert any("MemoryChunks/*" in point for point in fabric)
    first = time.monotonic() - begun

    mine = of_shard(points, shard)
    hit: set[str] = set()
    deaths = lives = 0
    while len(hit) < len(mine) and lives < LIVES_MAX:
        lives += 1
        at = [point for point in mine if point not in hit]
        life = Life(stage, lives, at, tmp_path / str(lives))
        hit |= set(at) & set(life.run())
        deaths += life.processes - 1
    took = time.monotonic() - begun
    print(f"\nlife of {len(points)} writes in {first:.0f} s; {deaths} deaths at {len(hit)} of the {len(mine)} of this "
          f"shard in {lives} lives, {took - first:.0f} s")  # fmt: skip
    for point in mine:
        print(f"  {'died after' if point in hit else 'not reached':12} {point}")
    assert fabric & set(mine) <= hit, f"never died after {fabric & set(mine) - hit}"
    assert len(hit) >= 0.9 * len(mine)
    assert stage.errors() == []
