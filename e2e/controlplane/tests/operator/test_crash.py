"""The operator dies after each of its writes: same end, no second compose, nothing left over.

A first life without crashes gives the list of writes. Then every write of the list is the last one of a process once;
a life has several such processes, so that there are fewer lives than writes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane import wait
from controlplane.operators import REGION
from controlplane.stage import Stage

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

LIVES = 5
ROOT = Path(__file__).resolve().parents[3]


class Life:
    """One claim with two pods on two nodes, from nothing to nothing, under operators that die."""

    def __init__(self, stage: Stage, number: int, at: list[str], notes: Path) -> None:
        self.stage = stage
        self.claim = f"kv{number}"
        self.pods = (f"a{number}", f"b{number}")
        self.notes = notes
        self.env = {"CRASH_AT": json.dumps(at), "CRASH_NOTES": str(notes), "PYTHONPATH": str(ROOT)}
        self.processes = 0
        self.most = 0

    def start(self) -> None:
        """The next operator."""
        self.processes += 1
        program = [sys.executable, "-m", "controlplane.crashing"]
        self.stage.start_operator(program, name=f"{self.claim}-{self.processes}", env=self.env)

    def until(self, what: str, done: Callable[[], bool]) -> None:
        """Wait for a state; an operator that has died is followed by another."""

        def probe() -> bool:
            self.most = max(self.most, len(self.stage.appliances["b1"].regions()))
            if not self.stage.operator.process.running:
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
        stage.operator.process.stop()
        return self.notes.read_text().splitlines()


@pytest.mark.timeout(1500)
def test_killed_after_each_write_of_a_life(stage: Stage, tmp_path: Path) -> None:
    stage.build()
    stage.start_operator(name="setup")
    stage.add_fabrics(pollIntervalSeconds=10)
    stage.wait_published()
    stage.operator.process.stop()
    begun = time.monotonic()
    points = list(dict.fromkeys(Life(stage, 0, [], tmp_path / "0").run()))
    hit: set[str] = set()
    deaths = 0
    for number in range(LIVES):
        at = points[number::LIVES]
        life = Life(stage, number + 1, at, tmp_path / str(number + 1))
        written = life.run()
        hit |= set(at) & set(written)
        deaths += life.processes - 1
    print(f"{deaths} deaths at {len(hit)} of {len(points)} writes in {time.monotonic() - begun:.0f} s:")
    for point in points:
        print(f"  {'died after' if point in hit else 'not reached':12} {point}")
    fabric = {p for p in points if "/redfish/" in p}
    assert fabric <= hit, f"never died after {fabric - hit}"
    assert {p.split()[0] for p in fabric} == {"POST", "DELETE"}
    assert any("MemoryChunks/*" in p for p in fabric)
    assert len(hit) >= 0.9 * len(points)
    assert stage.errors() == []
