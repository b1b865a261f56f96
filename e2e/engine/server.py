"""One vLLM API server: started with the flags that docs/guides/vllm.md gives, watched, ended with all it started."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.client import Client
from engine.environment import engine_environ, environment_path

SHARED_MEMORY = Path("/dev/shm")
TRACKER_SECONDS = 5.0
DOCUMENTED_FLAGS = (
    "--prefix-caching-hash-algo",
    "sha256_cbor",
    "--kv-transfer-config",
    json.dumps(
        {
            "kv_connector": "HymCacheConnector",
            "kv_connector_module_path": "hymcache.vllm",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
        }
    ),
)


class ServerError(RuntimeError):
    """A server did not start or ended; the message has the end of its log."""


def free_port() -> int:
    """A TCP port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """A server in a process group and with folders of its own, so that it leaves nothing behind.

    Attributes:
        name: for messages and the log file.
        model: folder of the model.
        folder: where log, HOME and TMPDIR go; removed by whoever made it.
        environ: more environment, for example `HYMCACHE_REGION`.
        flags: the connector's flags; empty for a server without the tier.
        arguments: other flags of vLLM.
        cache_bytes: the engine's own KV cache.
        threads: compute threads; servers that never compute at once may each have all cores.
    """

    name: str
    model: Path
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = DOCUMENTED_FLAGS
    arguments: tuple[str, ...] = ()
    cache_bytes: int = 512 << 20
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    port: int = 0
    _child: subprocess.Popen[bytes] | None = None
    _segments: set[Path] = field(default_factory=set)

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.folder / f"{self.name}.log"

    @property
    def client(self) -> Client:
        """A client of it."""
        return Client(f"http://127.0.0.1:{self.port}")

    def start(self) -> None:
        """Start it; `wait_ready` tells when it answers."""
        self.port = self.port or free_port()
        home = self.folder / f"{self.name}.home"
        home.mkdir(parents=True, exist_ok=True)
        python = environment_path() / "bin" / "python"
        command = [python, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--model", self.model, "--served-model-name", "model", "--dtype", "float32", "--enforce-eager"]
        command += ["--block-size", "32", "--kv-cache-memory-bytes", str(self.cache_bytes), "--seed", "0"]
        command += ["--disable-uvicorn-access-log", *self.arguments, *self.flags]
        with self.log.open("ab") as sink:
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=engine_environ(
                    HOME=str(home),
                    TMPDIR=str(home),
                    VLLM_RPC_BASE_PATH=str(home),
                    VLLM_CONFIG_ROOT=str(home),
                    VLLM_SERVER_DEV_MODE="1",  # POST /reset_prefix_cache
                    VLLM_CPU_OMP_THREADS_BIND="nobind",
                    OMP_NUM_THREADS=str(self.threads),
                    OMP_WAIT_POLICY="PASSIVE",  # threads that spin at barriers starve each other on a busy machine
                    **self.environ,
                ),
                cwd=home,
                start_new_session=True,
            )

    def wait_ready(self, seconds: float = 600) -> None:
        """Return when it answers.

        Raises:
            ServerError: it ended, or did not answer in time.
        """
        deadline = time.monotonic() + seconds
        while not self.client.healthy():
            self.require_running()
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{self.name} did not answer within {seconds:.0f} s; the end of {self.log}:\n{self.tail()}"
                )
            time.sleep(0.5)
        self._note_segments()

    def require_running(self) -> None:
        """Raise `ServerError` with the end of the log when it has ended."""
        if self._child is None or self._child.poll() is not None:
            code = "none" if self._child is None else self._child.returncode
            raise ServerError(f"{self.name} ended (exit status {code}); the end of {self.log}:\n{self.tail()}")

    def tail(self, lines: int = 25) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def pids(self) -> list[int]:
        """Every process of the server: API server, engine core, worker."""
        return [] if self._child is None else list(_group(self._child.pid))

    def kill(self) -> None:
        """SIGKILL to every process at once, as when a pod's node loses power; then remove what they leave."""
        self._note_segments()
        self._kill_group()
        self._reap()

    def stop(self, seconds: float = 15) -> None:
        """End it: SIGTERM, then SIGKILL for what is still there after `seconds`. Harmless when it does not run."""
        if self._child is None:
            return
        self._note_segments()
        if self._child.poll() is None:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)
        self._kill_group()
        self._reap()

    def _kill_group(self) -> None:
        """SIGKILL all but Python's resource trackers, which then remove what the others left in shared memory."""
        for pid in self.pids():
            if not _is_tracker(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + TRACKER_SECONDS
        while any(_is_tracker(pid) for pid in self.pids()) and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def _reap(self) -> None:
        if self._child is not None:
            self._child.wait()
            deadline = time.monotonic() + 10
            while any(_group(self._child.pid)) and time.monotonic() < deadline:
                time.sleep(0.05)
            self._child = None
        for segment in self._segments:
            segment.unlink(missing_ok=True)
        self._segments.clear()
        shutil.rmtree(self.folder / f"{self.name}.home", ignore_errors=True)

    def _note_segments(self) -> None:
        """Remember its shared-memory files while its processes can still name them: killed ones remove none."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                    path = line.split(maxsplit=5)[-1]
                    if path.startswith((f"{SHARED_MEMORY}/psm_", f"{SHARED_MEMORY}/sem.")):
                        self._segments.add(Path(path.removesuffix(" (deleted)")))


def _is_tracker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _group(leader: int) -> Iterator[int]:
    """Pids whose process group is `leader`'s."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == leader and fields[0] != "Z":
                    yield int(entry.name)
