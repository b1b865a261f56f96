"""How a plugin starts and ends, and what it serves beside the kubelet."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hymcache.dra.settings import load

from controlplane.kubelet import ClaimKey, Kubelet, NotPreparedError, Runtime
from controlplane.waiting import wait
from dra_world import crashing
from dra_world.api import MemoryApi
from dra_world.appliance import Appliance
from dra_world.nodes import NodeUnderTest, settings
from dra_world.operator import Operator

MakeNode = Callable[..., NodeUnderTest]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_refusal_by_the_kubelet_ends_the_process_with_status_1(
    short_path: Path, api: MemoryApi, appliance: Appliance
) -> None:
    values = settings(short_path / "n", "node-a", appliance.cable("node-a"))
    end = crashing.serve(api, short_path / "api.sock")
    kubelet = Kubelet(values.registry_dir, driver="hymcache.io", known=("v9.DRAPlugin",))
    process = crashing.start(values, short_path / "api.sock", crash_after=0)
    try:
        process.join(30)
        assert process.exitcode == 1
        assert "is supported" in kubelet.watcher.refusals[0]
    finally:
        process.kill()
        kubelet.close()
        end()


def test_sigterm_ends_it_with_status_0_and_no_socket(short_path: Path, api: MemoryApi, appliance: Appliance) -> None:
    values = settings(short_path / "n", "node-a", appliance.cable("node-a"))
    end = crashing.serve(api, short_path / "api.sock")
    kubelet = Kubelet(values.registry_dir, driver="hymcache.io")
    process = crashing.start(values, short_path / "api.sock", crash_after=0)
    try:
        wait("the registration", lambda: kubelet.watcher.plugin("hymcache.io"), seconds=30)
        assert process.pid
        os.kill(process.pid, signal.SIGTERM)
        process.join(10)
        assert process.exitcode == 0
        assert list(values.registry_dir.iterdir()) == []
        assert not list(values.plugin_dir.glob("*.sock"))
    finally:
        process.kill()
        kubelet.close()
        end()


def test_stop_lets_a_running_prepare_finish(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    node = make_node(stop_grace_seconds=10)
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    operator.hold.clear()
    with ThreadPoolExecutor(2) as pool:
        prepared = pool.submit(node.prepare, claim)
        wait("the wish", lambda: api.host(region, "node-a"))
        stopped = pool.submit(node.stop)
        wait("the registration to go", lambda: not list(node.settings.registry_dir.iterdir()))
        operator.hold.set()
        assert prepared.result(60).env["HYMCACHE_DOMAIN"] == "0"
        stopped.result(60)


def test_stop_gives_a_reason_to_calls_that_wait_too_long(
    api: MemoryApi, operator: Operator, make_node: MakeNode
) -> None:
    node = make_node(stop_grace_seconds=0.2, prepare_wait_seconds=30)
    claim = api.add_claim("kv")
    region = operator.region_of(claim)
    operator.hold.clear()
    with ThreadPoolExecutor(2) as pool:
        prepared = pool.submit(node.prepare, claim)
        wait("the wish", lambda: api.host(region, "node-a"))
        node.stop()
        with pytest.raises(NotPreparedError):
            prepared.result(60)


def test_probes_and_metrics(api: MemoryApi, operator: Operator, make_node: MakeNode) -> None:
    port = free_port()
    node = make_node(start=False, listen=f"127.0.0.1:{port}")
    node.kubelet.close()
    node.plugin = node.another(node.settings)
    assert get(port, "/healthz") == (200, "ok\n")
    status, why = get(port, "/readyz")
    assert (status, "has not accepted" in why) == (503, True)
    node.kubelet = Kubelet(node.settings.registry_dir, driver="hymcache.io")
    wait("ready", lambda: get(port, "/readyz")[0] == 200)
    claim = api.add_claim("kv")
    operator.region_of(claim)
    node.prepare(claim)
    wait("a turn", lambda: 'hymcache_dra_claims{phase="prepared"} 1.0' in get(port, "/metrics")[1])
    text = get(port, "/metrics")[1]
    assert 'hymcache_dra_call_seconds_count{call="prepare",result="ok"} 1.0' in text
    assert 'hymcache_dra_cable_up{blade="blade-1"} 1.0' in text
    assert get(port, "/")[0] == 404


def test_settings_come_from_variables_and_flags_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYMCACHE_DRA_NODE_NAME", "from-environment")
    monkeypatch.setenv("HYMCACHE_DRA_SYNC_SECONDS", "7")
    found = load(["--node-name", "from-flag", "--cdi-dir", "/etc/cdi-dynamic"])
    assert (found.node_name, found.sync_seconds, found.cdi_dir) == ("from-flag", 7.0, Path("/etc/cdi-dynamic"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param([], "HYMCACHE_DRA_NODE_NAME", id="missing"),
        pytest.param(
            ["--node-name", "n", "--sync-seconds", "600"], "less than or equal to 60, found '600'", id="range"
        ),
    ],
)
def test_wrong_setting_is_named(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HYMCACHE_DRA_NODE_NAME", raising=False)
    with pytest.raises(SystemExit) as caught:
        load(arguments)
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err


def test_every_setting_says_what_it_means() -> None:
    from hymcache.dra.settings import Settings

    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_without_an_api_server_to_go_to_it_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hymcache.dra.main", "--node-name", "n", "--kubeconfig", "/nowhere"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    line = json.loads(done.stderr.splitlines()[-1])
    assert line["event"] == "cannot start"
    assert "kubeconfig" in line["error"]
    assert line["node"] == "n"


@pytest.mark.skipif(shutil.which("setpriv") is None or os.getuid() != 0, reason="needs setpriv and root")
def test_root_without_any_capability_is_enough(
    short_path: Path, api: MemoryApi, appliance: Appliance, operator: Operator
) -> None:
    values = settings(short_path / "n", "node-a", appliance.cable("node-a"))
    end = crashing.serve(api, short_path / "api.sock")
    kubelet = Kubelet(values.registry_dir, driver="hymcache.io")
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]
    argv = [sys.executable, "-m", "dra_world.crashing", values.model_dump_json(), str(short_path / "api.sock")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([*drop, *argv], env=environment) as process:
        try:
            wait("the registration", lambda: kubelet.watcher.plugin("hymcache.io"), seconds=60)
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert "CapEff:\t0000000000000000" in status
            assert "NoNewPrivs:\t1" in status
            claim = api.add_claim("kv")
            operator.region_of(claim)
            names = kubelet.prepare("pod-1", ClaimKey.of(claim)).cdi_ids
            os.close(Runtime(values.cdi_dir).container(names).region()[0])
            kubelet.unprepare("pod-1")
            assert list((values.plugin_dir / "claims").iterdir()) == []
        finally:
            process.terminate()
            kubelet.close()
            end()
        assert process.wait(15) == 0
