"""Composing and releasing, as a client of the Redfish service sees it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hymcache.emulator.media.memfd import Allocate


def test_a_composed_chunk_is_there_and_its_bytes_are_taken(served: Any) -> None:
    response = served.compose("r-1", 16)
    assert response.status_code == 201
    chunk = served.get(response.headers["Location"])
    assert (chunk["Name"], chunk["MemoryChunkSizeMiB"], chunk["Status"]["State"]) == ("r-1", 16, "Enabled")
    assert served.members(served.chunks) == [response.headers["Location"]]
    assert served.free_mib() == 48


def test_composing_the_same_name_again_gives_the_same_chunk(served: Any) -> None:
    first, second = served.compose("r-1", 16), served.compose("r-1", 16)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.headers["Location"] == second.headers["Location"]
    assert first.json() == second.json()
    assert served.free_mib() == 48


def test_composing_the_same_name_with_another_size_is_refused_with_both_sizes(served: Any) -> None:
    served.compose("r-1", 16)
    response = served.compose("r-1", 32)
    assert response.status_code == 409
    info = response.json()["error"]["@Message.ExtendedInfo"][0]
    assert info["MessageId"].endswith(".ResourceAlreadyExists")
    assert "16777216" in info["Message"]
    assert "33554432" in info["Message"]
    assert served.free_mib() == 48


def test_more_than_the_blade_has_is_refused_as_exhausted_and_says_what_is_free(served: Any) -> None:
    served.compose("r-1", 48)
    response = served.compose("r-2", 17)
    assert response.status_code == 507
    info = response.json()["error"]["@Message.ExtendedInfo"][0]
    assert info["MessageId"].endswith(".ResourceExhaustion")
    assert str(16 << 20) in info["Message"]
    assert served.names(served.chunks) == ["r-1"]
    assert served.compose("r-2", 16).status_code == 201


def test_a_compose_that_the_machine_has_no_memory_for_is_refused_and_gives_its_bytes_back(serve: Any) -> None:
    served = serve(allocate=Allocate.EAGER, reserve_bytes=1 << 50)
    response = served.compose("r-1", 16)
    assert response.status_code == 507
    assert "beyond the reserve" in response.json()["error"]["message"]
    assert served.members(served.chunks) == []
    assert served.free_mib() == 64


def test_one_chunk_more_than_the_blade_can_carve_is_refused(serve: Any) -> None:
    served = serve(regions_max=2)
    assert served.get(served.domain)["Oem"]["HyMCache"]["MaxRegions"] == 2
    assert [served.compose(f"r-{number}", 1).status_code for number in range(3)] == [201, 201, 507]


def test_twenty_composes_at_once_get_exactly_what_fits(served: Any) -> None:
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda number: served.compose(f"r-{number}", 4).status_code, range(20)))
    assert sorted(answers) == [201] * 16 + [507] * 4
    assert served.free_mib() == 0


def test_one_name_composed_twenty_times_at_once_makes_one_chunk(served: Any) -> None:
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: served.compose("r-1", 4), range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert len({answer.headers["Location"] for answer in answers}) == 1
    assert served.free_mib() == 60


def test_a_size_that_is_no_multiple_of_the_granule_is_refused(serve: Any) -> None:
    served = serve(granule_bytes=16 << 20)
    assert served.get(served.domain)["MemoryChunkIncrementMiB"] == 16
    assert served.compose("r-1", 17).status_code == 400
    assert served.compose("r-1", 16).status_code == 201


def test_a_body_that_is_wrong_is_refused_with_the_property_that_is(served: Any) -> None:
    cases: dict[str, dict[str, Any]] = {
        "Name": {"MemoryChunkSizeMiB": 1},
        "MemoryChunkSizeMiB": {"Name": "r-1", "MemoryChunkSizeMiB": "1"},
        "AddressRangeType": {"Name": "r-1", "MemoryChunkSizeMiB": 1, "AddressRangeType": "PMEM"},
        "Links.CXLLogicalDevices.0.@odata.id": {
            "Name": "r-1",
            "MemoryChunkSizeMiB": 1,
            "Links": {"CXLLogicalDevices": [{}]},
        },
    }
    for place, body in cases.items():
        response = served.call("POST", served.chunks, body)
        assert response.status_code == 400
        assert f"property {place}:" in response.json()["error"]["message"]
    for text in (b"", b"{", b"[]", b"\xff"):
        assert served.http.post(served.url + served.chunks, data=text, timeout=30).status_code == 400
    assert served.members(served.chunks) == []


def test_a_name_that_no_log_could_show_is_refused(served: Any) -> None:
    for name in ("", "a\nb", "x" * 201):
        assert served.compose(name, 1).status_code == 400


def test_a_released_chunk_is_gone_and_its_bytes_are_free(served: Any) -> None:
    chunk = served.compose("r-1", 64).headers["Location"]
    assert served.delete(chunk) == 204
    assert served.call("GET", chunk).status_code == 404
    assert served.delete(chunk) == 404
    assert served.compose("r-2", 64).status_code == 201


def test_an_id_is_never_given_to_another_chunk(served: Any) -> None:
    seen = set()
    for _ in range(5):
        chunk = served.compose("r-1", 1).headers["Location"]
        assert chunk not in seen
        seen.add(chunk)
        assert served.delete(chunk) == 204


def test_a_chunk_that_a_connection_uses_is_not_released(served: Any) -> None:
    chunk = served.compose("r-1", 1).headers["Location"]
    connection = served.connect("r-1", chunk, ["node-a"]).headers["Location"]
    response = served.call("DELETE", chunk)
    assert response.status_code == 409
    assert response.json()["error"]["code"].endswith(".ResourceInUse")
    assert served.delete(connection) == 204
    assert served.delete(chunk) == 204


def test_every_chunk_is_a_logical_device_with_a_name_of_its_own(served: Any) -> None:
    devices = f"/redfish/v1/Chassis/{served.settings.blade}/PCIeDevices/1/CXLLogicalDevices"
    for name in ("r-1", "r-2"):
        served.compose(name, 1)
    names = set()
    for chunk in served.members(served.chunks):
        device = served.get(served.get(chunk)["Links"]["CXLLogicalDevices"][0]["@odata.id"])
        identifier = device["Identifiers"][0]
        assert identifier["DurableNameFormat"] == "GCXLID"
        names.add(identifier["DurableName"])
        assert device["Links"]["MemoryChunks"] == [{"@odata.id": chunk}]
    assert len(names) == 2
    assert len({name.partition(":")[0] for name in names}) == 1, "the serial is the blade's"
    assert len(served.members(devices)) == 3
