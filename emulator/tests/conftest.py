"""A real appliance for every test: served over HTTP from a thread, its cables in a temporary folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from hymcache.emulator.appliance import Appliance
from hymcache.emulator.media import Medium
from hymcache.emulator.media.memfd import Allocate
from hymcache.emulator.serve import serving
from hymcache.emulator.settings import Settings, host
from hymcache.region import handover

MIB = 1 << 20
UUIDS = {
    "node-a": "0a0a0a0a-0000-4000-8000-00000000000a",
    "node-b": "0B0B0B0B-0000-4000-8000-00000000000B",
    "node-c": "0c0c0c0c-0000-4000-8000-00000000000c",
}
SMALL = Settings(
    blade="blade-1",
    capacity_bytes=64 * MIB,
    granule_bytes=MIB,
    hosts_max=2,
    allocate=Allocate.SPARSE,
    reserve_bytes=0,
    hosts=tuple(host(name, uuid) for name, uuid in UUIDS.items()),
    user="admin",
    password="correct horse",
)


class Served:
    """An appliance in a thread, and a client that speaks to it as any other would: over HTTP and over sockets."""

    def __init__(self, settings: Settings, medium: Medium | None = None) -> None:
        self.settings = settings
        self._medium = medium
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self.appliance: Appliance
        self.url = ""
        self.http = requests.Session()
        self.http.trust_env = False
        if settings.user and settings.password:
            self.http.auth = (settings.user, settings.password)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait(30)
        if self._failure:
            self._thread.join()
            raise self._failure

    def _run(self) -> None:
        async def serve() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            async with serving(self.settings, self._medium) as (self.appliance, self.url):
                self._ready.set()
                await self._stop.wait()

        try:
            asyncio.run(serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    def close(self) -> None:
        self.http.close()
        if self._loop and self._stop and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive(), "the appliance did not stop"

    # --- requests ---

    @property
    def domain(self) -> str:
        return f"/redfish/v1/Chassis/{self.settings.blade}/MemoryDomains/1"

    @property
    def chunks(self) -> str:
        return f"{self.domain}/MemoryChunks"

    connections = "/redfish/v1/Fabrics/CXL/Connections"

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> requests.Response:
        return self.http.request(method, self.url + path, json=body, timeout=30, **options)

    def get(self, path: str) -> Any:
        response = self.call("GET", path)
        assert response.status_code == 200, response.text
        return response.json()

    def compose(self, name: str, mib: int, **options: Any) -> requests.Response:
        body = {"Name": name, "MemoryChunkSizeMiB": mib, "AddressRangeType": "Volatile"}
        return self.call("POST", self.chunks, body, **options)

    def connect(
        self, name: str, chunk: str, hosts: list[str], access: list[str] | None = None, **options: Any
    ) -> requests.Response:
        info: dict[str, Any] = {"MemoryChunk": {"@odata.id": chunk}}
        if access is not None:
            info["AccessCapabilities"] = access
        initiators = [{"@odata.id": f"/redfish/v1/Fabrics/CXL/Endpoints/I-{host}"} for host in hosts]
        body = {
            "Name": name,
            "ConnectionType": "Memory",
            "MemoryChunkInfo": [info],
            "Links": {"InitiatorEndpoints": initiators},
        }
        return self.call("POST", self.connections, body, **options)

    def delete(self, path: str) -> int:
        return self.call("DELETE", path).status_code

    def members(self, path: str) -> list[str]:
        return [member["@odata.id"] for member in self.get(path)["Members"]]

    def names(self, path: str) -> list[str]:
        return [self.get(member)["Name"] for member in self.members(path)]

    def free_mib(self) -> int:
        size = self.get(self.domain)["MemorySizeMiB"]
        return int(size) - sum(self.get(chunk)["MemoryChunkSizeMiB"] for chunk in self.members(self.chunks))

    def faults(self, *rules: dict[str, Any]) -> None:
        response = self.call("PUT", "/admin/v1/faults", list(rules))
        assert response.status_code == 200, response.text

    # --- cables ---

    def socket(self, host: str) -> Path:
        assert self.settings.cable_dir
        uuid = next(one.uuid for one in self.settings.hosts if one.name == host)
        return self.settings.cable_dir / uuid / f"{self.settings.blade}.sock"

    @contextlib.contextmanager
    def opened(self, host: str, region: str | None = None) -> Iterator[int]:
        descriptor, _ = handover.receive(self.socket(host), region=region)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def refusal(self, host: str, region: str | None = None) -> str:
        with pytest.raises(handover.HandoverError) as caught, self.opened(host, region):
            pass
        return caught.value.code


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start appliances: `serve()`, or `serve(capacity_bytes=...)` with some settings of its own."""
    running: list[Served] = []

    def start(medium: Medium | None = None, **changes: Any) -> Served:
        settings = replace(SMALL, **{"cable_dir": tmp_path / "cables", **changes})
        running.append(Served(settings, medium))
        return running[-1]

    yield start
    for served in running:
        served.close()


@pytest.fixture
def served(serve: Serve) -> Served:
    """One small appliance: 64 MiB, three hosts of which two may share a region."""
    return serve()


@pytest.fixture
def served_class() -> type[Served]:
    """The class itself, for tests that start appliances on their own."""
    return Served


@pytest.fixture
def memfds() -> Callable[[], Counter[int]]:
    """Counts the descriptors of memory files that this process - the appliance is in it - holds, by inode."""

    def count() -> Counter[int]:
        found: Counter[int] = Counter()
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(entry.readlink()).startswith("/memfd:"):
                    found[entry.stat().st_ino] += 1
        return found

    return count
