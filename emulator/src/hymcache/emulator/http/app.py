"""The aiohttp application of an appliance."""

from __future__ import annotations

from aiohttp import web
from hymcache.emulator.admin import api
from hymcache.emulator.appliance import APPLIANCE, Appliance
from hymcache.emulator.http import inject, middleware
from hymcache.emulator.redfish import handlers


def application(appliance: Appliance) -> web.Application:
    """Redfish and the admin API of one appliance, behind its credentials."""
    app = web.Application(
        middlewares=[middleware.errors, middleware.power, middleware.credentials, inject.faults],
    )
    app[APPLIANCE] = appliance
    app.add_routes([*api.routes(), *handlers.routes(appliance.settings.blade)])
    return app
