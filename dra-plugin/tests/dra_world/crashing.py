"""A plugin in a process of its own that kills itself (SIGKILL) at the n-th write that others can see.

A write is a change of the file system below the node's folder, of a region's bytes, or of the API. File-system changes
are seen by an audit hook of the interpreter, just before they happen, so no line of the plugin takes part; API writes
count before and after, since a crash may fall on either side of the server's answer.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.managers import BaseManager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hymcache.dra.contents import Found
from hymcache.dra.metrics import Metrics
from hymcache.dra.plan import Wanted
from hymcache.dra.plugin import Plugin, assemble
from hymcache.dra.settings import Settings

from dra_world.api import MemoryApi, Object
from dra_world.contents import Contents

FILE_EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "socket.bind"}
AUTHKEY = b"test"


class Countdown:
    """Kills the process at the n-th write; never, if n is 0."""

    def __init__(self, after: int) -> None:
        self._left = after
        self._lock = threading.Lock()

    def write(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class CrashingApi:
    """An API whose writes count. Heartbeats of the CXLNode do not: they come at any time and change nothing else."""

    def __init__(self, inner: Any, countdown: Countdown) -> None:
        self._inner = inner
        self._countdown = countdown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def apply_host(self, region: str, entry: Object) -> None:
        self._countdown.write()
        self._inner.apply_host(region, entry)
        self._countdown.write()


class CrashingContents(Contents):
    """Contents whose format counts."""

    def __init__(self, countdown: Countdown) -> None:
        super().__init__()
        self._countdown = countdown

    def prepare(self, descriptor: int, wanted: Wanted) -> Found:
        found = super().prepare(descriptor, wanted)
        if found is Found.FORMATTED:
            self._countdown.write()
        return found


class ApiServer(BaseManager):
    """The in-memory API for other processes."""


def serve(api: MemoryApi, path: Path) -> Callable[[], None]:
    """Serve `api` at a unix socket from a thread; a function that ends it."""
    ApiServer.register("api", callable=lambda: api)
    server = ApiServer(address=str(path), authkey=AUTHKEY).get_server()
    threading.Thread(target=server.serve_forever, name="api server", daemon=True).start()
    return lambda: server.listener.close()  # type: ignore[attr-defined]


def start(settings: Settings, api_path: Path, *, crash_after: int) -> BaseProcess:
    """Start a plugin that dies at its `crash_after`-th write (0: never)."""
    _ensure_forkserver()
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_main, args=(settings.model_dump(), str(api_path), crash_after), daemon=True)
    process.start()
    return process


def _ensure_forkserver() -> None:
    """A process that has imported everything and is forked for each plugin: an import takes longer than a life.

    It finds the modules by the environment, since it does not get this process's `sys.path` before it preloads.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(["__main__", "dra_world.crashing"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _main(values: dict[str, Any], api_path: str, crash_after: int) -> None:
    settings = Settings(_cli_parse_args=False, **values)  # type: ignore[call-arg]
    ApiServer.register("api")
    manager = ApiServer(address=api_path, authkey=AUTHKEY)
    manager.connect()
    countdown = Countdown(crash_after)
    folder = str(settings.plugin_dir.parent)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            written = isinstance(path, str) and path.startswith(folder) and flags & (os.O_WRONLY | os.O_RDWR)
        else:
            written = event in FILE_EVENTS
        if written:
            countdown.write()

    sys.addaudithook(hook)
    api: Any = CrashingApi(manager.api(), countdown)  # type: ignore[attr-defined]
    node = assemble(settings, api, CrashingContents(countdown), Metrics())
    sys.exit(Plugin(node).run())


if __name__ == "__main__":  # settings as JSON, address of the API: a plugin that lives
    _main(json.loads(sys.argv[1]), sys.argv[2], 0)
