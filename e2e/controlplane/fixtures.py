"""pytest fixtures and the hook that dumps state; a conftest.py imports them by name.

`control_plane` is one for the whole run, with a namespace of its own per test; `own_control_plane` starts one for a
test that stops components or needs other settings (a marker `control_plane_settings(...)` takes those of `Settings`).
A test that fails leaves a dump in `out/dumps/<test>`, named in the report.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from controlplane import dump, programs
from controlplane.api import NAMESPACE, NODE, POD, SERVICE_ACCOUNT, Api
from controlplane.plane import ControlPlane
from controlplane.settings import Settings
from controlplane.waiting import wait

__all__ = ["api", "control_plane", "namespace", "own_control_plane", "pytest_runtest_makereport"]

DUMPS = programs.ROOT / "out" / "dumps"
_planes: list[ControlPlane] = []


def _started(folder: Path, settings: Settings | None = None) -> Iterator[ControlPlane]:
    with ControlPlane(folder, settings) as plane:
        _planes.append(plane)
        try:
            yield plane
        finally:
            _planes.remove(plane)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    yield from _started(tmp_path_factory.mktemp("control-plane"))


@pytest.fixture
def own_control_plane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlPlane]:
    marker = request.node.get_closest_marker("control_plane_settings")
    yield from _started(tmp_path / "control-plane", Settings(**marker.kwargs) if marker else None)


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    return control_plane.api


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace of this test alone; its pods go at once when the test ends, so that no claim stays allocated."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait("the namespace's service account", lambda: api.find(SERVICE_ACCOUNT, "default", name))
    nodes = {node["metadata"]["name"] for node in api.list(NODE)}
    yield name
    for pod in api.list(POD, name):
        api.delete(POD, pod["metadata"]["name"], name, grace_seconds=0)
    api.delete(NAMESPACE, name)
    for node in api.list(NODE):
        if node["metadata"]["name"] not in nodes:
            api.delete(NODE, node["metadata"]["name"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.failed and _planes:
        name = re.sub(r"[^\w.-]+", "_", item.nodeid)
        own = item.funcargs.get("tmp_path") if isinstance(item, pytest.Function) else None
        for number, plane in enumerate(_planes):
            logs = [*plane.folder.glob("*.log"), *(own.glob("*.log") if isinstance(own, Path) else ())]
            folder = dump.write(plane.api, DUMPS / name / str(number), logs)
            report.sections.append(("control plane", f"state and logs: {folder}"))
    return report
