"""Real servers for all tests here, started once: a start takes about a minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.environment import environment_path
from engine.trio import Servers, trio

SECONDS = 1200  # for a test on a loaded machine, restarts included


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.engine)
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    if not environment_path().exists():
        pytest.skip("the vLLM environment is not installed: run make test-engine")
    with trio() as started:
        yield started
