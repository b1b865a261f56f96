from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator

import pytest

from cluster import dumps, kind
from cluster.__main__ import up
from cluster.settings import DUMPS, KUBECONFIG, RUN
from cluster.world import World

_world: list[World] = []
_dumped: list[str] = []


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """The cluster with HyMCache: made for this run, removed at its end. E2E_KEEP=1 takes and leaves a running one."""
    keep = bool(os.environ.get("E2E_KEEP"))
    if not (keep and KUBECONFIG.exists()):
        up()
    _world.append(World.connect(RUN / "discovery.json"))
    try:
        yield _world[0]
    finally:
        _world.clear()
        if not keep:
            kind.down()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and report.when in {"setup", "call"} and _world:
        folder = DUMPS / re.sub(r"[^\w.-]+", "_", item.nodeid)
        _dumped.append(str(dumps.write(_world[0].api, folder)))
        report.sections.append(("cluster", f"state and logs: {folder}"))
    return report


def pytest_unconfigure() -> None:
    """The last line names what was kept."""
    if _dumped:
        print(f"state and logs of {len(_dumped)} failed tests: {' '.join(_dumped)}")
