from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from dra_world.api import MemoryApi
from dra_world.appliance import Appliance
from dra_world.nodes import NodeUnderTest
from dra_world.operator import Operator

hypothesis.settings.register_profile("dra", deadline=None)  # the machine does other things too
hypothesis.settings.load_profile("dra")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for socket addresses."""
    folder = Path(tempfile.mkdtemp(prefix="hym-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi()


@pytest.fixture
def appliance(short_path: Path) -> Iterator[Appliance]:
    made = Appliance(short_path / "cables")
    yield made
    made.close()


@pytest.fixture
def operator(api: MemoryApi, appliance: Appliance) -> Iterator[Operator]:
    made = Operator(api, appliance)
    yield made
    made.close()


@pytest.fixture
def make_node(short_path: Path, api: MemoryApi, appliance: Appliance) -> Iterator[Callable[..., NodeUnderTest]]:
    """Start nodes by name; settings by keyword."""
    made: list[NodeUnderTest] = []

    def make(name: str = "node-a", *, start: bool = True, **changes: Any) -> NodeUnderTest:
        node = NodeUnderTest(short_path / name, name, api, appliance, **changes)
        made.append(node)
        return node.start() if start else node

    yield make
    for node in made:
        node.close()
