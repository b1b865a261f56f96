"""One child process with a log file: started, watched, ended by its own pid, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.forked import Forked


@dataclass
class Process:
    """A program that runs until it is stopped.

    It is started through `setpriv --pdeathsig`, so it dies with the test runner even when that is killed, and in a
    process group of its own, so a Ctrl-C in the terminal reaches the test first. Start it from a thread that outlives
    it: the kernel sends the death signal when the *thread* that started it ends.

    With an `entry` (module:function) it is one of our own programs and is forked; `argv` are its arguments alone.
    """

    name: str
    argv: list[str]
    log: Path
    env: dict[str, str] = field(default_factory=dict)
    entry: str | None = None
    _child: subprocess.Popen[bytes] | Forked | None = None

    def start(self) -> None:
        """Start it; its output is appended to the log."""
        if self.running:
            return
        if self.entry is not None:
            self._child = Forked(self.entry, self.argv, self.env, self.log)
            return
        with self.log.open("ab") as sink:
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.env},
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        """Its process id; raises when it does not run."""
        if self._child is None or not self.running:
            raise RuntimeError(f"{self.name} does not run; the end of {self.log}:\n{self.tail()}")
        return self._child.pid

    def require_running(self) -> None:
        """Raise with the end of the log when it has ended by itself."""
        if not self.running:
            code = self._child.returncode if self._child else "none"
            raise RuntimeError(f"{self.name} ended (exit status {code}); the end of {self.log}:\n{self.tail()}")

    def require_status(self, *right: int) -> None:
        """Raise with the end of the log when it has ended with an exit status that is none of these."""
        code = self._child.poll() if self._child else None
        if code not in right:
            raise RuntimeError(f"{self.name} ended (exit status {code}); the end of {self.log}:\n{self.tail()}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, for example SIGSTOP to make it hang."""
        os.kill(self.pid, number)

    def stop(self, seconds: float = 5.0) -> None:
        """End it: SIGTERM, then SIGKILL when it is not gone after `seconds`. Does nothing when it does not run."""
        if self._child is None:
            return
        if self.running:
            self._child.send_signal(signal.SIGCONT)
            self._child.terminate()
            deadline = time.monotonic() + seconds
            while self.running and time.monotonic() < deadline:
                time.sleep(0.02)
        self.kill()

    def kill(self) -> None:
        """SIGKILL and reap it."""
        if self._child is not None:
            if self.running:
                self._child.kill()
            self._child.wait()

    def tail(self, lines: int = 30) -> str:
        """The last lines of its log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
