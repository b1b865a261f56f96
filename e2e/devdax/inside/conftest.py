from __future__ import annotations

import hashlib
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import memory
import pytest

MIB = 1 << 20
SIZE = 512 * MIB


class Node:
    """A device and the lock file of its users."""

    def __init__(self, name: str, lock_file: Path) -> None:
        self.name = name
        self.lock_file = lock_file
        self.path = Path("/dev") / name

    def shape(self, size: int, align: int = 2 * MIB) -> None:
        memory.shape(self.name, size=size, align=align)

    def read(self, at: int, count: int) -> bytes:
        with self._mapped() as mapped:
            return mapped[at : at + count]

    def write(self, at: int, content: bytes) -> None:
        with self._mapped() as mapped:
            mapped[at : at + len(content)] = content

    def digest(self) -> str:
        """Of the metadata and the first chunk."""
        return hashlib.sha256(self.read(0, 6 * MIB)).hexdigest()

    def _mapped(self) -> mmap.mmap:
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            return mmap.mmap(descriptor, 16 * MIB)
        finally:
            os.close(descriptor)


@pytest.fixture(scope="session")
def device() -> str:
    return memory.composed()


@pytest.fixture
def node(device: str, tmp_path: Path) -> Node:
    """512 MiB whose first page is zeros."""
    node = Node(device, tmp_path / "lock")
    node.shape(SIZE)
    node.write(0, bytes(4096))
    return node


class Process:
    """Another process that is attached: see `attached.py`."""

    def __init__(self, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "/attached.py", json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self.begun = self._answer()

    def ask(self, verb: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([verb, *arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"process {self.pid} ended with {self._process.wait()}"
        return json.loads(line)


@pytest.fixture
def process(node: Node) -> Iterator[Callable[..., Process]]:
    """Starts a process that is attached to the node."""
    started: list[Process] = []

    def process(**options: Any) -> Process:
        options = {"target": str(node.path), "lock_file": str(node.lock_file)} | options
        started.append(Process(**options))
        return started[-1]

    yield process
    for one in started:
        one.kill()


@pytest.fixture
def run() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `hymcache region ARGUMENTS` and prints what it says."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = ["hymcache", "region", *map(str, arguments)]
        program = "from hymcache.cli.main import main; main(prog_name='hymcache')"
        done = subprocess.run([sys.executable, "-c", program, *words[1:]], capture_output=True, text=True)
        print(f"$ {' '.join(words)}  [{done.returncode}]\n{done.stdout}{done.stderr}")
        return done

    return run
