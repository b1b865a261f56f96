"""Requests that go on after their answer: 202, a monitor, and in the end what the request would have answered."""

from __future__ import annotations

import time
from typing import Any

import pytest

ASYNC = {"headers": {"Prefer": "respond-async"}}


def end_of(served: Any, accepted: Any) -> Any:
    """Poll a monitor to its end."""
    assert accepted.status_code == 202
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = served.call("GET", accepted.headers["Location"])
        if answer.status_code != 202:
            return answer
        assert answer.headers["Location"] == accepted.headers["Location"]
        time.sleep(0.02)
    raise AssertionError(f"no end after 60 s: {accepted.text}")


@pytest.mark.parametrize("way", ["prefer", "fault"])
def test_a_compose_in_the_background_ends_as_the_one_in_the_foreground(served: Any, way: str) -> None:
    if way == "fault":
        served.faults({"method": "POST", "path": "MemoryChunks", "fault": "async-task", "times": None})
    accepted = served.compose("r-1", 16, **(ASYNC if way == "prefer" else {}))
    answer = end_of(served, accepted)
    assert answer.status_code == 201
    assert served.get(answer.headers["Location"]) == answer.json()
    task = served.get(f"/redfish/v1/TaskService/Tasks/{accepted.json()['Id']}")
    assert (task["TaskState"], task["TaskStatus"], task["PercentComplete"]) == ("Completed", "OK", 100)


def test_a_monitor_gives_its_end_once(served: Any) -> None:
    accepted = served.compose("r-1", 16, **ASYNC)
    end_of(served, accepted)
    assert served.call("GET", accepted.headers["Location"]).status_code == 404
    assert served.call("GET", "/redfish/v1/TaskService/TaskMonitors/99").status_code == 404


def test_a_refusal_in_the_background_is_the_monitors_end_and_in_the_tasks_messages(served: Any) -> None:
    accepted = served.compose("r-1", 65, **ASYNC)
    answer = end_of(served, accepted)
    assert answer.status_code == 507
    task = served.get(f"/redfish/v1/TaskService/Tasks/{accepted.json()['Id']}")
    assert task["TaskState"] == "Exception"
    assert task["Messages"] == answer.json()["error"]["@Message.ExtendedInfo"]


def test_a_slow_compose_in_the_background_answers_at_once(served: Any) -> None:
    served.faults(
        {"method": "POST", "path": "MemoryChunks", "fault": "slow", "seconds": 2},
        {"method": "POST", "path": "MemoryChunks", "fault": "async-task"},
    )
    accepted = served.compose("r-1", 16)
    assert accepted.json()["TaskState"] == "Running"
    assert served.members(served.chunks) == []
    assert end_of(served, accepted).status_code == 201


def test_connecting_and_releasing_in_the_background(served: Any) -> None:
    chunk = served.compose("r-1", 16).headers["Location"]
    connection = end_of(served, served.connect("r-1", chunk, ["node-a"], **ASYNC)).headers["Location"]
    with served.opened("node-a", "r-1"):
        pass
    assert end_of(served, served.call("DELETE", connection, **ASYNC)).status_code == 204
    assert end_of(served, served.call("DELETE", chunk, **ASYNC)).status_code == 204
    assert served.free_mib() == 64


def test_a_login_is_never_a_task(served: Any) -> None:
    body = {"UserName": "admin", "Password": "correct horse"}
    assert served.call("POST", "/redfish/v1/SessionService/Sessions", body, **ASYNC).status_code == 201
