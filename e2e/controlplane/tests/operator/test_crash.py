"""The operator dies after each of its writes, one by one: same end, no second compose, nothing left over."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from controlplane import wait
from controlplane.operators import REGION, Operator
from controlplane.stage import Stage

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

WRITES_MAX = 120
ROOT = Path(__file__).resolve().parents[3]


class Life:
    """One claim with two pods on two nodes, from nothing to nothing, under operators that may die."""

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage = stage
        self.claim = f"kv{number}"
        self.pods = (f"a{number}", f"b{number}")
        self.crashing: Operator | None = None
        self.regions_most = 0

    def step(self, what: str, done: object) -> None:
        """Wait for a state; when the operator has died, the next one is started."""
        assert callable(done)

        def probe() -> bool:
            self.regions_most = max(self.regions_most, len(self.stage.appliances["b1"].regions()))
            if self.crashing is not None and not self.crashing.process.running:
                self.crashing = None
                self.stage.start_operator(name=f"after-{self.claim}")
            return bool(done())

        wait(f"{what} ({self.claim})", probe, seconds=90, pause=0.1)

    def run(self, crash_after: int, notes: Path) -> bool:
        """Returns whether the operator died."""
        stage = self.stage
        self.crashing = stage.start_operator(
            [sys.executable, "-m", "controlplane.crashing"],
            name=f"crash-{crash_after}",
            env={"CRASH_AFTER": str(crash_after), "CRASH_WRITES": str(notes), "PYTHONPATH": str(ROOT)},
        )
        first = self.crashing
        stage.claim(self.claim, "4Gi")
        for pod, node in zip(self.pods, ("n1", "n2"), strict=True):
            stage.pod(pod, self.claim, node=node)
        self.step("pods bound", lambda: stage.bound(*self.pods))
        share = stage.allocation(self.claim)["shareID"]
        name = f"r-{share}"
        self.step("both nodes ready", lambda: all(name in actor.ready for actor in stage.actors.values()))
        self.step("2/2 hosts", lambda: stage.region(self.claim)["status"].get("hostsAttached") == "2/2")
        self.step("phase Ready", lambda: stage.phase(self.claim) == "Ready")
        assert stage.allocation(self.claim)["shareID"] == share
        assert len({actor.inodes[name] for actor in stage.actors.values()}) == 1
        assert [r["metadata"]["name"] for r in stage.api.list(REGION)] == [name]
        stage.remove_pods(*self.pods)
        self.step("region gone", lambda: not stage.api.list(REGION))
        self.step("blade empty", lambda: not stage.appliances["b1"].regions())
        assert self.regions_most == 1, "a second region was composed"
        died = not first.process.running
        for operator in {first, stage.operator}:
            operator.process.stop()
        return died


def test_killed_after_each_write_of_a_life(stage: Stage, tmp_path: Path) -> None:
    stage.build()
    stage.start_operator(name="setup")
    stage.add_fabrics(pollIntervalSeconds=10)
    stage.wait_published()
    stage.operator.process.stop()
    begun, notes, ends = time.monotonic(), tmp_path / "writes", []
    for number in range(1, WRITES_MAX):
        notes.unlink(missing_ok=True)
        if not Life(stage, number).run(number, notes):
            break
        ends.append(notes.read_text().splitlines()[-1])
    else:
        pytest.fail(f"a life has more than {WRITES_MAX} writes")
    print(f"{len(ends)} crash points in {time.monotonic() - begun:.0f} s:")
    for number, end in enumerate(ends, 1):
        print(f"  {number:3} {end}")
    assert sum("MemoryChunks" in end for end in ends) >= 2, "no crash at compose or release"
    assert sum("Connections" in end for end in ends) >= 4, "no crash at attach or detach"
    assert stage.errors() == []
