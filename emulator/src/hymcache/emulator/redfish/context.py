"""What middleware tells handlers about one request."""

from __future__ import annotations

from aiohttp import web

_DUPLICATE = web.RequestKey("duplicate", bool)


def ask_for_duplicate(request: web.Request) -> None:
    """Have the handler create its object twice."""
    request[_DUPLICATE] = True


def wants_duplicate(request: web.Request) -> bool:
    """Whether the handler is to create its object twice."""
    return _DUPLICATE in request
