"""The faults at work: a middleware that lets a request go wrong as its rule says."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from hymcache.emulator.appliance import APPLIANCE
from hymcache.emulator.faults import Fault, Rule
from hymcache.emulator.http.middleware import Handler, answer, cut
from hymcache.emulator.model import MIB
from hymcache.emulator.redfish import messages, urls
from hymcache.emulator.redfish.context import ask_for_duplicate

CHANGES = ("POST", "PATCH", "DELETE")
NOT_DONE = {Fault.ERROR_500: 500, Fault.BUSY: 503, Fault.MISSING: 404, Fault.REFUSE: 507}
log = logging.getLogger(__name__)


@web.middleware
async def faults(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Apply the rules to a request of the Redfish service; the admin API is never disturbed."""
    if not request.path.startswith("/redfish"):
        return await handler(request)
    appliance = request.app[APPLIANCE]
    rules = appliance.faults.take(request.method, request.path)
    fault = next((rule for rule in rules if rule.fault is not Fault.SLOW), None)
    for rule in rules:
        log.info("fault %s meets %s %s", rule.fault, request.method, request.path)
    await request.read()  # a task outlives the connection that the body comes from

    async def act() -> web.Response:
        for rule in rules:
            await asyncio.sleep(rule.seconds if rule.fault is Fault.SLOW else 0)
        return await _go_wrong(request, handler, fault)

    prefers_task = "respond-async" in request.headers.get("Prefer", "") and request.method in CHANGES
    is_login = request.path.rstrip("/") == urls.SESSIONS
    if (fault is not None and fault.fault is Fault.ASYNC_TASK) or (prefers_task and not is_login):
        return appliance.tasks.start(act)
    return await act()


async def _go_wrong(request: web.Request, handler: Handler, rule: Rule | None) -> web.Response:
    if rule is not None and (instead := _instead(request, rule.fault)) is not None:
        return instead
    if rule is not None and rule.fault is Fault.DUPLICATE:
        ask_for_duplicate(request)
    response = await answer(request, handler)
    return response if rule is None else _afterwards(request, response, rule)


def _instead(request: web.Request, fault: Fault) -> web.Response | None:
    """The answer of a fault that keeps the request from being done; None for all others."""
    if fault is Fault.RESET:
        return cut(request)
    if fault is Fault.IGNORED:
        return web.Response(status=204)
    status = NOT_DONE.get(fault)
    if status is None:
        return None
    response = messages.plain(status, f"{request.path}: injected fault, nothing was done", "try again")
    if fault is Fault.BUSY:
        response.headers["Retry-After"] = "1"
    return response


def _afterwards(request: web.Request, response: web.Response, rule: Rule) -> web.Response:
    """What becomes of the answer to a request that was done."""
    match rule.fault:
        case Fault.LOST_REPLY:
            return cut(request)
        case Fault.GARBLED if isinstance(response.body, bytes):
            response.body = response.body[: len(response.body) // 2]
        case Fault.DONE_500:
            return messages.plain(
                500, f"{request.path}: injected fault after the work was done", "look before retrying"
            )
        case Fault.MANGLED_LINKS:
            return _rewritten(response, _mangled)
        case Fault.LIE_CAPACITY:
            lie = rule.bytes if rule.bytes is not None else request.app[APPLIANCE].settings.capacity_bytes
            return _rewritten(response, lambda payload: _inflated(payload, lie // MIB))
    return response


def _rewritten(response: web.Response, change: Callable[[Any], Any]) -> web.Response:
    """The same answer with its JSON changed; anything else is left alone."""
    if response.content_type == "application/json" and isinstance(response.body, bytes):
        response.body = json.dumps(change(json.loads(response.body))).encode()
    return response


def _mangled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _short(item) if key == "@odata.id" else _mangled(item) for key, item in value.items()}
    return [_mangled(item) for item in value] if isinstance(value, list) else value


def _short(link: str) -> str:
    return f"{urls.ROOT}/{link.rstrip('/').rpartition('/')[2]}" if link.count("/") > urls.ROOT.count("/") else link


def _inflated(payload: Any, mib: int) -> Any:
    if isinstance(payload, dict) and "MemoryDomain" in payload.get("@odata.type", ""):
        payload["MemorySizeMiB"] = payload.get("MemorySizeMiB", 0) + mib
        oem = payload.get("Oem", {}).get("HyMCache", {})
        oem["FreeMiB"] = oem.get("FreeMiB", 0) + mib
    return payload
