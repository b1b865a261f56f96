from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane import ControlPlane
from controlplane.operators import install
from controlplane.stage import Stage, staged


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with CRDs, classes, RBAC and policies."""
    install(control_plane)
    return control_plane


@pytest.fixture
def stage(installed: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Stage]:
    with staged(installed, namespace, tmp_path) as found:
        yield found
