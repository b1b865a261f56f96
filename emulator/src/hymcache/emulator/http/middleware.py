"""What every request passes, from the outside in: errors into answers, power, credentials, faults."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Awaitable, Callable

from aiohttp import web
from hymcache.emulator.appliance import APPLIANCE
from hymcache.emulator.errors import ApplianceError
from hymcache.emulator.redfish import messages, urls

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PUBLIC = {
    ("GET", "/redfish"),
    ("GET", urls.ROOT),
    ("GET", f"{urls.ROOT}/odata"),
    ("GET", f"{urls.ROOT}/$metadata"),
    ("POST", urls.SESSIONS),
}
log = logging.getLogger(__name__)


async def answer(request: web.Request, handler: Handler) -> web.Response:
    """What the handler answers, or the Redfish error for what it raises; never raises anything but a cancellation."""
    try:
        response = await handler(request)
        assert isinstance(response, web.Response), "handlers answer whole bodies"
    except ApplianceError as error:
        log.info("refused %s %s: %s", request.method, request.path, error)
        return messages.refusal(error)
    except web.HTTPMethodNotAllowed as error:
        return _not_allowed(request, error)
    except web.HTTPException as error:
        return messages.plain(error.status, f"{request.path}: {error.reason}", "correct the request")
    except Exception:
        log.exception("failed %s %s", request.method, request.path)
        return messages.plain(500, f"{request.path}: the appliance failed; its log says why", "read the log, try again")
    return response


def cut(request: web.Request) -> web.Response:
    """Reset the connection: the client sees no answer at all. What is returned goes nowhere."""
    transport = request.transport
    if transport is not None:
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    return web.Response(status=503)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error as Redfish does, and put the headers on that all answers have."""
    response = await answer(request, handler)
    response.headers["OData-Version"] = "4.0"
    response.headers["Cache-Control"] = "no-store"
    response.headers["Server"] = "hymcache-appliance"
    return response


@web.middleware
async def power(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Without power there is nobody who could answer."""
    return await handler(request) if request.app[APPLIANCE].powered else cut(request)


@web.middleware
async def credentials(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let in who has the credentials or a session's token; the service root and the login are open."""
    method = "GET" if request.method == "HEAD" else request.method
    if (method, request.path.rstrip("/")) not in PUBLIC:
        access = request.app[APPLIANCE].access
        if not access.allows(request.headers.get("Authorization"), request.headers.get("X-Auth-Token")):
            text = f"{request.path}: expected the service's credentials or the token of a session, found neither"
            response = messages.plain(401, text, "send basic authentication, or log in at SessionService/Sessions")
            response.headers["WWW-Authenticate"] = 'Basic realm="memory appliance"'
            return response
    return await handler(request)


def _not_allowed(request: web.Request, error: web.HTTPMethodNotAllowed) -> web.Response:
    """405, or 404 where there is nothing at all."""
    readable = request.app[APPLIANCE].tree.get(request.path) is not None
    if request.path.startswith(urls.ROOT) and not readable:
        return messages.plain(404, f"{request.path}: expected a resource, found none", "follow the links from the root")
    allowed = ", ".join(sorted(error.allowed_methods))
    text = f"{request.path}: expected one of {allowed}, found {request.method}"
    response = messages.plain(405, text, "use another method")
    response.headers["Allow"] = allowed
    return response
