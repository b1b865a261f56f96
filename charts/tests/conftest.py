from __future__ import annotations

import os
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
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Run helm with some words; its output and status, whatever they are."""
    program = programs.folder("helm") / "helm"
    folder = str(tmp_path_factory.mktemp("helm"))  # not the user's home
    variables = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR")
    env = {**os.environ, **dict.fromkeys(variables, folder)}

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=200, env=env)

    return run
