"""Metrics and logs around any backend; the backends stay clean."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable
from typing import TypeVar

from hymcache.operator.fabric.port import (
    Capabilities,
    Fabric,
    FabricError,
    HostKey,
    Identity,
    Inventory,
    Region,
)
from hymcache.operator.metrics import Metrics

log = logging.getLogger(__name__)
T = TypeVar("T")


class Instrumented:
    """A `Fabric` that counts and times the calls of another one."""

    def __init__(self, inner: Fabric, name: str, metrics: Metrics) -> None:
        self._inner = inner
        self._name = name
        self._metrics = metrics

    async def _timed(self, call: str, work: Awaitable[T]) -> T:
        started, outcome = time.monotonic(), "ok"
        try:
            return await work
        except FabricError as error:
            outcome = error.fault.value
            raise
        finally:
            spent = time.monotonic() - started
            self._metrics.fabric_calls.labels(self._name, call, outcome).inc()
            self._metrics.fabric_seconds.labels(self._name, call).observe(spent)
            log.debug("%s on %s: %s in %.3f s", call, self._name, outcome, spent)

    def capabilities(self) -> Capabilities:
        """As the inner one."""
        return self._inner.capabilities()

    async def inventory(self) -> Inventory:
        """As the inner one."""
        return await self._timed("inventory", self._inner.inventory())

    async def compose(self, key: str, size: int, blade: str) -> Region:
        """As the inner one."""
        return await self._timed("compose", self._inner.compose(key, size, blade))

    async def attach(self, region: Region, host: HostKey) -> Identity:
        """As the inner one."""
        return await self._timed("attach", self._inner.attach(region, host))

    async def detach(self, region: Region, host: HostKey) -> None:
        """As the inner one."""
        await self._timed("detach", self._inner.detach(region, host))

    async def release(self, region: Region) -> None:
        """As the inner one."""
        await self._timed("release", self._inner.release(region))

    async def find(self, key: str, blade: str) -> Region | None:
        """As the inner one."""
        return await self._timed("find", self._inner.find(key, blade))

    async def list_regions(self) -> list[Region]:
        """As the inner one."""
        return await self._timed("list", self._inner.list_regions())

    async def fence(self, host: HostKey, prefix: str) -> list[str]:
        """As the inner one."""
        return await self._timed("fence", self._inner.fence(host, prefix))

    async def close(self) -> None:
        """As the inner one."""
        await self._inner.close()
