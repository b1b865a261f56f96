"""When a plugin counts as silent: by its heartbeat, whoever shows it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hymcache.operator.clients.api import Api
from hymcache.operator.clients.events import Events
from hymcache.operator.clients.kinds import CXLNODE, NODE, WATCHED, Kind, Object
from hymcache.operator.fabric.session import Sessions
from hymcache.operator.metrics import Metrics
from hymcache.operator.reconcile import node
from hymcache.operator.reconcile.context import Context
from hymcache.operator.settings import Settings
from hymcache.operator.store import Store

LIMIT = 45.0
UUID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


class Server:
    """An API server with one CXLNode, and the clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.beats = 0
        self.reads = 0

    def monotonic(self) -> float:
        return self.now

    def utc(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def cxlnode(self) -> Object:
        status = {"heartbeat": f"2026-01-01T00:00:{self.beats:02d}Z", "registered": True}
        return {"metadata": {"name": "n1"}, "spec": {"systemUUID": UUID}, "status": status}

    async def get(self, kind: Kind, name: str) -> Object | None:
        assert (kind, name) == (CXLNODE, "n1")
        self.reads += 1
        return self.cxlnode()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def ctx(server: Server) -> Context:
    store = Store(synced=set(WATCHED))
    store.objects[NODE]["n1"] = {"metadata": {"name": "n1", "labels": {}}, "systemUUID": UUID}
    store.objects[CXLNODE]["n1"] = server.cxlnode()
    outside: Any = server
    return Context(
        settings=Settings(heartbeat_stale_seconds=LIMIT),
        api=cast("Api", outside),
        store=store,
        sessions=Sessions(),
        events=cast("Events", None),
        metrics=Metrics(),
        clock=outside,
        wake=lambda *_: None,
        api_healthy_since=lambda: 0.0,
    )


def live(ctx: Context, server: Server, seconds: float, *, plugin: bool, watch: bool) -> list[float]:
    """Reconcile when asked to, for `seconds`; how long the node was silent at each end."""
    end, silent = server.now + seconds, []
    while server.now < end:
        pause = asyncio.run(node.reconcile(ctx, "n1"))
        assert pause is not None
        server.now += pause
        server.beats += plugin
        if watch:
            ctx.store.objects[CXLNODE]["n1"] = server.cxlnode()
        silent.append(ctx.silent_seconds("n1"))
    return silent


def test_a_plugin_that_the_watch_does_not_show_is_not_taken_for_silent(ctx: Context, server: Server) -> None:
    assert max(live(ctx, server, 300, plugin=True, watch=False)) < LIMIT
    assert ctx.plugin_alive("n1", labelled=True)


def test_a_plugin_that_writes_nothing_is_silent_after_the_limit(ctx: Context, server: Server) -> None:
    silent = live(ctx, server, 300, plugin=False, watch=True)
    assert next(seconds for seconds in silent if seconds > LIMIT) == LIMIT + 0.5
    assert not ctx.plugin_alive("n1", labelled=True)


def test_a_watch_that_comes_back_shows_nothing_new_of_what_was_read(ctx: Context, server: Server) -> None:
    live(ctx, server, 40, plugin=True, watch=False)
    server.now += 30
    asyncio.run(node.reconcile(ctx, "n1"))
    heard = server.now
    server.now += 40
    ctx.store.objects[CXLNODE]["n1"] = server.cxlnode()
    asyncio.run(node.reconcile(ctx, "n1"))
    assert ctx.memory.heartbeats["n1"].value == f"2026-01-01T00:00:{server.beats:02d}Z"
    assert server.now - ctx.silent_seconds("n1") <= heard, "a heartbeat counts once"


def test_a_plugin_that_is_heard_costs_no_reads(ctx: Context, server: Server) -> None:
    live(ctx, server, 1, plugin=True, watch=True)
    for _ in range(20):
        server.now += 10
        server.beats += 1
        ctx.store.objects[CXLNODE]["n1"] = server.cxlnode()
        asyncio.run(node.reconcile(ctx, "n1"))
    assert server.reads == 0
