"""The Redfish backend against services that lie: each test is a symptom that was met in the field."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hymcache.operator.fabric.port import FabricError, Fault, HostKey
from hymcache.operator.fabric.redfish import RedfishFabric, RedfishSettings
from hymcache.operator.fabric.redfish.http import GENERATION_HEADER
from redfish_service import CHUNKS, FABRIC, Habit, Service, serving

GIB = 1 << 30
HOSTS = (HostKey("aaaaaaaa000000000000000000000001"), HostKey("aaaaaaaa000000000000000000000002"))
KEY = "hymcache-r-1"

each_habit = pytest.mark.parametrize(
    "habits",
    [
        Habit.NONE,
        Habit.ASYNC,
        Habit.FORGETS_NAMES,
        Habit.LATE_COLLECTION | Habit.MANGLED_LINKS | Habit.OK_FOR_CREATED,
        Habit.SILENT,
    ],
    ids=["plain", "tasks", "forgets-names", "sunfish-like", "silent"],
)


def run(service: Service, scenario: Callable[[RedfishFabric], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with serving(service) as url:
            fabric = RedfishFabric(
                RedfishSettings(
                    url, emulated=True, generation=7, pauses_seconds=(0.01, 0.01, 0.01), read_timeout_seconds=2
                )
            )
            try:
                return await scenario(fabric)
            finally:
                await fabric.close()

    return asyncio.run(main())


@each_habit
def test_a_whole_life_on_every_kind_of_service(habits: Habit) -> None:
    service = Service(habits)

    async def life(fabric: RedfishFabric) -> None:
        inventory = await fabric.inventory()
        assert [(b.name, b.bytes, b.granule_bytes, b.hosts) for b in inventory.blades] == [
            ("b1", 64 * GIB, GIB, frozenset(HOSTS))
        ]
        region = await fabric.compose(KEY, 4 * GIB, "b1")
        identities = [await fabric.attach(region, host) for host in HOSTS]
        assert {(i.kind, i.blade, i.region) for i in identities} == {("cable", "b1", KEY)}
        assert [(r.name, r.hosts) for r in await fabric.list_regions()] == [(KEY, frozenset(HOSTS))]
        for host in HOSTS:
            await fabric.detach(region, host)
        await fabric.release(region)
        assert await fabric.list_regions() == []

    run(service, life)
    assert (service.chunks, service.connections) == ({}, {})


@each_habit
def test_every_call_may_be_made_twice(habits: Habit) -> None:
    service = Service(habits)

    async def twice(fabric: RedfishFabric) -> None:
        first, second = await fabric.compose(KEY, GIB, "b1"), await fabric.compose(KEY, GIB, "b1")
        assert first == second
        for _ in range(2):
            await fabric.attach(first, HOSTS[0])
        assert len(service.chunks) == len(service.connections) == 1
        for _ in range(2):
            await fabric.detach(first, HOSTS[0])
        for _ in range(2):
            await fabric.release(first)

    run(service, twice)
    assert (service.chunks, service.connections) == ({}, {})


@pytest.mark.parametrize("fault", ["lost", "lost-undone", "500-but-done", "500", "503", "404"])
@pytest.mark.parametrize("step", ["compose", "attach", "detach", "release"])
@pytest.mark.parametrize("habits", [Habit.NONE, Habit.FORGETS_NAMES], ids=["plain", "forgets-names"])
def test_a_write_whose_answer_lies_is_done_once(habits: Habit, step: str, fault: str) -> None:
    method, part = {
        "compose": ("POST", "MemoryChunks"),
        "attach": ("POST", "Connections"),
        "detach": ("DELETE", "Connections"),
        "release": ("DELETE", "MemoryChunks"),
    }[step]
    service = Service(habits, answers=[(method, part, fault)])

    async def life(fabric: RedfishFabric) -> None:
        region = await fabric.compose(KEY, GIB, "b1")
        await fabric.attach(region, HOSTS[0])
        assert (len(service.chunks), len(service.connections)) == (1, 1)
        await fabric.detach(region, HOSTS[0])
        await fabric.release(region)

    run(service, life)
    assert (service.chunks, service.connections, service.answers) == ({}, {}, [])


@pytest.mark.parametrize("part", ["MemoryChunks", "Connections", "Endpoints", "Chassis", "Fabrics", "MemoryDomains"])
@pytest.mark.parametrize("fault", ["404", "500", "lost"])
def test_one_bad_reading_is_not_believed(part: str, fault: str) -> None:
    service = Service()

    async def look(fabric: RedfishFabric) -> None:
        region = await fabric.compose(KEY, GIB, "b1")
        await fabric.attach(region, HOSTS[0])
        service.answers.append(("GET", part, fault))
        await fabric.inventory()
        assert [(r.name, r.hosts) for r in await fabric.list_regions()] == [(KEY, frozenset(HOSTS[:1]))]

    run(service, look)


def test_a_chunk_collection_that_stays_404_is_an_error_and_not_an_empty_blade() -> None:
    service = Service(answers=[("GET", CHUNKS, "404")] * 4)

    async def look(fabric: RedfishFabric) -> None:
        with pytest.raises(FabricError, match="404"):
            await fabric.list_regions()

    run(service, look)


def test_twins_of_a_lost_reply_become_one_and_the_connected_one_stays() -> None:
    service = Service(Habit.FORGETS_NAMES)

    async def twins(fabric: RedfishFabric) -> None:
        await fabric.compose(KEY, GIB, "b1")
        service.chunks[f"{CHUNKS}/99"] = {"Name": KEY, "MemoryChunkSizeMiB": 1024}
        service.connections[f"{FABRIC}/Connections/98"] = {
            "Name": "x",
            "MemoryChunkInfo": [{"MemoryChunk": {"@odata.id": f"{CHUNKS}/99"}}],
            "Links": {"InitiatorEndpoints": [{"@odata.id": f"{FABRIC}/Endpoints/I0"}]},
        }
        fabric._paths.clear()
        region = await fabric.compose(KEY, GIB, "b1")
        assert region.handle == f"{CHUNKS}/99"

    run(service, twins)
    assert list(service.chunks) == [f"{CHUNKS}/99"]


def test_detaching_one_of_several_initiators_leaves_the_others() -> None:
    service = Service()

    async def shared(fabric: RedfishFabric) -> None:
        region = await fabric.compose(KEY, GIB, "b1")
        service.connections[f"{FABRIC}/Connections/5"] = {
            "Name": "by hand",
            "MemoryChunkInfo": [{"MemoryChunk": {"@odata.id": region.handle}}],
            "Links": {"InitiatorEndpoints": [{"@odata.id": f"{FABRIC}/Endpoints/I{n}"} for n in (0, 1)]},
        }
        await fabric.detach(region, HOSTS[0])
        found = await fabric.find(KEY, "b1")
        assert found is not None
        assert found.hosts == frozenset(HOSTS[1:])

    run(service, shared)


def test_no_room_is_told_from_sickness() -> None:
    async def scenario(fabric: RedfishFabric) -> None:
        with pytest.raises(FabricError, match="not enough memory") as full:
            await fabric.compose(KEY, 65 * GIB, "b1")
        assert full.value.fault is Fault.NO_CAPACITY

    run(Service(), scenario)

    async def sick(fabric: RedfishFabric) -> None:
        with pytest.raises(FabricError, match="tried 4 times, last answer HTTP 500") as error:
            await fabric.compose(KEY, GIB, "b1")
        assert error.value.fault is Fault.UNAVAILABLE

    run(Service(answers=[("POST", CHUNKS, "500")] * 4), sick)


def test_a_region_of_another_size_is_never_taken_over() -> None:
    async def scenario(fabric: RedfishFabric) -> None:
        await fabric.compose(KEY, GIB, "b1")
        with pytest.raises(FabricError, match="expected 2147483648 bytes, found 1073741824") as error:
            await fabric.compose(KEY, 2 * GIB, "b1")
        assert error.value.fault is Fault.CONFLICT

    run(Service(), scenario)


def test_a_region_with_a_connected_host_is_not_released() -> None:
    service = Service()

    async def scenario(fabric: RedfishFabric) -> None:
        region = await fabric.compose(KEY, GIB, "b1")
        await fabric.attach(region, HOSTS[0])
        with pytest.raises(FabricError, match="detach them first"):
            await fabric.release(region)

    run(service, scenario)
    assert len(service.chunks) == 1


def test_fencing_takes_a_host_off_our_regions_only() -> None:
    async def scenario(fabric: RedfishFabric) -> None:
        ours, foreign = await fabric.compose(KEY, GIB, "b1"), await fabric.compose("of-somebody-else", GIB, "b1")
        for region in (ours, foreign):
            await fabric.attach(region, HOSTS[0])
        assert await fabric.fence(HOSTS[0], "hymcache-") == [KEY]
        assert {r.name: r.hosts for r in await fabric.list_regions()} == {
            KEY: frozenset(),
            "of-somebody-else": frozenset(HOSTS[:1]),
        }

    run(Service(), scenario)


def test_an_unknown_host_is_named_with_what_to_do() -> None:
    async def scenario(fabric: RedfishFabric) -> None:
        region = await fabric.compose(KEY, GIB, "b1")
        with pytest.raises(FabricError, match="check the cabling"):
            await fabric.attach(region, HostKey("ffff"))

    run(Service(), scenario)


def test_every_call_carries_the_lease_generation() -> None:
    service = Service()

    async def scenario(fabric: RedfishFabric) -> None:
        await fabric.compose(KEY, GIB, "b1")

    run(service, scenario)
    assert {headers[GENERATION_HEADER] for headers in service.headers} == {"7"}


def test_credentials_do_not_follow_a_task_monitor_elsewhere() -> None:
    async def scenario() -> None:
        fabric = RedfishFabric(RedfishSettings("http://127.0.0.1:1", username="u", password="secret"))
        outcome = await fabric._http._send("GET", "http://127.0.0.2:2/steal", None, 1.0)
        assert "credentials are not sent there" in outcome.message
        await fabric.close()

    asyncio.run(scenario())


def test_a_password_never_shows_in_a_repr() -> None:
    assert "secret" not in repr(RedfishSettings("http://x", username="u", password="secret"))


def test_an_unreachable_service_says_what_was_tried() -> None:
    async def scenario() -> None:
        fabric = RedfishFabric(RedfishSettings("http://127.0.0.1:9", pauses_seconds=(0.01,)))
        with pytest.raises(FabricError, match=r"GET /redfish/v1/ on http://127.0.0.1:9: .*can be reached") as error:
            await fabric.inventory()
        assert error.value.fault is Fault.UNAVAILABLE
        await fabric.close()

    asyncio.run(scenario())
