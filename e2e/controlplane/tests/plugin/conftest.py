from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane import ControlPlane
from controlplane.nodes import PluginNode
from controlplane.operators import ACCOUNTS, install
from controlplane.stage import Stage


class PluginStage(Stage):
    """A stage whose nodes have the real plugin, a kubelet and pods that run."""

    nodes: dict[str, PluginNode]

    def add_actor(self, node: str) -> PluginNode:
        made = PluginNode(
            self.plane,
            self.node_name(node),
            account=(ACCOUNTS.namespace, ACCOUNTS.plugin),
            cables=[appliance.cables / self.uuids[node] for appliance in self.appliances.values()],
            logs=self.folder,
        )
        self._stack.callback(made.close)
        made.start()
        self.actors[node] = self.nodes[node] = made
        return made

    def up(self, **options: str) -> None:
        """Nodes, appliances, operator, fabrics: until a claim can be made."""
        self.nodes = {}
        self.build(**options)
        self.start_operator()
        self.add_fabrics()
        self.wait_published()


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with CRDs, classes, RBAC and policies."""
    install(control_plane)
    return control_plane


@pytest.fixture
def stage(installed: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[PluginStage]:
    made = PluginStage(installed, namespace, tmp_path)
    made.nodes = {}
    try:
        yield made
    finally:
        made.close()
