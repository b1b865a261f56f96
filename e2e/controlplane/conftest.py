from __future__ import annotations

import pytest

from controlplane.fixtures import api, control_plane, namespace, own_control_plane, pytest_runtest_makereport

__all__ = ["api", "control_plane", "namespace", "own_control_plane", "pytest_runtest_makereport"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first: with several workers, the last long one to begin decides when all have ended."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
