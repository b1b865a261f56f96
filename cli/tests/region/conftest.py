from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hymcache.cli.main import main
from hymcache.region import Region

MIB = 1 << 20
Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `hymcache region ARGUMENTS` in this process."""
    monkeypatch.delenv("HYMCACHE_REGION", raising=False)

    def run(*arguments: object) -> Result:
        result = CliRunner().invoke(main, ["region", *map(str, arguments)], catch_exceptions=True)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise AssertionError(click.unstyle(result.output)) from result.exception
        return result

    return run


@pytest.fixture
def answer(run: Run) -> Callable[..., Any]:
    """What a command that succeeds says in JSON."""

    def answer(*arguments: object) -> Any:
        result = run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return answer


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[Path]:
    folder = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    path = folder / f"hymcache-cli-{os.getpid()}-{tmp_path.name}"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def region(medium: Path) -> Iterator[Region]:
    """A region of two domains, attached to the first."""
    Region.format(medium, size=64 * MIB, chunk_bytes=64 << 10, domains=2)
    with Region.attach(medium, host="one") as region:
        yield region
