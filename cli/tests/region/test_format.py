"""`hymcache region format`, and what every verb refuses in one sentence."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hymcache.region import Region
from hymcache.region.handover import HandoverError, Server

MIB = 1 << 20
F_ADD_SEALS, F_SEAL_WRITE = 1033, 8
Run = Callable[..., Result]


def test_a_region_is_written_and_described(run: Run, answer: Callable[..., Any], medium: Path) -> None:
    result = run("format", medium, "--size", "64Mi", "--domains", 2, "--chunk-size", "1Mi")
    assert result.exit_code == 0
    assert "64 MiB in 2 domains" in result.output
    assert "chunks of 1 MiB" in result.output
    with Region.attach(medium) as region:
        assert region.info().domains == 2
    info = answer("format", medium, "--replaces", 1)
    assert (info["epoch"], info["domains"]) == (2, 1)


def test_the_environment_names_the_region(run: Run, medium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Region.format(medium, size=32 * MIB)
    monkeypatch.setenv("HYMCACHE_REGION", str(medium))
    assert "region" in run("inspect").output


def test_a_socket_hands_the_region_over(run: Run, tmp_path: Path) -> None:
    fd = os.memfd_create("region")
    os.ftruncate(fd, 32 * MIB)

    def handler(request: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
        if request.get("region") not in (None, "r-1"):
            raise HandoverError("no-such-region", "no region of that name is cabled here; ask for r-1")
        return {"ok": True, "region": "r-1", "bytes": 32 * MIB, "access": "rw"}, os.dup(fd)

    with Server(tmp_path / "s.sock", handler):
        target = f"unix:{tmp_path}/s.sock"
        assert run("format", target).exit_code == 0
        assert run("inspect", f"{target}?region=r-1").exit_code == 0
        assert run("verify", target).exit_code == 0
        refused = run("inspect", f"{target}?region=r-2", "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["error"]["kind"] == "no-such-region"
    os.close(fd)


def foreign(path: Path) -> None:
    path.write_bytes(b"someone else's data" * 100_000)


def truncated(path: Path) -> None:
    Region.format(path, size=32 * MIB)
    os.truncate(path, 16 * MIB)


def torn(path: Path) -> None:
    Region.format(path, size=32 * MIB)
    with path.open("r+b") as file:
        file.seek(200)
        file.write(b"x")


def newer(path: Path) -> None:
    Region.format(path, size=32 * MIB)
    with path.open("r+b") as file:
        file.seek(8)
        file.write(b"\x63")


def empty(path: Path) -> None:
    path.write_bytes(bytes(32 * MIB))


def nothing(path: Path) -> None:
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("verb", ["inspect", "verify", "watch"])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (foreign, "foreign"),
        (truncated, "truncated"),
        (torn, "torn"),
        (newer, "newer"),
        (empty, "unformatted"),
        (nothing, "io"),
    ],
)
def test_what_is_no_region_is_refused_in_one_sentence_and_left_alone(
    run: Run, medium: Path, verb: str, make: Callable[[Path], None], kind: str
) -> None:
    make(medium)
    before = medium.read_bytes() if medium.exists() else None
    result = run(verb, medium, "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == kind
    assert str(medium) in error["message"]
    assert "\n" not in error["message"]
    plain = run(verb, medium)
    assert plain.stderr == f"Error: {error['message']}\n"
    assert (medium.read_bytes() if medium.exists() else None) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--size", "64Mi", "--domains", "0"], "domains: expected"),
        (["--size", "1Gi", "--domains", "65"], "too few for 65 domains"),
        (["--size", "64Mi", "--chunk-size", "100Ki"], "chunk_bytes: expected a power of two"),
        (["--size", "64Mi", "--chunk-size", "128Mi"], "chunk_bytes: expected"),
        (["--size", "1Mi", "--chunk-size", "64Mi"], "too few for 1 domains"),
        (["--size", "64Mi", "--uuid", "nonsense"], "uuid: expected"),
        (["--size", "33566777"], "size: expected a multiple of 4096, found 33566777"),
        (["--size", "lots"], "quantity 'lots': expected a number"),
        (["--size", "64Mi", "--coherence", "hopeful"], "'hopeful' is not one of"),
        (["--size", "64Mi", "--domains", "-1"], "domains: expected an integer from 0"),
    ],
)
def test_numbers_that_cannot_be_are_named(run: Run, medium: Path, options: list[str], words: str) -> None:
    result = run("format", medium, *options)
    assert result.exit_code == 2
    assert words in result.stderr
    told = run("format", medium, *options, "--json")
    assert told.exit_code == 2
    assert not told.stderr
    error = json.loads(told.stdout)["error"]
    assert error["kind"] == "invalid"
    assert words in error["message"]
    assert not medium.exists() or not medium.read_bytes().strip(b"\0")


def test_format_never_overwrites_what_it_was_not_told_of(run: Run, medium: Path) -> None:
    foreign(medium)
    before = medium.read_bytes()
    assert run("format", medium).exit_code == 1
    assert medium.read_bytes() == before
    medium.unlink()
    Region.format(medium, size=32 * MIB)
    before = medium.read_bytes()
    for arguments in ([], ["--replaces", 7]):
        result = run("format", medium, *arguments)
        assert result.exit_code == 1
        assert "epoch" in result.stderr
    assert medium.read_bytes() == before


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def socket_file(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


@pytest.mark.parametrize("verb", ["format", "inspect", "verify", "bench"])
@pytest.mark.parametrize(
    ("make", "words"),
    [(folder, "folder|directory"), (pipe, "found a pipe"), (socket_file, "a socket is named unix:PATH")],
)
def test_what_is_no_medium_is_named_at_once(
    run: Run, tmp_path: Path, verb: str, make: Callable[[Path], None], words: str
) -> None:
    place = tmp_path / "place"
    make(place)
    result = run(verb, place)
    assert result.exit_code == 1
    assert re.search(words, result.stderr)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["format", "inspect"])
def test_a_socket_that_nobody_serves_is_named_with_what_to_do(run: Run, tmp_path: Path, verb: str) -> None:
    result = run(verb, f"unix:{tmp_path}/absent.sock", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == "unreachable"
    assert error["message"].endswith("check the path, and that its server runs")


def test_a_region_in_use_is_not_formatted(run: Run, region: Region, medium: Path) -> None:
    result = run("format", medium, "--replaces", 1, "--json")
    assert json.loads(result.stdout)["error"]["kind"] == "busy"
    assert region.namespace(bytes(32)).put(b"k", b"x")


def test_media_that_cannot_be_written_can_be_inspected_and_nothing_more(run: Run) -> None:
    fd = os.memfd_create("region", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 32 * MIB)
    Region.format(fd)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)
    target = f"/proc/self/fd/{fd}"
    assert run("inspect", target).exit_code == 0
    assert run("verify", target).exit_code == 0
    for arguments in (("format", target, "--replaces", 1), ("bench", target)):
        result = run(*arguments, "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout)["error"]["kind"] == "io"
    os.close(fd)


def test_foreign_bytes_are_given_up_by_name_only(run: Run, answer: Callable[..., Any], medium: Path) -> None:
    medium.write_bytes(b"another owner's!" * (2 * MIB))
    refused = run("format", medium)
    assert refused.exit_code == 1
    assert "pass clear=True (--clear) to give it up" in refused.stderr
    info = answer("format", medium, "--clear")
    assert b"another owner's!" not in medium.read_bytes()[: info["bytes"]]


def test_of_two_formats_at_once_one_writes_and_the_other_says_why_not(medium: Path) -> None:
    medium.write_bytes(bytes(64 * MIB))
    script = "import sys; from hymcache.cli.main import main; sys.stdin.readline(); main()"
    both = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                script,
                "region",
                "format",
                medium,
                "--json",
                "--uuid",
                f"{n * 8}-0000-4000-8000-{n * 12}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in "12"
    ]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    winners = [found["uuid"] for found in answers if "uuid" in found]
    refusals = [found["error"]["kind"] for found in answers if "error" in found]
    assert len(winners) == 1
    assert refusals[0] in {"busy", "exists", "formatting"}
    with Region.attach(medium) as region:
        assert region.info().uuid == winners[0]
