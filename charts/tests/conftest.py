from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane import programs
from controlplane.fixtures import api, control_plane, namespace, own_control_plane, pytest_runtest_makereport

__all__ = ["api", "control_plane", "namespace", "own_control_plane", "pytest_runtest_makereport"]

CHART = Path(__file__).resolve().parents[1] / "hymcache"
Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Run helm with some words; its output and status, whatever they are."""
    program = programs.folder("helm") / "helm"

    def run(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)

    return run
