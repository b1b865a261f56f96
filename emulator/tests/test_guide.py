"""The guide, run as a reader would: its commands in one shell, each output as it is printed there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/emulator.md"
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EPOCH = re.compile(r"power epoch \d+")  # it begins at the time of day
MARK = "=== end of step"


def steps() -> list[tuple[str, str]]:
    """The guide's commands, each with the output that follows it, or an empty one."""
    blocks = BLOCK.findall(GUIDE.read_text())
    following = [*blocks[1:], ("sh", "")]
    return [
        (text, after if kind == "text" else "")
        for (is_command, text), (kind, after) in zip(blocks, following, strict=True)
        if is_command == "sh"
    ]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    script = "set -eum\n" + "".join(f"{command}\necho '{MARK}'\n" for command, _ in steps())
    path = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": path, "HOME": str(tmp_path), "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    log = (tmp_path / "demo/log").read_text()
    assert done.returncode == 0, done.stdout + done.stderr + log
    found = done.stdout.split(f"{MARK}\n")[:-1]
    assert len(found) == len(steps())
    for (command, expected), output in zip(steps(), found, strict=True):
        if expected:
            assert EPOCH.sub("power epoch N", output) == EPOCH.sub("power epoch N", expected), command
