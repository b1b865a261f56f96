"""kopf as the source of events, and nothing else.

Only `on.event` is used: any other handler would write kopf's annotations and finalizers on users' objects. Peering is
off, since the Lease decides who acts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import kopf
from hymcache.operator.clients.kinds import WATCHED, Kind
from hymcache.operator.settings import Settings
from hymcache.operator.store import Store
from hymcache.operator.workqueue import Wake


def registry(store: Store, wake: Wake, login: Callable[[], Awaitable[kopf.ConnectionInfo]]) -> kopf.OperatorRegistry:
    """Handlers of one operator, on a registry of their own."""
    found = kopf.OperatorRegistry()
    for kind in WATCHED:
        _watch(found, kind, store, wake)

    @kopf.on.login(registry=found)
    async def _login(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    return found


def _watch(found: kopf.OperatorRegistry, kind: Kind, store: Store, wake: Wake) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, registry=found, id=f"watch-{kind.plural}")
    async def _event(event: Any, **_: Any) -> None:
        body = {"apiVersion": kind.api_version, "kind": kind.name, **event["object"]}
        for key, delay in store.observe(kind, body, gone=event["type"] == "DELETED").items():
            wake(key, delay)


def operator_settings(settings: Settings) -> kopf.OperatorSettings:
    """Kopf's settings: no writes, no scanning of CRDs, and watches that end even when the connection is half dead."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.scanning.disabled = True
    found.peering.standalone = True
    found.watching.server_timeout = settings.watch_server_timeout_seconds
    found.watching.client_timeout = settings.watch_server_timeout_seconds + 30
    found.watching.connect_timeout = 10
    found.networking.request_timeout = 30
    found.networking.enforce_retry_after = True
    # Short to the end: when the API server is back, a watch that still pauses makes live plugins look silent.
    found.networking.error_backoffs = (1.0, *[2.0] * 30)
    # kopf gives each object with an event a task, which waits `idle_timeout` for the next one. With a limit on these
    # tasks a new claim waits behind all that was listed or has changed just before: so none, but short lives.
    found.queueing.idle_timeout = 0.1
    found.process.ultimate_exiting_timeout = 20
    return found
