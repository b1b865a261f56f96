"""Processes of one host in PID and mount namespaces of their own, as its containers are: all of them are process 1."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hymcache.region import Namespace, Region

FINGERPRINT = bytes(range(32))
BYTES = 64 << 10

COMMANDS = """
import ctypes, os, sys
from hymcache.region import Region
region = Region.attach(sys.argv[1])
ns = region.namespace(bytes(range(32)))
memory = ctypes.create_string_buffer(b"x" * (64 << 10), 64 << 10)
pages = region.pages([(ctypes.addressof(memory), 64 << 10, 64 << 10, 1)])
print(os.getpid(), region.info().process_slot, flush=True)
for line in sys.stdin:
    verb, argument = line.split()
    if verb == "reserve": answer = ns.reserve([argument.encode()], 1)[0].hex()
    if verb == "write": answer = list(region.write_many(bytes.fromhex(argument), pages, [0], 0, 1))
    if verb == "commit": answer = list(region.commit(bytes.fromhex(argument)))
    if verb == "get": answer = ns.get_into(argument.encode(), memory)
    print(answer, flush=True)
"""


class Container:
    """A process that sees the region at a path which is its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid, self.slot = map(int, self.answer().split())

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, verb: str, argument: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{verb} {argument}\n")
        self.process.stdin.flush()
        return self.answer()

    def kill(self) -> None:
        """With all that is in its PID namespace."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(
    region: Region, medium: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Container]]:
    unshare = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make namespaces")
    with contextlib.ExitStack() as stack:

        def start(name: str) -> Container:
            place = tmp_path_factory.mktemp(name) / "region"
            place.touch()
            shell = 'mount --bind "$0" "$1" && mount -t tmpfs none "$(dirname "$0")" && exec "$2" -c "$3" "$1"'
            inside = ["sh", "-c", shell, str(medium), str(place), sys.executable, COMMANDS]
            process = stack.enter_context(
                subprocess.Popen([*unshare, *inside], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            return Container(process)

        yield start


def test_a_put_is_split_among_containers(ns: Namespace, start: Callable[[str], Container]) -> None:
    one, two, three = (start(name) for name in ("one", "two", "three"))
    assert [c.pid for c in (one, two, three)] == [1, 1, 1]
    assert len({c.slot for c in (one, two, three)} | {0}) == 4
    ref = one.ask("reserve", "key")
    assert two.ask("write", ref) == "[1]"
    assert three.ask("commit", ref) == "[1]"
    assert one.ask("get", "key") == str(BYTES)
    out = bytearray(BYTES)
    assert ns.get_into(b"key", out) == BYTES
    assert out == b"x" * BYTES


def test_a_dead_container_is_told_from_a_living_one(
    region: Region, ns: Namespace, start: Callable[[str], Container]
) -> None:
    one, two = start("one"), start("two")
    mine, theirs = one.ask("reserve", "mine"), two.ask("reserve", "theirs")
    assert region.users(0) == 3
    assert region.sweep() == 0
    assert not ns.put(b"mine", b"x")
    free = region.stats()["free_chunks"][0]
    one.kill()
    deadline = time.monotonic() + 2
    while not ns.put(b"mine", b"x"):
        assert time.monotonic() < deadline, "not usable two seconds after the death"
        time.sleep(0.01)
    assert region.users(0) == 2
    assert region.stats()["free_chunks"][0] == free
    assert not ns.put(b"theirs", b"x"), "the other one lives"
    assert two.ask("write", mine) == "[0]"
    assert two.ask("write", theirs) == "[1]"
    assert two.ask("commit", theirs) == "[1]"
    assert ns.lookup([b"mine", b"theirs"]) == 2
