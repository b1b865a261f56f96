"""The plugin's view of a real API server: its own entries, and nothing else."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hymcache.dra.clients import ApiError
from hymcache.dra.clients.kube import Kube
from prometheus_client import Counter

from controlplane import ControlPlane, wait
from controlplane import workloads as w
from controlplane.operators import ACCOUNTS, CXLNODE, REGION, install
from controlplane.rounds import best_round

pytestmark = pytest.mark.controlplane

Connect = Callable[[str], Kube]
ERRORS = Counter("test_api_errors", "Errors", ["verb"], registry=None)


def connect_to(plane: ControlPlane, node: str, timeout: float = 5.0) -> Kube:
    token = plane.token(ACCOUNTS.namespace, ACCOUNTS.plugin, node=node)
    return Kube(node, kubeconfig=plane.kubeconfig(f"kube-{node}", token), timeout_seconds=timeout, errors=ERRORS)


@pytest.fixture
def connect(installed: ControlPlane, namespace: str) -> Connect:
    def made(node: str) -> Kube:
        w.add_node(installed.api, f"{namespace}-{node}")
        return connect_to(installed, f"{namespace}-{node}")

    return made


@pytest.fixture
def region(installed: ControlPlane, namespace: str) -> Iterator[str]:
    name = f"{namespace}-r"
    installed.api.create(
        {
            "apiVersion": REGION.api_version,
            "kind": REGION.name,
            "metadata": {"name": name},
            "spec": {"blade": "b1", "bytes": 1 << 30},
        }
    )
    yield name
    installed.api.delete(REGION, name)


def entry(node: str, **fields: object) -> dict[str, object]:
    return {"node": node, "desired": "Attached", "state": "Attaching", **fields}


def hosts(plane: ControlPlane, region: str) -> dict[str, dict[str, object]]:
    found = plane.api.get(REGION, region).get("status", {}).get("hosts", [])
    return {host["node"]: host for host in found}


def test_each_node_owns_its_entry_alone(installed: ControlPlane, namespace: str, connect: Connect, region: str) -> None:
    a, b = f"{namespace}-a", f"{namespace}-b"
    one, other = connect("a"), connect("b")
    one.apply_host(region, entry(a, usedBytes=7))
    other.apply_host(region, entry(b))
    one.apply_host(region, entry(a, state="Ready", epoch=1))
    found = hosts(installed, region)
    assert found.keys() == {a, b}, "an apply must not remove the other node's entry"
    assert found[a] == entry(a, state="Ready", epoch=1), "a field that is left out goes"
    with pytest.raises(ApiError, match="may change only its own entry"):
        one.apply_host(region, entry(b, state="Released"))
    assert hosts(installed, region)[b]["state"] == "Attaching"


def test_entry_of_a_region_that_is_gone_is_no_error(connect: Connect, namespace: str) -> None:
    connect("a").apply_host(f"{namespace}-gone", entry(f"{namespace}-a"))


def test_node_object_is_made_and_kept(installed: ControlPlane, namespace: str, connect: Connect) -> None:
    api, name = connect("a"), f"{namespace}-a"
    assert api.node(name) is None
    ports = [{"blade": "b1", "state": "Up"}, {"blade": "b2", "state": "Down", "message": "no answer"}]
    api.apply_node(name, {"bootID": "1", "ports": ports})
    api.apply_node(name, {"bootID": "2", "ports": ports[:1]})
    found = installed.api.get(CXLNODE, name)
    assert found["status"] == {"bootID": "2", "ports": ports[:1]}
    with pytest.raises(ApiError, match="may write only the CXLNode of its own name"):
        api.apply_node(f"{namespace}-b", {"bootID": "1"})


def test_missing_objects_are_none(connect: Connect, namespace: str) -> None:
    api = connect("a")
    assert api.claim(namespace, "none") is None
    assert api.region("none") is None
    assert api.region_after("none", "1", 0.1) is None


def test_claim_comes_with_every_field(installed: ControlPlane, namespace: str, connect: Connect) -> None:
    made = installed.api.create(w.claim("kv", "4Gi", namespace=namespace))
    assert connect("a").claim(namespace, "kv") == made


def test_waiting_ends_with_the_change(installed: ControlPlane, namespace: str, connect: Connect, region: str) -> None:
    api = connect("a")
    before = api.region(region)
    assert before
    version = before["metadata"]["resourceVersion"]

    def change() -> None:
        time.sleep(0.5)
        installed.api.merge(REGION, region, {"status": {"phase": "Ready"}}, subresource="status")

    thread = threading.Thread(target=change)
    thread.start()
    begun = time.monotonic()
    after = api.region_after(region, version, 60)
    waited = time.monotonic() - begun
    thread.join()
    assert after
    assert after["status"]["phase"] == "Ready"
    assert 0.3 < waited < 30, "the change came half a second after the call, the limit a minute after it"


def test_waiting_without_a_change_ends_in_time(connect: Connect, region: str) -> None:
    api = connect("a")
    before = api.region(region)
    begun = time.monotonic()
    assert before
    assert api.region_after(region, before["metadata"]["resourceVersion"], 1) == before
    assert time.monotonic() - begun > 0.5


def test_version_from_before_the_watch_history_is_read_anew(connect: Connect, region: str) -> None:
    found = connect("a").region_after(region, "1", 5)
    assert found
    assert found["metadata"]["name"] == region


def test_deleted_while_waiting(installed: ControlPlane, connect: Connect, region: str) -> None:
    api = connect("a")
    before = api.region(region)
    assert before
    threading.Timer(0.3, lambda: installed.api.delete(REGION, region)).start()
    assert api.region_after(region, before["metadata"]["resourceVersion"], 60) is None


def test_server_that_hangs_is_given_up_in_time(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    install(own_control_plane)
    w.add_node(own_control_plane.api, "a")
    api = connect_to(own_control_plane, "a", timeout=1.0)

    def answers() -> bool:
        with contextlib.suppress(ApiError):
            return api.regions() == []
        return False

    wait("an answer", answers)
    own_control_plane.apiserver.send(signal.SIGSTOP)

    def three_calls(_: int) -> float:
        begun = time.monotonic()
        for call in (api.regions, lambda: api.apply_node("a", {"bootID": "1"}), lambda: api.region_after("r", "1", 1)):
            with pytest.raises(ApiError, match="did not answer"):
                call()
        return time.monotonic() - begun

    best_round("three calls of a second each", three_calls, below=12)
    own_control_plane.apiserver.send(signal.SIGCONT)
    wait("an answer again", answers)
