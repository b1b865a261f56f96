"""/healthz, /readyz and /metrics. A loop that no longer turns does not answer, which fails the probe by itself."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from hymcache.operator.metrics import Metrics
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest


class HealthServer:
    """A small HTTP server.

    Args:
        address: `host:port`; port 0 picks one.
        metrics: what /metrics shows.
        problem: what is wrong with this process, or None; anything but None fails /healthz.
    """

    def __init__(self, address: str, metrics: Metrics, problem: Callable[[], str | None]) -> None:
        self._address = address
        self._metrics = metrics
        self._problem = problem
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Bind and serve."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._show)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        host, _, port = self._address.rpartition(":")
        site = web.TCPSite(self._runner, host or "0.0.0.0", int(port))
        await site.start()
        bound = self._runner.addresses[0]
        self.url = f"http://{bound[0]}:{bound[1]}"

    async def stop(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        problem = self._problem()
        return web.Response(text=problem or "ok", status=500 if problem else 200)

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _show(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
