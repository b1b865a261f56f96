"""Both nodes' plugins die after each of their writes to the API server: same end, one region, nothing left over."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hymcache.region.handover import HandoverError

from controlplane import POD, crashing, wait
from controlplane.nodes import PluginNode
from controlplane.operators import REGION
from controlplane.tests.plugin.conftest import PluginStage

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.timeout(900)]


class Life:
    """One claim with two pods on two nodes, from nothing to nothing, under plugins that die."""

    def __init__(self, stage: PluginStage, number: int, at: dict[str, list[str]], folder: Path) -> None:
        folder.mkdir()
        self.stage = stage
        self.claim = f"kv{number}"
        self.pods = {"n1": f"a{number}", "n2": f"b{number}"}
        self.notes = {short: folder / short for short in self.pods}
        self.deaths = 0
        self.most = 0
        for short, node in stage.nodes.items():
            node.plugin.stop()
            node.plugin.entry = "controlplane.crashing_plugin:main"
            node.plugin.env = crashing.environment(at.get(short, []), self.notes[short])
            node.plugin.start()

    def until(self, what: str, done: Callable[[], bool]) -> None:
        """Wait for a state; a plugin that has died is started again, as a DaemonSet's pod is."""

        def probe() -> bool:
            self.most = max(self.most, len(self.stage.appliances["b1"].regions()))
            for node in self.stage.nodes.values():
                if not node.plugin.running:
                    node.plugin.require_status(crashing.EXIT_CRASHED)
                    self.deaths += 1
                    node.plugin.start()
            return done()

        wait(f"{what} ({self.claim}, {self.deaths} deaths)", probe, seconds=180, pause=0.1)

    def run(self) -> dict[str, list[str]]:
        """Returns the writes of each node."""
        stage = self.stage
        stage.claim(self.claim, "1Gi")
        for short, pod in self.pods.items():
            stage.pod(pod, self.claim, node=short)
        self.until("both pods to run", lambda: all(map(self._runs, self.pods.values())))
        self.until("2/2 hosts", lambda: stage.region(self.claim)["status"].get("hostsAttached") == "2/2")
        self.until("one memory", lambda: len({inode(stage.nodes[short], pod) for short, pod in self.pods.items()}) == 1)
        stage.remove_pods(*self.pods.values())
        self.until("nothing on the nodes", lambda: not any(node.left_behind() for node in stage.nodes.values()))
        self.until("nothing on the blade", lambda: not stage.api.list(REGION) + stage.appliances["b1"].regions())
        assert self.most == 1, "a second region was composed"
        return {short: file.read_text().splitlines() for short, file in self.notes.items()}

    def _runs(self, pod: str) -> bool:
        return bool(self.stage.api.get(POD, pod, self.stage.namespace)["status"].get("phase") == "Running")


def inode(node: PluginNode, pod: str) -> tuple[int, int]:
    """The memory that a new container of the pod gets; an error while its plugin does not serve it."""
    container = node.container(pod)
    if container is None:
        raise LookupError(pod)
    try:
        descriptor = container.region()[0]
    except HandoverError as error:
        raise LookupError(pod) from error
    try:
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino
    finally:
        os.close(descriptor)


def test_killed_after_each_write_to_the_api_server(stage: PluginStage, tmp_path: Path) -> None:
    stage.up()
    written = Life(stage, 0, {}, tmp_path / "0").run()
    # Heartbeats of the CXLNode come by time; the first one counts.
    points = {short: [p for p in dict.fromkeys(lines) if not p.startswith("node") or p == "node #1"]
              for short, lines in written.items()}  # fmt: skip
    states = {point.split()[2] for lines in points.values() for point in lines if point.startswith("host")}
    assert {"Attaching", "Ready", "Released"} <= states
    left, deaths = points, 0
    for number in (1, 2, 3):
        life = Life(stage, number, left, tmp_path / str(number))
        written = life.run()
        deaths += life.deaths
        left = {short: [p for p in lines if p not in written[short]] for short, lines in left.items()}
        if not any(left.values()):
            break
    print(f"\n{deaths} deaths in {number} lives, after {points}")
    assert not any(left.values()), f"never died after {left}"
