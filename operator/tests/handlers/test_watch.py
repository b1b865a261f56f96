"""The watches as kopf runs them, against an API server of lists and streams alone."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kopf
from aiohttp import web
from aiohttp.test_utils import TestServer
from hymcache.operator.clients.kinds import CLAIM, WATCHED, Kind
from hymcache.operator.handlers import watch
from hymcache.operator.settings import Settings
from hymcache.operator.store import Store
from hymcache.operator.workqueue import Key

CLAIMS = 1000
LATE = Key("claim", "ns/late")
NAMESPACE = Kind("", "v1", "namespaces", "Namespace")
"""kopf waits until it has found this one, though it watches all namespaces at once."""


def claim(name: str, device_class: str) -> dict[str, Any]:
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": device_class}}]}}
    return {"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"}, "spec": spec}


class Server:
    """Claims that exist, and one more that is made as soon as claims are watched. Of other kinds there is nothing."""

    def __init__(self, claims: list[dict[str, Any]], late: dict[str, Any]) -> None:
        self._claims, self._late = claims, late
        self._groups: dict[tuple[str, str], list[Kind]] = defaultdict(list)
        for kind in (*WATCHED, NAMESPACE):
            self._groups[kind.group, kind.version].append(kind)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/api", self._versions)
        app.router.add_get("/apis", self._all_groups)
        for (group, version), kinds in self._groups.items():
            app.router.add_get(f"/apis/{group}/{version}" if group else f"/api/{version}", self._resources)
            for kind in kinds:
                app.router.add_get(kind.path(), self._collection)
        async with TestServer(app) as server:
            yield str(server.make_url("")).rstrip("/")

    async def _versions(self, _: web.Request) -> web.Response:
        return web.json_response({"versions": ["v1"]})

    async def _all_groups(self, _: web.Request) -> web.Response:
        groups = [
            {"name": group, "versions": [{"version": version}], "preferredVersion": {"version": version}}
            for group, version in self._groups
            if group
        ]
        return web.json_response({"groups": groups})

    async def _resources(self, request: web.Request) -> web.Response:
        group, version = request.path.removeprefix("/").split("/", 1)[1].rpartition("/")[::2]
        resources = [
            {
                "name": kind.plural,
                "kind": kind.name,
                "singularName": kind.name.lower(),
                "namespaced": kind.namespaced,
                "verbs": ["list", "watch"],
            }
            for kind in self._groups[group, version]
        ]
        return web.json_response({"resources": resources})

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        of_claims = request.path == CLAIM.path()
        if "watch" not in request.query:
            items = self._claims if of_claims else []
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        stream = web.StreamResponse()
        await stream.prepare(request)
        if of_claims:
            await stream.write(json.dumps({"type": "ADDED", "object": self._late}).encode() + b"\n")
        await asyncio.Event().wait()
        return stream


def test_a_watch_that_the_api_server_refuses_is_tried_again_soon_for_a_minute() -> None:
    pauses = list(watch.operator_settings(Settings()).networking.error_backoffs)
    assert max(pauses) <= 2
    assert sum(pauses) >= 60


def test_a_new_claim_is_seen_at_once_although_a_thousand_others_were_listed_just_before() -> None:
    late = claim("late", "hymcache-shared")
    server = Server([claim(f"gpu{number}", "gpu.example.com") for number in range(CLAIMS)], late)

    async def life() -> None:
        seen, stop = asyncio.Event(), asyncio.Event()

        def wake(key: Key, _: float) -> None:
            if key == LATE:
                seen.set()

        async with server.run() as url:

            async def login() -> kopf.ConnectionInfo:
                return kopf.ConnectionInfo(server=url)

            operator = asyncio.create_task(
                kopf.operator(
                    registry=watch.registry(Store(), wake, login),
                    settings=watch.operator_settings(Settings()),
                    standalone=True,
                    clusterwide=True,
                    stop_flag=stop,
                )
            )
            try:
                await asyncio.wait_for(seen.wait(), 20)
            finally:
                stop.set()
                await operator

    asyncio.run(life())
