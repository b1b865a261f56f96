"""Processes start quickly, can be taken away and brought back, and never outlive the test."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from controlplane import CLAIM, NODE, ControlPlane, wait
from controlplane import workloads as w
from controlplane.manifests import apply_all
from controlplane.tests.pools import POOL

pytestmark = pytest.mark.controlplane


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_process_is_left_when_a_test_breaks(tmp_path: Path) -> None:
    class BrokenTestError(Exception):
        pass

    pids: list[int] = []

    def broken() -> None:
        with ControlPlane(tmp_path) as plane:
            pids.extend(p.pid for p in (plane.etcd, plane.apiserver, plane.manager, plane.scheduler))
            raise BrokenTestError

    with pytest.raises(BrokenTestError):
        broken()
    assert len(set(pids)) == 4
    assert not any(map(alive, pids))


def test_api_server_comes_back_with_what_it_held(own_control_plane: ControlPlane) -> None:
    w.add_node(own_control_plane.api, "a", system_uuid="6f1a4dd8-5b0a-4a44-9d2c-0d3b8e6a0001")
    own_control_plane.apiserver.send(signal.SIGKILL)
    wait("the API server to be gone", lambda: not own_control_plane.apiserver.running)
    own_control_plane.apiserver.start()
    node = wait("the API server to answer again", lambda: own_control_plane.api.get(NODE, "a"))
    assert node["status"]["nodeInfo"]["systemUUID"] == "6f1a4dd8-5b0a-4a44-9d2c-0d3b8e6a0001"


@pytest.mark.control_plane_settings(feature_gates={"DRADeviceBindingConditions": False})
def test_feature_gates_reach_the_components(own_control_plane: ControlPlane) -> None:
    metrics = own_control_plane.api.raw("/metrics")
    line = next(row for row in metrics.splitlines() if 'name="DRADeviceBindingConditions"' in row)
    assert line.endswith(" 0")


@pytest.mark.control_plane_settings(binding_timeout_seconds=5)
def test_short_binding_timeout_frees_a_claim_whose_condition_never_comes(own_control_plane: ControlPlane) -> None:
    api = own_control_plane.api
    apply_all(api, POOL.format(name="pool"))
    w.add_node(api, "a", labels={"example.com/pool": "pool"})
    api.create(w.claim("kv", "4Gi", namespace="default", device_class="pool"))
    api.create(w.pod("one", namespace="default", claims=("kv",)))

    def share() -> str | None:
        device = w.allocation(api.get(CLAIM, "kv", "default"))
        return device["shareID"] if device else None

    first = wait("an allocation", share)
    wait("another allocation after the timeout", lambda: share() not in (None, first))
