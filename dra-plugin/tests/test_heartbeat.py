"""What a CXLNode says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from hymcache.crds import CXLNode
from hymcache.dra import heartbeat
from hymcache.dra.checkpoint.store import Unreadable
from hymcache.dra.dax import Port
from hymcache.dra.keys import claim_uid

NOW = datetime(2026, 11, 30, 12, 0, 0, 250_000, tzinfo=UTC)
CABLES = Path("/var/lib/hymcache/cables")
UP = Port("b1", up=True, message="", host="7c9e6679-7425-40de-944b-e07fc1f90ae7")
DOWN = Port("b2", up=False, message="unreachable: no answer")


def node(system_uuid: str) -> CXLNode:
    return CXLNode.read({"metadata": {"name": "a"}, "spec": {"systemUUID": system_uuid}})


def test_status_counts_ports_and_leads_with_the_first_problem() -> None:
    problems = heartbeat.cable_problems([UP, DOWN], CABLES, None)
    found = heartbeat.status(boot_id="b", version="1", registered=True, ports=[UP, DOWN], problems=problems, now=NOW)
    assert found["portsUp"] == "1/2"
    assert found["ports"][1] == {"blade": "b2", "state": "Down", "message": "unreachable: no answer"}
    assert found["message"] == found["problems"][0]["message"]
    assert found["heartbeat"] == "2026-11-30T12:00:00Z"


def test_spelling_of_a_system_uuid_does_not_matter() -> None:
    assert heartbeat.cable_problems([UP], CABLES, node("7C9E6679742540DE944BE07FC1F90AE7")) == []
    (found,) = heartbeat.cable_problems([UP], CABLES, node("00000000-7425-40de-944b-e07fc1f90ae7"))
    assert found.code == "WrongCable"


def test_one_problem_per_code_since_the_list_is_keyed_by_it() -> None:
    other = Port("b3", up=True, message="", host="11111111-7425-40de-944b-e07fc1f90ae7")
    problems = heartbeat.cable_problems([UP, other], CABLES, node("22222222-7425-40de-944b-e07fc1f90ae7"))
    assert len(problems) == 2
    found = heartbeat.status(boot_id="b", version="1", registered=True, ports=[], problems=problems, now=NOW)
    assert [problem["code"] for problem in found["problems"]] == ["WrongCable"]


def test_long_texts_fit_the_schema() -> None:
    unreadable = [Unreadable(claim_uid(f"claim-{number}"), "x" * 200) for number in range(20)]
    ports = [Port(f"b{number}", up=False, message="y" * 5000) for number in range(80)]
    found = heartbeat.status(
        boot_id="b",
        version="1",
        registered=False,
        ports=ports,
        problems=heartbeat.checkpoint_problems(unreadable),
        now=NOW,
    )
    CXLNode.read({"metadata": {"name": "a"}, "status": found})
    assert len(found["ports"]) == 64
