"""Where the compiled programs are. Building them takes minutes and belongs to `make`, not to a test's timeout."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class NotBuiltError(RuntimeError):
    """A toolset is not in the artefact cache."""


@functools.cache
def folder(toolset: str) -> Path:
    """Folder with the programs of one set of e2e/tools/build.py; raises `NotBuiltError` when they are not built."""
    done = subprocess.run(
        ["python3", str(ROOT / "e2e/tools/build.py"), "--path-only", toolset],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotBuiltError(
            f"toolset {toolset} is not built; run: e2e/tools/build.py {toolset} ({done.stderr.strip()})"
        )
    return Path(done.stdout.strip())
