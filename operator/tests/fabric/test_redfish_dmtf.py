"""Reading DMTF's own CXL mockups: documents that nobody here wrote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hymcache.operator.fabric.redfish import RedfishFabric, RedfishSettings

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "redfish"
GIB = 1 << 30
HOST = "86D53A7B-D29A-3287-BA23-EF43A27BC6B9"


def mockup(name: str, scenario: Callable[[RedfishFabric], Awaitable[Any]]) -> Any:
    root = DATA / name
    if not root.is_dir():
        pytest.skip(f"{root} is not here")

    async def handle(request: web.Request) -> web.Response:
        file = root / request.path.removeprefix("/redfish/v1").strip("/") / "index.json"
        return web.json_response(json.loads(file.read_text())) if file.is_file() else web.Response(status=404)

    async def main() -> Any:
        app = web.Application()
        app.router.add_get("/{path:.*}", handle)
        async with TestServer(app) as server:
            url = str(server.make_url("")).rstrip("/")
            fabric = RedfishFabric(RedfishSettings(url, pauses_missing_seconds=(0.01,)))
            try:
                return await scenario(fabric)
            finally:
                await fabric.close()

    return asyncio.run(main())


def test_blades_and_hosts_of_public_cxl() -> None:
    inventory = mockup("public-cxl", lambda fabric: fabric.inventory())
    assert inventory.version == "Contoso WidgetDeluxe 8744 (Redfish 1.6.0)"
    blades = {blade.name: blade for blade in inventory.blades}
    assert set(blades) == {"cxltype2", "cxltype3", "pooledcxltype2", "pooledcxltype3", "pooledcxltype3-6"}
    assert (blades["cxltype3"].bytes, blades["cxltype3"].granule_bytes) == (16 * GIB, 64 << 20)
    assert set(inventory.hosts.values()) == {HOST}


def test_a_host_with_three_root_ports_is_connected_by_the_one_in_the_blade_s_zone() -> None:
    async def scenario(fabric: RedfishFabric) -> dict[str, list[str]]:
        await fabric.inventory()
        domains = (await fabric._known()).domains
        return {name: [path.rsplit("/", 1)[1] for path in d.initiators.values()] for name, d in domains.items()}

    used = mockup("public-cxl", scenario)
    assert used["pooledcxltype2"] == ["I2"]
    assert used["pooledcxltype3"] == ["I3"]


def test_regions_and_their_hosts_of_public_cxl() -> None:
    regions = mockup("public-cxl", lambda fabric: fabric.list_regions())
    found = {region.blade: (region.name, region.bytes, len(region.hosts)) for region in regions}
    assert found["pooledcxltype2"][2] == 1  # connection 12


@pytest.mark.parametrize("name", ["public-cxl", "public-cxl-multiswitch"])
def test_every_region_lies_on_a_blade_of_the_inventory(name: str) -> None:
    async def scenario(fabric: RedfishFabric) -> None:
        blades = {blade.name for blade in (await fabric.inventory()).blades}
        regions = await fabric.list_regions()
        assert regions
        assert {region.blade for region in regions} <= blades

    mockup(name, scenario)
