"""`/admin/v1`: hosts, links, power, faults, and the regions as they really are. Never disturbed by injected faults."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from hymcache.emulator.admin import ROOT
from hymcache.emulator.appliance import APPLIANCE, Appliance
from hymcache.emulator.errors import ApplianceError, Kind
from hymcache.emulator.faults import Active, Rule
from hymcache.emulator.model import Chunk, ChunkState, Host, HostName, Link
from hymcache.emulator.redfish.requests import read
from hymcache.emulator.settings import SettingsError, host
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

RULES = TypeAdapter(list[Rule])


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewHost(_Body):
    """POST hosts."""

    name: str
    uuid: str


class PowerCycle(_Body):
    """POST power-cycle: `keep` the bytes, as a blade with a battery; `seconds` without power."""

    keep: bool
    seconds: float = Field(default=0.0, ge=0, le=600)


class LinkChange(_Body):
    """POST links: `host` is a name or a system UUID."""

    host: str
    state: Link


class FaultList(_Body):
    """PUT faults; a bare list is accepted as well."""

    faults: list[Rule]


def routes() -> list[web.RouteDef]:
    """The routes of the admin API."""
    return [
        web.get(f"{ROOT}/hosts", list_hosts),
        web.post(f"{ROOT}/hosts", add_host),
        web.delete(f"{ROOT}/hosts/{{name}}", remove_host),
        web.get(f"{ROOT}/links", list_links),
        web.post(f"{ROOT}/links", set_link),
        web.get(f"{ROOT}/faults", list_faults),
        web.put(f"{ROOT}/faults", set_faults),
        web.delete(f"{ROOT}/faults", clear_faults),
        web.post(f"{ROOT}/power-cycle", power_cycle),
        web.get(f"{ROOT}/regions", list_regions),
    ]


async def list_hosts(request: web.Request) -> web.Response:
    """Hosts with a cable."""
    appliance = _appliance(request)
    return web.json_response({"hosts": [_host(appliance, one) for one in appliance.blade.view.hosts.values()]})


async def add_host(request: web.Request) -> web.Response:
    """Cable a host: 201, or 200 where it was cabled already."""
    body = await read(request, NewHost)
    try:
        wanted = host(body.name, body.uuid)
    except SettingsError as error:
        raise ApplianceError(
            Kind.BAD_VALUE, "host", expected="a usable name and UUID", found=str(error), remedy="correct them"
        ) from None
    added, new = _appliance(request).add_host(wanted)
    return web.json_response(_host(_appliance(request), added), status=201 if new else 200)


async def remove_host(request: web.Request) -> web.Response:
    """Take a host and its cable away; `?force=true` also out of connections."""
    force = request.query.get("force", "false") == "true"
    _appliance(request).remove_host(HostName(request.match_info["name"]), force=force)
    return web.Response(status=204)


async def list_links(request: web.Request) -> web.Response:
    """The state of every cable."""
    hosts = _appliance(request).blade.view.hosts.values()
    return web.json_response({"links": [{"host": one.name, "state": one.link.value} for one in hosts]})


async def set_link(request: web.Request) -> web.Response:
    """Pull a cable, or plug it in again."""
    body = await read(request, LinkChange)
    blade = _appliance(request).blade
    named = [one.name for one in blade.view.hosts.values() if one.uuid.lower() == body.host.lower()]
    changed = blade.set_link(named[0] if named else HostName(body.host), body.state)
    return web.json_response({"host": changed.name, "state": changed.link.value})


async def list_faults(request: web.Request) -> web.Response:
    """The rules in force and how often each was met."""
    return web.json_response({"faults": [_fault(active) for active in _appliance(request).faults.active]})


async def set_faults(request: web.Request) -> web.Response:
    """Put a list of rules in place of all others."""
    raw = await request.read()
    if raw.lstrip().startswith(b"["):
        try:
            rules = RULES.validate_json(raw)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ApplianceError(
                Kind.BAD_VALUE,
                f"fault {place}",
                expected=first["msg"].removeprefix("Input should be "),
                found=repr(first["input"]),
                remedy="correct the rule; nothing was changed",
            ) from None
    else:
        rules = (await read(request, FaultList)).faults
    _appliance(request).faults.set(rules)
    return await list_faults(request)


async def clear_faults(request: web.Request) -> web.Response:
    """No faults any more."""
    _appliance(request).faults.set([])
    return web.Response(status=204)


async def power_cycle(request: web.Request) -> web.Response:
    """Power off and on; answers when the blade is up again."""
    body = await read(request, PowerCycle)
    appliance = _appliance(request)
    await appliance.power_cycle(keep=body.keep, seconds=body.seconds)
    view = appliance.blade.view
    return web.json_response({"power_epoch": view.power_epoch, "lost": list(view.lost)})


async def list_regions(request: web.Request) -> web.Response:
    """The blade's books, and every region with the bytes of it that exist and the hosts that may use it."""
    appliance = _appliance(request)
    view, settings = appliance.blade.view, appliance.settings
    return web.json_response(
        {
            "blade": settings.blade,
            "media": settings.media.value,
            "coherence": settings.coherence.value,
            "capacity_bytes": view.capacity_bytes,
            "allocated_bytes": view.allocated_bytes,
            "free_bytes": view.free_bytes,
            "power_epoch": view.power_epoch,
            "lost": list(view.lost),
            "regions": [_region(appliance, chunk) for chunk in view.chunks.values()],
        }
    )


def _appliance(request: web.Request) -> Appliance:
    return request.app[APPLIANCE]


def _host(appliance: Appliance, one: Host) -> dict[str, Any]:
    path = appliance.cables.path(one)
    return {"name": one.name, "uuid": one.uuid, "link": one.link.value, "cable": str(path) if path else None}


def _fault(active: Active) -> dict[str, Any]:
    times = active.rule.times
    return {
        **active.rule.model_dump(mode="json"),
        "met": active.met,
        "left": None if times is None else times - active.met,
    }


def _region(appliance: Appliance, chunk: Chunk) -> dict[str, Any]:
    view = appliance.blade.view
    return {
        "id": chunk.id,
        "name": chunk.name,
        "bytes": chunk.bytes,
        "state": chunk.state.value,
        "allocated_bytes": appliance.blade.done_bytes(chunk.id) if chunk.memory is None else chunk.bytes,
        "resident_bytes": chunk.memory.resident_bytes if chunk.memory and chunk.state is ChunkState.READY else 0,
        "hosts": [
            {"name": name, "uuid": view.hosts[name].uuid, "access": access.value}
            for name, access in view.access(chunk.id).items()
            if name in view.hosts
        ],
    }
