"""A Redfish service that behaves as badly as the ones in the field: each `Habit` is one that was met in a real one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

DOMAIN = "/redfish/v1/Chassis/b1/MemoryDomains/1"
CHUNKS = f"{DOMAIN}/MemoryChunks"
FABRIC = "/redfish/v1/Fabrics/CXL"


class Habit(Flag):
    NONE = 0
    ASYNC = auto()  # 202 and a task monitor for every write
    FORGETS_NAMES = auto()  # a POST with a known name makes a second object
    LATE_COLLECTION = auto()  # Connections is 404 until the first connection
    MANGLED_LINKS = auto()  # advertised sub-paths are not under their parent
    OK_FOR_CREATED = auto()  # 200 where 201 is meant, no Location
    SILENT = auto()  # 204 without body


@dataclass
class Service:
    habits: Habit = Habit.NONE
    size_mib: int = 64 << 10
    hosts: tuple[str, ...] = ("AAAAAAAA-0000-0000-0000-000000000001", "AAAAAAAA-0000-0000-0000-000000000002")
    chunks: dict[str, dict[str, Any]] = field(default_factory=dict)
    connections: dict[str, dict[str, Any]] = field(default_factory=dict)
    tasks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    answers: list[tuple[str, str, str]] = field(default_factory=list)
    """Faults to come: (method, part of the path, what): `500-but-done`, `500`, `lost`, `lost-undone`, `404`, `503`."""
    writes: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        fault = self._fault(request)
        if fault == "404":
            return _error(404, "Base.1.0.ResourceMissingAtURI", "not found")
        if fault in {"500", "503"}:
            return _error(int(fault), "Base.1.0.InternalError", "internal error")
        if fault == "lost-undone":
            await _drop(request)
        reply = self._get(request) if request.method == "GET" else await self._write(request)
        if fault == "lost":
            await _drop(request)
        if fault == "500-but-done":
            return _error(500, "Base.1.0.InternalError", "internal error")
        return reply

    def _fault(self, request: web.Request) -> str | None:
        for entry in self.answers:
            if entry[0] == request.method and entry[1] in request.path:
                self.answers.remove(entry)
                return entry[2]
        return None

    def _get(self, request: web.Request) -> web.Response:
        path = request.path.rstrip("/")
        if path in self.tasks:
            states = self.tasks[path]
            state = states.pop(0) if len(states) > 1 else states[0]
            return web.json_response(state, status=202 if state.get("TaskState") == "Running" else 200)
        document = self._documents().get(path)
        return web.json_response(document) if document else _error(404, "Base.1.0.ResourceMissingAtURI", "not found")

    def _documents(self) -> dict[str, dict[str, Any]]:
        mangled = Habit.MANGLED_LINKS in self.habits

        def ref(path: str) -> dict[str, str]:
            return {"@odata.id": "/redfish/v1/" + path.rsplit("/", 1)[1] if mangled else path}

        documents: dict[str, dict[str, Any]] = {
            "/redfish/v1": {
                "Vendor": "Test",
                "RedfishVersion": "1.6.0",
                "Fabrics": {"@odata.id": "/redfish/v1/Fabrics"},
            },
            "/redfish/v1/Chassis": _collection(["/redfish/v1/Chassis/b1"]),
            "/redfish/v1/Fabrics": _collection([FABRIC]),
            "/redfish/v1/Chassis/b1": {"Id": "b1", "MemoryDomains": ref("/redfish/v1/Chassis/b1/MemoryDomains")},
            "/redfish/v1/Chassis/b1/MemoryDomains": _collection([DOMAIN]),
            DOMAIN: {
                "Id": "1",
                "AllowsMemoryChunkCreation": True,
                "MemorySizeMiB": self.size_mib,
                "MemoryChunkIncrementMiB": 1024,
                "MemoryChunks": ref(CHUNKS),
                "Status": {"State": "Enabled", "Health": "OK"},
            },
            CHUNKS: _collection(list(self.chunks)),
            FABRIC: {"Id": "CXL", "FabricType": "CXL", "Endpoints": ref(f"{FABRIC}/Endpoints")},
            f"{FABRIC}/Endpoints": _collection([f"{FABRIC}/Endpoints/I{n}" for n in range(len(self.hosts))]),
        }
        for number, uuid in enumerate(self.hosts):
            identifier = {"DurableName": uuid, "DurableNameFormat": "UUID"}
            documents[f"{FABRIC}/Endpoints/I{number}"] = {
                "ConnectedEntities": [{"EntityRole": "Initiator", "Identifiers": [identifier]}]
            }
        if self.connections or Habit.LATE_COLLECTION not in self.habits:
            documents[f"{FABRIC}/Connections"] = _collection(list(self.connections))
        return {**documents, **self.chunks, **self.connections}

    async def _write(self, request: web.Request) -> web.Response:
        path = request.path.rstrip("/")
        self.writes.append((request.method, path))
        body = await request.json() if request.can_read_body else {}
        match request.method:
            case "POST" if path == CHUNKS:
                return self._create(self.chunks, CHUNKS, {**body, "Status": {"State": "Enabled"}})
            case "POST" if path == f"{FABRIC}/Connections":
                return self._create(self.connections, path, body)
            case "PATCH" if path in self.connections:
                self.connections[path].update(body)
                return web.Response(status=204)
            case "DELETE":
                found = self.chunks.pop(path, None) or self.connections.pop(path, None)
                return web.Response(status=204) if found else _error(404, "Base.1.0.ResourceMissingAtURI", "gone")
        return _error(405, "Base.1.0.OperationNotAllowed", "no")

    def _create(self, where: dict[str, dict[str, Any]], parent: str, body: dict[str, Any]) -> web.Response:
        used = sum(chunk["MemoryChunkSizeMiB"] for chunk in self.chunks.values())
        if where is self.chunks and used + body["MemoryChunkSizeMiB"] > self.size_mib:
            return _error(507, "Base.1.0.InsufficientStorage", "not enough memory")
        same = [path for path, document in where.items() if document["Name"] == body["Name"]]
        path = same[0] if same and Habit.FORGETS_NAMES not in self.habits else f"{parent}/{next(self.numbers)}"
        where[path] = body
        if Habit.ASYNC in self.habits:
            monitor = f"/redfish/v1/TaskService/Tasks/{next(self.numbers)}"
            self.tasks[monitor] = [{"TaskState": "Running"}, {"TaskState": "Completed", "TaskStatus": "OK"}]
            return web.json_response({"@odata.id": monitor}, status=202, headers={"Location": monitor})
        if Habit.SILENT in self.habits:
            return web.Response(status=204, headers={"Location": path})
        if Habit.OK_FOR_CREATED in self.habits:
            return web.json_response(body, status=200)
        return web.json_response(body, status=201, headers={"Location": path})


def _collection(paths: list[str]) -> dict[str, Any]:
    return {"Members@odata.count": len(paths), "Members": [{"@odata.id": path} for path in paths]}


def _error(status: int, identifier: str, message: str) -> web.Response:
    info = [{"MessageId": identifier, "Message": message}]
    return web.json_response({"error": {"code": identifier, "@Message.ExtendedInfo": info}}, status=status)


async def _drop(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.close()
    await asyncio.sleep(0)


@asynccontextmanager
async def serving(service: Service) -> AsyncIterator[str]:
    """The service on a loopback port; yields its URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", service.handle)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")
