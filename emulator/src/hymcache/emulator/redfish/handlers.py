"""What clients may do: the verbs of the Redfish tree. Each handler reads, acts on the blade, and answers."""

from __future__ import annotations

import re

from aiohttp import web
from hymcache.emulator.appliance import APPLIANCE, Appliance
from hymcache.emulator.errors import ApplianceError, Kind
from hymcache.emulator.model import MIB, ChunkId, ConnectionId
from hymcache.emulator.redfish import fabric, messages, requests, service, urls
from hymcache.emulator.redfish.chassis import chunk as chunk_payload
from hymcache.emulator.redfish.context import wants_duplicate
from hymcache.emulator.redfish.urls import BladeUrls, Payload

EXPAND_ONE_LEVEL = re.compile(r"\.(\(\$levels=1\))?")


def routes(blade: str) -> list[web.RouteDef]:
    """The service's routes; whatever is readable is found by `Tree`, behind the last of them."""
    at = BladeUrls(blade)
    return [
        web.get("/redfish", versions),
        web.get(f"{urls.ROOT}/odata", odata),
        web.get(f"{urls.ROOT}/$metadata", metadata),
        web.get(f"{urls.TASK_MONITORS}/{{id}}", monitor),
        web.post(urls.SESSIONS, create_session),
        web.delete(f"{urls.SESSIONS}/{{id}}", delete_session),
        web.post(at.chunks, create_chunk),
        web.delete(f"{at.chunks}/{{id}}", delete_chunk),
        web.post(urls.CONNECTIONS, create_connection),
        web.patch(f"{urls.CONNECTIONS}/{{id}}", patch_connection),
        web.delete(f"{urls.CONNECTIONS}/{{id}}", delete_connection),
        web.get("/redfish/{rest:.*}", read),
    ]


async def versions(request: web.Request) -> web.Response:
    """Which versions of the protocol there are."""
    return web.json_response({"v1": f"{urls.ROOT}/"})


async def odata(request: web.Request) -> web.Response:
    """The OData service document."""
    return web.json_response(service.odata())


async def metadata(request: web.Request) -> web.Response:
    """The OData metadata document."""
    return web.Response(text=service.metadata(), content_type="application/xml")


async def read(request: web.Request) -> web.Response:
    """Any resource, with the ones below it where `$expand=.` asks for that."""
    expand = False
    for name, value in request.query.items():
        if name == "$expand" and EXPAND_ONE_LEVEL.fullmatch(value):
            expand = True
        elif name.startswith("$"):
            text = f"query {name}={value}: expected $expand=. or no query option, found one that is not supported"
            return messages.plain(501, text, "ask without it")
    found = _appliance(request).tree.get(request.path, expand=expand)
    if found is None:
        return nothing_at(request)
    return web.json_response(found)


def nothing_at(request: web.Request) -> web.Response:
    """The answer where there is no resource."""
    text = f"{request.path}: expected a resource, found none"
    return messages.plain(404, text, "start from /redfish/v1/ and follow the links")


async def monitor(request: web.Request) -> web.Response:
    """The end of a task's request, once; 202 until then."""
    answer = _appliance(request).tasks.monitor(request.match_info["id"])
    return answer if answer is not None else nothing_at(request)


async def create_session(request: web.Request) -> web.Response:
    """Log in: the token is in the X-Auth-Token header of the answer and nowhere else."""
    body = await requests.read(request, requests.NewSession)
    access = _appliance(request).access
    if not access.matches(body.user, body.password.get_secret_value()):
        return messages.plain(401, "session: expected the service's credentials, found others", "correct them")
    session = access.create()
    response = _created(f"{urls.SESSIONS}/{session.id}", access.payload(session.id) or {}, new=True)
    response.headers["X-Auth-Token"] = session.token
    return response


async def delete_session(request: web.Request) -> web.Response:
    """Log out."""
    if not _appliance(request).access.delete(request.match_info["id"]):
        return nothing_at(request)
    return web.Response(status=204)


async def create_chunk(request: web.Request) -> web.Response:
    """Compose: 201 for a new chunk, 200 for the one that already has the name; answered when the memory is there."""
    appliance = _appliance(request)
    body = await requests.read(request, requests.NewChunk)
    for device in body.links.logical_devices:
        if appliance.tree.get(device.path) is None:
            raise _no_such_link(device.path, "a logical device of this blade")
    size = body.size_mib * MIB
    chunk, new = await appliance.blade.compose(body.name, size)
    if wants_duplicate(request):
        await appliance.blade.compose(body.name, size, duplicate=True)
    at = BladeUrls(appliance.settings.blade)
    return _created(at.chunk(chunk.id), chunk_payload(appliance.settings, chunk), new=new)


async def delete_chunk(request: web.Request) -> web.Response:
    """Release: answered when the memory is scrubbed."""
    await _appliance(request).blade.release(ChunkId(request.match_info["id"]))
    return web.Response(status=204)


async def create_connection(request: web.Request) -> web.Response:
    """Attach: 201 for a new connection, 200 for the one that already has the name."""
    appliance = _appliance(request)
    body = await requests.read(request, requests.NewConnection)
    info = body.chunks[0]
    chunk = BladeUrls(appliance.settings.blade).chunk_of(info.chunk.path)
    for target in body.links.targets:
        if target.path.rstrip("/") != urls.target(chunk):
            raise _no_such_link(target.path, f"{urls.target(chunk)}, the endpoint of chunk {chunk}")
    hosts = [urls.host_of(initiator.path) for initiator in body.links.initiators]
    connection, new = appliance.blade.connect(body.name, chunk, hosts, info.access)
    if wants_duplicate(request):
        appliance.blade.connect(body.name, chunk, hosts, info.access, duplicate=True)
    payload = fabric.connection(appliance.settings, connection)
    return _created(urls.connection(connection.id), payload, new=new)


async def patch_connection(request: web.Request) -> web.Response:
    """Change which hosts a connection gives its chunk to."""
    appliance = _appliance(request)
    body = await requests.read(request, requests.ConnectionPatch)
    hosts = [urls.host_of(initiator.path) for initiator in body.links.initiators]
    connection = appliance.blade.set_hosts(ConnectionId(request.match_info["id"]), hosts)
    return web.json_response(fabric.connection(appliance.settings, connection))


async def delete_connection(request: web.Request) -> web.Response:
    """Detach."""
    _appliance(request).blade.disconnect(ConnectionId(request.match_info["id"]))
    return web.Response(status=204)


def _appliance(request: web.Request) -> Appliance:
    return request.app[APPLIANCE]


def _created(path: str, payload: Payload, *, new: bool) -> web.Response:
    return web.json_response(payload, status=201 if new else 200, headers={"Location": path})


def _no_such_link(path: str, expected: str) -> ApplianceError:
    return ApplianceError(
        Kind.BAD_VALUE,
        f"link {path}",
        expected=expected,
        found="another one",
        remedy="correct the link or leave it out",
    )
