"""Attaching hosts to chunks, as a client of the Redfish service sees it."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def chunk(served: Any) -> str:
    location = served.compose("r-1", 4).headers["Location"]
    assert isinstance(location, str)
    return location


def initiators(connection: Any) -> list[str]:
    return [one["@odata.id"].rpartition("/I-")[2] for one in connection["Links"]["InitiatorEndpoints"]]


def test_hosts_are_found_by_their_system_uuid(served: Any) -> None:
    found = {}
    for path in served.members("/redfish/v1/Fabrics/CXL/Endpoints"):
        endpoint = served.get(path)
        for entity in endpoint["ConnectedEntities"]:
            if entity["EntityRole"] == "Initiator":
                assert entity["Identifiers"] == endpoint["Identifiers"]
                assert entity["Identifiers"][0]["DurableNameFormat"] == "UUID"
                found[entity["Identifiers"][0]["DurableName"]] = endpoint["Name"]
    assert found == {host.uuid: host.name for host in served.settings.hosts}


def test_one_connection_gives_a_chunk_to_two_hosts(served: Any, chunk: str) -> None:
    response = served.connect("r-1", chunk, ["node-a", "node-b"])
    assert response.status_code == 201
    connection = served.get(response.headers["Location"])
    assert initiators(connection) == ["node-a", "node-b"]
    assert connection["MemoryChunkInfo"] == [
        {"AccessCapabilities": ["Read", "Write"], "MemoryChunk": {"@odata.id": chunk}}
    ]
    assert connection["Links"]["TargetEndpoints"] == served.get(chunk)["Links"]["Endpoints"]


def test_two_connections_give_a_chunk_to_two_hosts(served: Any, chunk: str) -> None:
    for host in ("node-a", "node-b"):
        assert served.connect(f"r-1-{host}", chunk, [host]).status_code == 201
    for host in ("node-a", "node-b"):
        with served.opened(host, "r-1"):
            pass


def test_connecting_again_under_the_same_name_gives_the_same_connection(served: Any, chunk: str) -> None:
    first = served.connect("r-1", chunk, ["node-a", "node-b"])
    second = served.connect("r-1", chunk, ["node-b", "node-a"])
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.headers["Location"] == second.headers["Location"]
    assert len(served.members(served.connections)) == 1


def test_connecting_again_under_the_same_name_with_something_else_is_refused(served: Any, chunk: str) -> None:
    other = served.compose("r-2", 4).headers["Location"]
    served.connect("r-1", chunk, ["node-a"])
    assert served.connect("r-1", chunk, ["node-b"]).status_code == 409
    assert served.connect("r-1", other, ["node-a"]).status_code == 409
    assert served.connect("r-1", chunk, ["node-a"], ["Read"]).status_code == 409
    assert len(served.members(served.connections)) == 1


def test_one_host_more_than_the_blade_allows_is_refused_however_it_is_asked(served: Any, chunk: str) -> None:
    assert served.connect("all", chunk, ["node-a", "node-b", "node-c"]).status_code == 409
    first = served.connect("r-1", chunk, ["node-a", "node-b"])
    assert served.connect("r-2", chunk, ["node-c"]).status_code == 409
    body = {"Links": {"InitiatorEndpoints": [link(host) for host in ("node-a", "node-b", "node-c")]}}
    response = served.call("PATCH", first.headers["Location"], body)
    assert response.status_code == 409
    assert "at most 2 hosts" in response.json()["error"]["message"]
    assert initiators(served.get(first.headers["Location"])) == ["node-a", "node-b"]


def test_a_patch_replaces_the_hosts(served: Any, chunk: str) -> None:
    path = served.connect("r-1", chunk, ["node-a", "node-b"]).headers["Location"]
    response = served.call("PATCH", path, {"Links": {"InitiatorEndpoints": [link("node-b"), link("node-c")]}})
    assert response.status_code == 200
    assert initiators(response.json()) == ["node-b", "node-c"]
    assert initiators(served.get(path)) == ["node-b", "node-c"]


def test_a_patch_of_anything_but_hosts_is_refused(served: Any, chunk: str) -> None:
    path = served.connect("r-1", chunk, ["node-a"]).headers["Location"]
    before = served.get(path)
    for body in ({"Name": "other"}, {"Links": {"TargetEndpoints": []}}, {}):
        assert served.call("PATCH", path, body).status_code == 400
    assert served.get(path) == before


def test_ends_that_do_not_exist_are_refused(served: Any, chunk: str) -> None:
    assert served.connect("r-1", chunk, ["node-z"]).status_code == 404
    assert served.connect("r-1", chunk + "0", ["node-a"]).status_code == 404
    assert (
        served.connect("r-1", "/redfish/v1/Chassis/other/MemoryDomains/1/MemoryChunks/1", ["node-a"]).status_code == 400
    )
    assert served.connect("r-1", chunk, []).status_code == 400
    assert served.connect("r-1", chunk, ["node-a"], ["Write"]).status_code == 400
    assert served.members(served.connections) == []


def test_a_target_that_is_not_the_chunks_own_is_refused(served: Any, chunk: str) -> None:
    other = served.get(served.compose("r-2", 4).headers["Location"])["Links"]["Endpoints"]
    body = {
        "Name": "r-1",
        "ConnectionType": "Memory",
        "MemoryChunkInfo": [{"MemoryChunk": {"@odata.id": chunk}}],
        "Links": {"InitiatorEndpoints": [link("node-a")], "TargetEndpoints": other},
    }
    assert served.call("POST", served.connections, body).status_code == 400
    body["Links"]["TargetEndpoints"] = served.get(chunk)["Links"]["Endpoints"]  # type: ignore[index]
    assert served.call("POST", served.connections, body).status_code == 201


def test_a_connection_that_was_deleted_is_gone_and_deleting_it_again_says_so(served: Any, chunk: str) -> None:
    path = served.connect("r-1", chunk, ["node-a"]).headers["Location"]
    assert served.delete(path) == 204
    assert served.delete(path) == 404
    assert served.call("GET", path).status_code == 404
    assert served.get(served.get(chunk)["Links"]["Endpoints"][0]["@odata.id"])["Links"]["Connections"] == []


def link(host: str) -> dict[str, str]:
    return {"@odata.id": f"/redfish/v1/Fabrics/CXL/Endpoints/I-{host}"}
