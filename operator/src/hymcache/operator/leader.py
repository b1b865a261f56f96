"""Leadership by a Lease, and the generation that makes a deposed leader harmless.

One process acts. It renews the Lease; when it could not for `renew_deadline_seconds` it ends itself, before the Lease
runs out for the others. Whoever takes the Lease raises its generation (`spec.leaseTransitions`) and first writes that
number on every slice and region: a write of the old leader that was still under way then meets another
resourceVersion, and its next reading shows the higher number.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from hymcache.crds.names import ANNOTATION_GENERATION, DRIVER
from hymcache.operator.clients.api import Api, ApiError, ConflictError, DeposedError, generation_of
from hymcache.operator.clients.kinds import LEASE, REGION, SLICE, Kind, Object
from hymcache.operator.clock import Clock
from hymcache.operator.settings import HOLDER_SEPARATOR, Settings

log = logging.getLogger(__name__)


class Leader:
    """Candidate for the Lease, then its holder."""

    def __init__(self, api: Api, settings: Settings, clock: Clock) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self.holder = settings.holder()
        self.healthy_since = clock.monotonic()
        """Since when every renewal has succeeded: the API server was there all the time."""
        self._renewed = clock.monotonic()

    async def acquire(self) -> int:
        """Wait until the Lease is ours; returns its generation.

        A holder is believed for `lease_seconds` after the Lease was last *seen* to change, by our own clock: the times
        written in it are another machine's.
        """
        seen: tuple[str, float] | None = None
        while True:
            try:
                lease = await self._api.get(LEASE, self._settings.lease_name, self._settings.namespace)
                version = lease["metadata"]["resourceVersion"] if lease else ""
                now = self._clock.monotonic()
                if seen is None or seen[0] != version:
                    seen = (version, now)
                if self._free(lease) or now - seen[1] > self._settings.lease_seconds:
                    return await self._take(lease)
            except ConflictError:
                log.debug("another candidate was faster")
            except ApiError as error:
                log.warning("cannot read the lease: %s", error)
            await asyncio.sleep(min(1.0, self._settings.renew_seconds))

    def _free(self, lease: Object | None) -> bool:
        """Nobody holds it, or an earlier process of this very pod, which is dead since this one runs."""
        holder = lease["spec"].get("holderIdentity") if lease else None
        pod, separator, _ = (holder or "").rpartition(HOLDER_SEPARATOR)
        return not holder or bool(self._settings.identity and separator and pod == self._settings.identity)

    async def _take(self, lease: Object | None) -> int:
        generation = (lease["spec"].get("leaseTransitions") or 0) + 1 if lease else 1
        body = self._body(generation, lease)
        await (self._api.replace(LEASE, body) if lease else self._api.create(LEASE, body))
        self._renewed = self.healthy_since = self._clock.monotonic()
        log.info("leading with generation %d as %s", generation, self.holder)
        return generation

    async def hold(self, generation: int) -> None:
        """Renew until cancelled.

        Raises:
            DeposedError: the Lease is another's, or could not be renewed in time; the process must end at once.
        """
        while True:
            await asyncio.sleep(self._settings.renew_seconds)
            try:
                async with asyncio.timeout(self._settings.renew_deadline_seconds):
                    await self._renew(generation)
                self._renewed = self._clock.monotonic()
            except (ApiError, TimeoutError) as error:
                self.healthy_since = self._clock.monotonic()
                silent = self._clock.monotonic() - self._renewed
                log.warning("the lease was not renewed for %.1f s: %s", silent, error)
                if silent > self._settings.renew_deadline_seconds - self._settings.renew_seconds:
                    raise DeposedError(f"lease not renewed for {silent:.1f} s; another operator may lead") from error

    async def _renew(self, generation: int) -> None:
        lease = await self._api.get(LEASE, self._settings.lease_name, self._settings.namespace)
        spec = lease["spec"] if lease else {}
        if spec.get("holderIdentity") != self.holder or spec.get("leaseTransitions") != generation:
            raise DeposedError(f"lease held by {spec.get('holderIdentity') or 'nobody'}, not by {self.holder}")
        await self._api.replace(LEASE, self._body(generation, lease))

    async def release(self, generation: int) -> None:
        """Give the Lease up on a clean exit, so that the next leader need not wait for it to run out."""
        try:
            lease = await self._api.get(LEASE, self._settings.lease_name, self._settings.namespace)
            if lease and lease["spec"].get("holderIdentity") == self.holder:
                body = self._body(generation, lease)
                body["spec"]["holderIdentity"] = ""
                await self._api.replace(LEASE, body)
        except ApiError as error:
            log.warning("the lease was not released: %s", error)

    def _body(self, generation: int, lease: Object | None) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        meta: Object = {"name": self._settings.lease_name, "namespace": self._settings.namespace}
        acquired = now
        if lease is not None:
            meta["resourceVersion"] = lease["metadata"]["resourceVersion"]
            if lease["spec"].get("holderIdentity") == self.holder:
                acquired = lease["spec"].get("acquireTime") or now
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": meta,
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self._settings.lease_seconds,
                "leaseTransitions": generation,
                "acquireTime": acquired,
                "renewTime": now,
            },
        }


async def take_over(api: Api, generation: int) -> None:
    """Write the generation on every slice and region of ours, before anything else is done.

    Raises:
        DeposedError: an object carries a newer generation.
    """
    for kind in (SLICE, REGION):
        items, _ = await api.list_all(kind)
        for item in items:
            if kind is SLICE and item["spec"].get("driver") != DRIVER:
                continue
            await _stamp(api, kind, item["metadata"]["name"], generation)


async def _stamp(api: Api, kind: Kind, name: str, generation: int) -> None:
    patch = {"metadata": {"annotations": {ANNOTATION_GENERATION: str(generation)}}}
    while True:
        live = await api.get(kind, name)
        if live is None or generation_of(live) == generation:
            return
        try:
            await api.merge(kind, live, patch)
        except ConflictError:
            continue  # changed meanwhile: read it again
        else:
            return
