"""The appliance as a process: flags, the port file, signals, and the admin commands against it."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from hymcache.cli.main import main
from hymcache.emulator.command import run
from hymcache.region import handover

MIB = 1 << 20
UUID = "0a0a0a0a-0000-4000-8000-00000000000a"
APPLIANCE = str(Path(sysconfig.get_path("scripts")) / "hymcache-appliance")


class Process:
    """`hymcache-appliance` in a process of its own."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        (folder / "password").write_text("correct horse\n")
        self.port_file = folder / "url"
        self.socket = folder / "cables" / UUID / "blade-7.sock"
        self.log = (folder / "log").open("ab")
        command = [
            APPLIANCE,
            *("--blade", "blade-7", "--capacity", "64Mi", "--granule", "1Mi", "--reserve", "0"),
            *("--cable-dir", str(folder / "cables"), "--host", f"node-a={UUID}"),
            *("--user", "admin", "--password-file", str(folder / "password")),
            *("--state-dir", str(folder / "state"), "--port-file", str(self.port_file)),
            *flags,
        ]
        self.process = subprocess.Popen(command, stderr=self.log)
        deadline = time.monotonic() + 60
        while not self.port_file.exists():
            assert self.process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "no port file after 60 s"
            time.sleep(0.05)
        self.url = self.port_file.read_text().strip()
        self.epoch = handover.request(self.socket, {"op": "hello"})["power_epoch"]

    def compose(self) -> None:
        root = f"{self.url}/redfish/v1"
        with requests.Session() as http:
            http.trust_env = False
            http.auth = ("admin", "correct horse")
            chunk = http.post(
                f"{root}/Chassis/blade-7/MemoryDomains/1/MemoryChunks",
                json={"Name": "r-1", "MemoryChunkSizeMiB": 4},
                timeout=60,
            ).headers["Location"]
            connection = {
                "ConnectionType": "Memory",
                "MemoryChunkInfo": [{"MemoryChunk": {"@odata.id": chunk}}],
                "Links": {"InitiatorEndpoints": [{"@odata.id": "/redfish/v1/Fabrics/CXL/Endpoints/I-node-a"}]},
            }
            assert http.post(f"{root}/Fabrics/CXL/Connections", json=connection, timeout=60).status_code == 201

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.log.close()
        return self.process.wait(20)


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Process] = []

    def begin(*flags: str) -> Process:
        running.append(Process(tmp_path, *flags))
        return running[-1]

    yield begin
    for process in running:
        process.stop(signal.SIGKILL)


def admin(process: Process, *arguments: str) -> Any:
    access = ["--port-file", str(process.port_file), "--user", "admin"]
    access += ["--password-file", str(process.folder / "password")]
    return CliRunner().invoke(main, ["appliance", *arguments, *access])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_takes_memory_sockets_and_port_file(start: Start, number: int) -> None:
    process = start()
    process.compose()
    descriptor, _ = handover.receive(process.socket, region="r-1")
    with mmap.mmap(descriptor, 4 * MIB) as mapping:
        mapping[:6] = b"secret"
        assert process.stop(number) == 0
        assert mapping[:6] == bytes(6)
    os.close(descriptor)
    assert not process.socket.exists()
    assert not process.port_file.exists()


def test_after_kill_9_the_next_one_takes_over_socket_and_books(start: Start) -> None:
    first = start()
    first.compose()
    first.stop(signal.SIGKILL)
    assert first.socket.exists()
    first.port_file.unlink()
    second = start()
    assert handover.request(second.socket, {"op": "hello"})["power_epoch"] == first.epoch + 1
    assert json.loads(admin(second, "regions", "--json").output)["lost"] == ["r-1"]


def test_the_commands_show_and_change_a_running_appliance(start: Start) -> None:
    process = start()
    process.compose()
    shown = admin(process, "regions").output
    assert "60Mi free of 64Mi" in shown
    assert "r-1     4Mi   4Mi     ready  node-a (rw)" in shown
    assert "cabled" in admin(process, "hosts", "--add", "node-b=0b0b0b0b-0000-4000-8000-00000000000b").output
    assert admin(process, "hosts", "--link", "node-b", "down").output == "node-b: link down\n"
    assert "node-b" in admin(process, "hosts").output
    assert admin(process, "hosts", "--remove", "node-b").output == "node-b removed\n"
    assert "lost-reply  POST" in admin(process, "faults", "--set", '[{"method":"POST","fault":"lost-reply"}]').output
    assert json.loads(admin(process, "faults", "--json").output)["faults"][0]["left"] == 1
    assert admin(process, "faults", "--clear").output == "no faults\n"
    assert admin(process, "power-cycle", "--keep").output == f"power epoch {process.epoch}, regions lost: none\n"
    assert admin(process, "power-cycle").output == f"power epoch {process.epoch + 1}, regions lost: r-1\n"


def test_a_command_that_fails_says_why_in_one_line(start: Start, tmp_path: Path) -> None:
    process = start()
    result = admin(process, "hosts", "--remove", "node-z")
    assert result.exit_code == 1
    assert "Error: host node-z: expected one of: node-a, found no such one" in result.output
    process.stop()
    gone = CliRunner().invoke(main, ["appliance", "regions", "--url", process.url])
    assert gone.exit_code == 1
    assert "is it running?" in gone.output
    assert CliRunner().invoke(main, ["appliance", "regions"]).exit_code == 2
    nonsense = CliRunner().invoke(main, ["appliance", "faults", "--set", "{", "--url", process.url])
    assert "expected a JSON list" in nonsense.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--capacity", "lots"], "lots"),
        (["--capacity", "10Mi"], "--capacity"),
        (["--cable-mode", "rwx"], "rwx"),
        (["--host", "node-a"], "NAME=SYSTEM_UUID"),
        (["--host", "node-a=xyz"], "xyz"),
        (["--listen", "0.0.0.0:0"], "credentials"),
        (["--user", "admin", "--password-file", "/nowhere/password"], "/nowhere/password"),
        (["--media", "hybrid"], "hybrid"),
        (["--listen", "192.0.2.1:0", "--user", "a", "--password-file", "PASSWORD"], "192.0.2.1"),
    ],
)
def test_flags_that_do_not_fit_end_it_with_one_sentence(tmp_path: Path, flags: list[str], said: str) -> None:
    (tmp_path / "password").write_text("x")
    flags = [str(tmp_path / "password") if flag == "PASSWORD" else flag for flag in flags]
    result = CliRunner().invoke(run, flags)
    assert result.exit_code in (1, 2)
    assert said in result.output
    assert "Traceback" not in result.output


def test_every_flag_can_come_from_the_environment() -> None:
    for flag, value in (("CAPACITY", "lots"), ("HOST", f"node-a={UUID} node-b=xyz")):
        env = {f"HYMCACHE_APPLIANCE_{flag}": value, "PATH": os.environ["PATH"]}
        result = subprocess.run([APPLIANCE], env=env, capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode in (1, 2)
        assert value.split()[-1].removeprefix("node-b=") in result.stderr


def test_an_appliance_without_cables_serves_all_the_same() -> None:
    command = [APPLIANCE, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "url=" in line)
        url = line.partition("url=")[2].split()[0]
        with requests.Session() as http:
            http.trust_env = False
            assert http.get(f"{url}/admin/v1/regions", timeout=60).json()["regions"] == []
    finally:
        process.terminate()
        process.communicate(timeout=60)
