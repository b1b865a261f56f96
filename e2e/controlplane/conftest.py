from __future__ import annotations

from controlplane.fixtures import api, control_plane, namespace, own_control_plane, pytest_runtest_makereport

__all__ = ["api", "control_plane", "namespace", "own_control_plane", "pytest_runtest_makereport"]
