"""Full lists: at the start they fill the store, later they repair what a watch has missed, and tell if it is stuck."""

from __future__ import annotations

import asyncio
import logging

from hymcache.operator.clients.api import Api, ApiError
from hymcache.operator.clients.kinds import WATCHED, Kind, Object
from hymcache.operator.metrics import Metrics
from hymcache.operator.settings import Settings
from hymcache.operator.store import Store
from hymcache.operator.workqueue import Wake

log = logging.getLogger(__name__)

RECHECK_SECONDS = 30.0
STALE_MAX = 2


class Resync:
    """Lists every kind now and then."""

    def __init__(self, api: Api, store: Store, settings: Settings, metrics: Metrics, wake: Wake) -> None:
        self._api = api
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._wake = wake
        self.stale = 0
        """Lists in a row that the watch had not caught up with after `watch_lag_seconds`."""

    @property
    def healthy(self) -> bool:
        """The watches deliver."""
        return self.stale < STALE_MAX

    async def fill(self) -> None:
        """The first lists. Tries until every kind has answered."""
        for kind in WATCHED:
            while True:
                try:
                    items, version = await self._api.list_all(kind)
                except ApiError as error:
                    log.warning("cannot list %s: %s", kind.plural, error)
                    await asyncio.sleep(1.0)
                    continue
                self._take(kind, items, version)
                break

    async def run(self) -> None:
        """Repair until cancelled."""
        while True:
            await asyncio.sleep(RECHECK_SECONDS if self.stale else self._settings.resync_seconds)
            try:
                lists = {kind: await self._api.list_all(kind) for kind in WATCHED}
            except ApiError as error:
                log.warning("cannot list for a resync: %s", error)
                continue
            await asyncio.sleep(self._settings.watch_lag_seconds)
            behind = sum(self._take(kind, items, version) for kind, (items, version) in lists.items())
            self.stale = self.stale + 1 if behind else 0
            self._metrics.watch_lag.set(self._settings.watch_lag_seconds if behind else 0.0)
            if behind:
                log.error("the watch has not shown %d changes for %.0f s", behind, self._settings.watch_lag_seconds)

    def _take(self, kind: Kind, items: list[Object], version: str) -> int:
        named = [{"apiVersion": kind.api_version, "kind": kind.name, **item} for item in items]
        keys, repaired = self._store.relist(kind, named, int(version))
        for key, delay in keys.items():
            self._wake(key, delay)
        return repaired
