"""Running other programs: output shown or captured, failures as one sentence with the end of their output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class CommandError(RuntimeError):
    """A program ended with a status other than 0."""


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    stdin: Path | None = None,
    cwd: Path | None = None,
    seconds: float = 600,
) -> str:
    """Run a program and return its standard output.

    Raises:
        CommandError: it failed or took longer than `seconds`; the message has the last lines it wrote.
    """
    words = [str(word) for word in argv]
    source = stdin.open("rb") if stdin else None
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **(env or {})},
            stdin=source or subprocess.DEVNULL,
            capture_output=True,
            cwd=cwd,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"`{' '.join(words[:4])} ...` took longer than {seconds:g} s") from error
    except FileNotFoundError as error:
        raise CommandError(f"{words[0]} is not installed; it is needed for the test cluster") from error
    finally:
        if source:
            source.close()
    if done.returncode:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        tail = "\n".join(lines[-20:])
        raise CommandError(f"`{' '.join(words[:6])} ...` ended with status {done.returncode}:\n{tail}")
    return done.stdout.decode(errors="replace")


class step:
    """Say what is going on, and afterwards how long it took."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.started = time.monotonic()

    def __enter__(self) -> None:
        sys.stderr.write(f"cluster: {self.what} ...\n")
        sys.stderr.flush()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        word = "failed" if error else "done"
        sys.stderr.write(f"cluster: {self.what}: {word} in {time.monotonic() - self.started:.0f} s\n")
        sys.stderr.flush()
