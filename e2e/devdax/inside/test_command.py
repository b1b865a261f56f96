"""`hymcache region` on a device."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from conftest import MIB, Node, Process

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_every_verb_works_on_a_device(
    node: Node, run: Run, process: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = ("--lock-file", node.lock_file)
    assert run("format", node.path, "--domains", 2).returncode != 0
    assert run("format", node.path, "--domains", 2, *lock).returncode == 0
    one = process()
    for number in range(3):
        assert one.ask("put", str(number), MIB)
    assert run("inspect", node.path).returncode == 0
    found = json.loads(run("inspect", node.path, "--json").stdout)
    assert (found["region"]["page_bytes"], found["domains"][0]["objects"]) == (2 * MIB, 3)
    assert run("verify", node.path).returncode == 0
    assert run("watch", node.path, "--count", 1).returncode == 0
    looks = run("watch", node.path, "--count", 2, "--interval", 0.5, "--json").stdout
    assert json.loads(looks.splitlines()[1])["domains"][0]["processes"] == 1
    bench = ("--sizes", "64Ki", "--working-set", "1Mi", "--rounds", 3)
    assert run("bench", node.path, *bench).returncode == 2
    assert run("bench", node.path, *bench, *lock).returncode == 0
    one.kill()
    assert run("format", node.path, *lock).returncode == 1
    monkeypatch.setenv("HYMCACHE_LOCK_FILE", str(node.lock_file))
    assert run("format", node.path, "--replaces", 1).returncode == 0
