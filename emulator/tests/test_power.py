"""Power: what a blade forgets when it goes, and what is left when it comes back."""

from __future__ import annotations

import json
import mmap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import requests
from hymcache.emulator.media import Memory, Progress
from hymcache.emulator.media.memfd import Allocate, MemfdMedium
from hymcache.emulator.settings import AfterPowerLoss
from hymcache.emulator.store import Store, StoreError
from hymcache.region import handover

MIB = 1 << 20


class Held(MemfdMedium):
    """A medium that allocates when the test lets it."""

    def __init__(self) -> None:
        super().__init__(Allocate.SPARSE, 0)
        self.asked = threading.Event()
        self.go = threading.Event()
        self.made: list[Memory] = []

    def allocate(self, name: str, size: int, progress: Progress, cancel: threading.Event) -> Memory:
        self.asked.set()
        while not self.go.wait(0.01) and not cancel.is_set():
            pass
        self.made.append(super().allocate(name, size, progress, cancel))
        return self.made[-1]


def cycle(served: Any, *, keep: bool, **more: Any) -> Any:
    response = served.call("POST", "/admin/v1/power-cycle", {"keep": keep, **more})
    assert response.status_code == 200, response.text
    return response.json()


def epoch(served: Any) -> int:
    found: int = served.get("/admin/v1/regions")["power_epoch"]
    return found


def settled(served: Any) -> None:
    deadline = time.monotonic() + 60
    while any(one["state"] != "ready" for one in served.get("/admin/v1/regions")["regions"]):
        assert time.monotonic() < deadline, "regions are not back after 60 s"
        time.sleep(0.01)


def region(served: Any, name: str = "r-1") -> str:
    chunk = served.compose(name, 4).headers["Location"]
    served.connect(name, chunk, ["node-a", "node-b"])
    assert isinstance(chunk, str)
    return chunk


def test_a_power_loss_takes_regions_connections_and_every_byte_that_a_host_still_maps(served: Any) -> None:
    region(served)
    with served.opened("node-a") as descriptor, mmap.mmap(descriptor, 4 * MIB) as mapping:
        mapping[:6] = b"secret"
        before = epoch(served)
        assert cycle(served, keep=False) == {"power_epoch": before + 1, "lost": ["r-1"]}
        assert mapping[:6] == bytes(6)
    assert served.members(served.chunks) == []
    assert served.members(served.connections) == []
    assert served.free_mib() == 64
    assert served.refusal("node-a", "r-1") == "no-such-region"
    assert handover.request(served.socket("node-a"), {"op": "hello"})["power_epoch"] == before + 1
    assert served.get(served.domain)["Oem"]["HyMCache"]["PowerEpoch"] == before + 1


def test_a_battery_keeps_the_bytes_and_the_epoch(served: Any) -> None:
    chunk = region(served)
    with served.opened("node-a") as descriptor, mmap.mmap(descriptor, 4 * MIB) as mapping:
        mapping[:6] = b"secret"
        before = epoch(served)
        assert cycle(served, keep=True) == {"power_epoch": before, "lost": []}
    assert served.members(served.chunks) == [chunk]
    with served.opened("node-b") as descriptor, mmap.mmap(descriptor, 4 * MIB) as mapping:
        assert mapping[:6] == b"secret"


def test_where_carving_is_kept_in_flash_a_power_loss_leaves_the_same_regions_over_zeros(serve: Any) -> None:
    served = serve(after_power_loss=AfterPowerLoss.EMPTY)
    chunk = region(served)
    with served.opened("node-a") as old, mmap.mmap(old, 4 * MIB) as mapping:
        mapping[:6] = b"secret"
        assert cycle(served, keep=False)["lost"] == ["r-1"]
        assert served.members(served.chunks) == [chunk]
        assert len(served.members(served.connections)) == 1
        with served.opened("node-a") as new, mmap.mmap(new, 4 * MIB) as fresh:
            assert fresh[:6] == bytes(6)
            mapping[:5] = b"stale"
            assert fresh[:6] == bytes(6), "the memory is another one"


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("after", list(AfterPowerLoss))
def test_a_compose_under_way_fails_at_a_power_loss_and_leaves_nothing_wrong(
    serve: Any, keep: bool, after: AfterPowerLoss
) -> None:
    medium = Held()
    served = serve(medium=medium, after_power_loss=after)
    answers: list[requests.Response] = []
    composing = threading.Thread(target=lambda: answers.append(served.compose("r-1", 4)))
    composing.start()
    assert medium.asked.wait(60)
    restoring = after is AfterPowerLoss.EMPTY and not keep
    if restoring:
        threading.Timer(0.2, medium.go.set).start()
    cycle(served, keep=keep)
    composing.join(60)
    assert answers[0].status_code == 503
    assert "Retry-After" in answers[0].headers
    assert served.names(served.chunks) == (["r-1"] if restoring else [])
    assert served.free_mib() == (60 if restoring else 64)
    medium.go.set()
    again = served.compose("r-1", 4)
    assert again.status_code == (200 if restoring else 201)
    assert served.names(served.chunks) == ["r-1"]
    assert served.get("/admin/v1/regions")["regions"][0]["state"] == "ready"


def test_a_chunk_that_is_being_allocated_is_seen_counted_and_not_yet_usable(serve: Any) -> None:
    medium = Held()
    served = serve(medium=medium)
    composing = threading.Thread(target=served.compose, args=("r-1", 4))
    composing.start()
    assert medium.asked.wait(60)
    chunk = served.members(served.chunks)[0]
    assert served.get(chunk)["Status"]["State"] == "Starting"
    assert served.free_mib() == 60
    assert served.connect("r-1", chunk, ["node-a"]).status_code == 409
    assert served.delete(chunk) == 409
    assert served.compose("r-2", 61).status_code == 507
    medium.go.set()
    composing.join(60)
    assert served.connect("r-1", chunk, ["node-a"]).status_code == 201


def test_without_power_nobody_answers(served: Any) -> None:
    region(served)
    cycling = threading.Thread(target=cycle, args=(served,), kwargs={"keep": True, "seconds": 3.0})
    cycling.start()
    deadline = time.monotonic() + 60
    while served.appliance.powered and time.monotonic() < deadline:
        time.sleep(0.01)
    with requests.Session() as other:
        other.trust_env = False
        with pytest.raises(requests.exceptions.ConnectionError):
            other.get(served.url + "/redfish/v1/", timeout=10)
    assert served.refusal("node-a") == "link-down"
    cycling.join(60)
    with served.opened("node-a"):
        pass


def test_sessions_end_with_the_power(served: Any) -> None:
    body = {"UserName": "admin", "Password": "correct horse"}
    served.call("POST", "/redfish/v1/SessionService/Sessions", body)
    cycle(served, keep=True)
    assert served.members("/redfish/v1/SessionService/Sessions") == []


def test_a_restart_is_a_power_loss(serve: Any, tmp_path: Path) -> None:
    first = serve(state_dir=tmp_path / "state")
    chunk = region(first)
    before = epoch(first)
    extra = {"name": "node-d", "uuid": "0d0d0d0d-0000-4000-8000-00000000000d"}
    first.call("POST", "/admin/v1/hosts", extra)
    with first.opened("node-a") as descriptor, mmap.mmap(descriptor, 4 * MIB) as mapping:
        mapping[:6] = b"secret"
        first.close()
        assert mapping[:6] == bytes(6)
    second = serve(state_dir=tmp_path / "state")
    answer = second.get("/admin/v1/regions")
    assert (answer["power_epoch"], answer["lost"], answer["regions"]) == (before + 1, ["r-1"], [])
    assert [host["name"] for host in second.get("/admin/v1/hosts")["hosts"]][-1] == "node-d"
    assert second.compose("r-1", 4).headers["Location"] != chunk, "an id is never given twice"


def test_a_restart_where_carving_is_kept_in_flash_lists_the_same_regions(serve: Any, tmp_path: Path) -> None:
    first = serve(state_dir=tmp_path / "state", after_power_loss=AfterPowerLoss.EMPTY)
    chunk = region(first)
    first.close()
    second = serve(state_dir=tmp_path / "state", after_power_loss=AfterPowerLoss.EMPTY)
    assert second.members(second.chunks) == [chunk]
    settled(second)
    with second.opened("node-a", "r-1") as descriptor, mmap.mmap(descriptor, 4 * MIB) as mapping:
        assert mapping[:] == bytes(4 * MIB)


def test_regions_that_come_back_are_listed_as_starting_until_their_memory_is_there(serve: Any, tmp_path: Path) -> None:
    first = serve(state_dir=tmp_path / "state", after_power_loss=AfterPowerLoss.EMPTY)
    chunk = region(first)
    first.close()
    medium = Held()
    second = serve(medium, state_dir=tmp_path / "state", after_power_loss=AfterPowerLoss.EMPTY)
    assert second.get(chunk)["Status"]["State"] == "Starting"
    assert second.refusal("node-a", "r-1") == "not-connected"
    assert handover.request(second.socket("node-a"), {"op": "list"})["regions"] == []
    medium.go.set()
    settled(second)
    with second.opened("node-a", "r-1"):
        pass


def test_an_appliance_can_be_stopped_while_its_regions_come_back(serve: Any, tmp_path: Path, memfds: Any) -> None:
    before = memfds()
    first = serve(state_dir=tmp_path / "state", after_power_loss=AfterPowerLoss.EMPTY)
    region(first)
    first.close()
    second = serve(Held(), state_dir=tmp_path / "state", after_power_loss=AfterPowerLoss.EMPTY)
    second.close()
    assert memfds() == before


def test_without_a_state_folder_a_restart_is_a_new_blade(serve: Any) -> None:
    first = serve()
    region(first)
    first.close()
    answer = serve().get("/admin/v1/regions")
    assert (answer["lost"], answer["regions"]) == ([], [])


def test_an_epoch_never_comes_twice_even_where_the_state_folder_was_lost(serve: Any, tmp_path: Path) -> None:
    epochs = []
    for number in range(2):
        served = serve(state_dir=tmp_path / f"state-{number}")
        epochs.append(epoch(served))
        served.close()
        time.sleep(1.1)
    assert epochs[0] < epochs[1]


def test_two_appliances_never_share_a_state_folder(serve: Any, tmp_path: Path) -> None:
    serve(state_dir=tmp_path / "state")
    with pytest.raises(StoreError, match="no other appliance"):
        serve(state_dir=tmp_path / "state", cable_dir=tmp_path / "other")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "version 1"),
        ('{"version": 2, "blade": "blade-1"}', "version"),
        ('{"version": 1, "blade": "blade-2"}', "blade-2"),
        ('{"version": 1, "blade": "blade-1", "chunks": [{"id": "1"}]}', "chunks.0"),
        ('{"version": 1, "blade": "blade-1", "unheard": 1}', "unheard"),
    ],
)
def test_a_state_file_that_is_not_ours_stops_the_start_and_is_left_as_it_is(
    serve: Any, tmp_path: Path, content: str, what: str
) -> None:
    file = tmp_path / "state" / "appliance.json"
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(StoreError, match=what):
        serve(state_dir=file.parent)
    assert file.read_text() == content


def test_what_was_answered_is_on_disk(serve: Any, tmp_path: Path) -> None:
    served = serve(state_dir=tmp_path / "state")
    chunk = served.compose("r-1", 4).headers["Location"]
    stored = json.loads((tmp_path / "state" / "appliance.json").read_text())
    assert [one["id"] for one in stored["chunks"]] == [chunk.rpartition("/")[2]]
    connection = served.connect("r-1", chunk, ["node-a"]).headers["Location"]
    stored = json.loads((tmp_path / "state" / "appliance.json").read_text())
    assert stored["connections"][0]["hosts"] == ["node-a"]
    served.delete(connection)
    served.delete(chunk)
    stored = json.loads((tmp_path / "state" / "appliance.json").read_text())
    assert (stored["chunks"], stored["connections"]) == ([], [])


def test_a_full_disk_refuses_the_compose_and_leaves_nothing_taken(
    serve: Any, tmp_path: Path, memfds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(state_dir=tmp_path / "state")
    before, save, saves = memfds(), Store.save, []
    failing: set[int] = set()

    def full(store: Store, state: Any) -> None:
        saves.append(state)
        if len(saves) in failing:
            raise OSError(28, "No space left on device")
        save(store, state)

    monkeypatch.setattr(Store, "save", full)
    for numbers in ({1}, {2}, {2, 3}):
        saves.clear()
        failing = numbers
        assert served.compose("r-1", 4).status_code == 500
        assert served.members(served.chunks) == []
        assert served.free_mib() == 64
        assert memfds() == before
    failing = set()
    chunk = served.compose("r-1", 4).headers["Location"]
    saves.clear()
    failing = {2}
    assert served.delete(chunk) == 204
    assert served.free_mib() == 64
