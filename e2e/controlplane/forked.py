"""Programs of ours started by a fork of a process that has imported them all: an import takes longer than a test.

One such process (multiprocessing's fork server) belongs to each test runner and ends with it. A program runs in a
session of its own, with its command line, environment and log, as if it had been started by its name.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path

PRELOADED = (
    "controlplane.forked",
    "controlplane.crashing",
    "controlplane.crashing_plugin",
    "hymcache.emulator.command",
)
PR_SET_PDEATHSIG = 1


class Forked:
    """A started program, with the part of `subprocess.Popen` that `Process` needs.

    Args:
        entry: module and function, as in an entry point.
    """

    def __init__(self, entry: str, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        _ensure_server()
        context = multiprocessing.get_context("forkserver")
        environment = {**os.environ, **env}
        self._process = context.Process(target=_main, args=(entry, [*arguments], environment, str(log)), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended; its exit status."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self._process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _ensure_server() -> None:
    """It finds the modules by the environment, since it does not get `sys.path` before it preloads."""
    multiprocessing.get_context("forkserver").set_forkserver_preload([*PRELOADED])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _main(entry: str, arguments: list[str], environment: dict[str, str], log: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the server ends with the test runner
    os.setsid()
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(sink, standard)
    os.close(sink)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [entry, *arguments]
    module, _, function = entry.partition(":")
    sys.exit(getattr(importlib.import_module(module), function)())
