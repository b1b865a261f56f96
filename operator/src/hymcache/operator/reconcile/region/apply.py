"""The effect of each step. What is written to the fabric is recorded in the status in the same step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from hymcache.crds.fabric import Scrubber
from hymcache.crds.model import Condition
from hymcache.crds.names import (
    CONDITION_COMPOSED,
    CONDITION_FAILED,
    FINALIZER_REGION,
    fabric_region_name,
    system_uuid_key,
)
from hymcache.crds.region import (
    Attachment,
    AttachmentPhase,
    CXLRegion,
    CXLRegionSpec,
    CXLRegionStatus,
    Identity,
    RegionHost,
    RegionPhase,
    Scrub,
)
from hymcache.operator.clients.api import DeposedError
from hymcache.operator.clients.events import Reference
from hymcache.operator.clients.kinds import CLAIM, REGION, Object
from hymcache.operator.fabric.port import FabricError, Fault, HostKey, Region
from hymcache.operator.fabric.session import Session
from hymcache.operator.reconcile import blade as blades
from hymcache.operator.reconcile import node as nodes
from hymcache.operator.reconcile.claim_status import set_condition
from hymcache.operator.reconcile.context import Context
from hymcache.operator.reconcile.region import body
from hymcache.operator.reconcile.region.observe import heir_of
from hymcache.operator.reconcile.region.status import COMPOSED, EVICTED, Change, condition, status_of
from hymcache.operator.reconcile.region.steps import (
    Attach,
    Cause,
    Compose,
    Detach,
    Evict,
    Fail,
    Finish,
    ForgetHost,
    Lose,
    MarkComposed,
    Prepare,
    Release,
    SetHosts,
    Step,
    WriteStatus,
)
from hymcache.operator.reconcile.region.view import View

log = logging.getLogger(__name__)

CAUSES = {
    Fault.NO_CAPACITY: Cause.NO_CAPACITY,
    Fault.REFUSED: Cause.REQUEST,
    Fault.CONFLICT: Cause.REQUEST,
    Fault.UNAVAILABLE: Cause.BLADE_SICK,
    Fault.MISSING: Cause.BLADE_SICK,
}
ATTACH_PAUSE_MAX_SECONDS = 60.0
EVICT_PAUSE_SECONDS = 0.2


class Act:
    """Carries out one step for one region as it was read."""

    def __init__(self, ctx: Context, live: Object, view: View) -> None:
        self.ctx = ctx
        self.live = live
        self.view = view

    async def do(self, step: Step) -> float | None:
        """Carry the step out; returns how long to wait before the next one, None for not at all."""
        effects: dict[type, Callable[[Any], Awaitable[float | None]]] = {
            Prepare: self._prepare,
            SetHosts: self._set_hosts,
            WriteStatus: self._set_status,
            Compose: self._compose,
            Evict: self._evict,
            Attach: self._attach,
            Detach: self._detach,
            ForgetHost: self._forget,
            MarkComposed: self._mark_composed,
            Fail: self._fail,
            Lose: self._lose,
            Release: self._release,
            Finish: self._finish,
        }
        return await effects[type(step)](step)

    # --- objects -----------------------------------------------------------------------------------------------------
    async def _prepare(self, _: Prepare) -> None:
        spec = self.view.spec
        if self.view.blade is not None:
            spec = body.filled(self.view.region, self.view.blade, self.ctx.settings.fabric_prefix)
        await self._write_spec(spec)

    async def _set_hosts(self, step: SetHosts) -> None:
        await self._write_spec(body.with_hosts(self.view.spec, step.hosts))

    async def _set_status(self, step: WriteStatus) -> None:
        await self._write_status(step.status)

    async def _write_spec(self, spec: CXLRegionSpec) -> None:
        written = body.body_of(self.view.name, spec, self.ctx.api.generation)
        self.live = await self.ctx.api.apply(REGION, written, self.live)

    async def _write_status(self, status: CXLRegionStatus) -> None:
        written = body.status_body(self.view.name, status)
        self.live = await self.ctx.api.apply(REGION, written, self.live, subresource="status")

    async def _change(self, change: Change) -> None:
        await self._write_status(status_of(self.view, change))

    def _condition(self, kind: str, *, true: bool, reason: str, message: str) -> Condition:
        now = self.view.now
        return condition(self.view.status.conditions, kind, "True" if true else "False", reason, message, now)

    @property
    def _reference(self) -> Reference:
        return Reference.of(REGION, self.live)

    # --- compose -----------------------------------------------------------------------------------------------------
    def _session(self) -> Session:
        session = self.ctx.session_of(self.view.spec.blade)
        assert session is not None
        return session

    async def _compose(self, _: Compose) -> float | None:
        view, session = self.view, self._session()
        assert view.blade is not None
        try:
            async with session.composing(view.spec.blade):
                found = await session.client.compose(view.fabric_name, view.spec.bytes, view.spec.blade)
        except FabricError as error:
            return await self._compose_failed(error)
        session.record(found)
        message = f"{view.spec.bytes} bytes on blade {view.spec.blade} as {view.fabric_name}"
        fields: dict[str, object] = {"power_epoch": view.blade.power_epoch}
        if (scrub := self._scrubbed()) is not None:
            fields["scrub"] = scrub
        composed = self._condition(COMPOSED, true=True, reason="Composed", message=message)
        await self._change(Change(fields=fields, conditions=(composed,)))
        await blades.recovered(self.ctx, view.spec.blade)
        log.info("composed %s", message)
        return None

    def _scrubbed(self) -> Scrub | None:
        """Who cleared the memory; None where the host with the init role has yet to do it."""
        view = self.view
        own = fabric_region_name(view.name, self.ctx.settings.fabric_prefix)
        if view.spec.claim_ref is not None and view.fabric_name != own:
            ref = view.spec.claim_ref
            return Scrub(time=view.now, by=f"{ref.namespace}/{ref.name}"[:253], how="not cleared: the claim's own data")
        if view.blade is not None and view.blade.scrub is Scrubber.FABRIC:
            return Scrub(time=view.now, by=view.blade.name, how="cleared by the appliance when it made the region")
        return None

    async def _compose_failed(self, error: FabricError) -> float | None:
        if error.fault is Fault.DEPOSED:
            raise DeposedError(str(error)) from error
        await self._change(Change(problem=str(error)))
        if error.fault is Fault.NO_CAPACITY:
            self.ctx.wake(blades.fabric_key(self.ctx, self.view.spec.blade), 0.0)
        if self.view.share.composed or self.view.static:
            raise error  # nobody to hand it to: try again, later and later
        return await self._fail(Fail(CAUSES[error.fault], str(error)))

    async def _evict(self, step: Evict) -> float | None:
        """Mark a retained region; its own reconcile releases it. Adoption by its claim excludes this."""
        region = step.region
        async with self.ctx.memory.locks[self.view.spec.blade]:
            other = await self.ctx.api.get(REGION, region)
            if other is None:
                return EVICT_PAUSE_SECONDS
            model = CXLRegion.read(other)
            items, _ = await self.ctx.api.list_all(REGION)
            if any(heir_of(region, model.spec.fabric_name, item) for item in items):
                return EVICT_PAUSE_SECONDS
            old = model.status or CXLRegionStatus(conditions=[])
            message = f"its bytes are needed by region {self.view.name}; the data was dropped"
            evicted = condition(old.conditions, EVICTED, "True", "BytesNeeded", message, self.view.now)
            kept = [c for c in old.conditions if c.type != EVICTED]
            status = old.model_copy(update={"conditions": [*kept, evicted], "phase": RegionPhase.RELEASING})
            await self.ctx.api.apply(REGION, body.status_body(region, status), other, subresource="status")
            await self.ctx.events.emit(Reference.of(REGION, other), "Warning", "RetainedDataDropped", message)
        return EVICT_PAUSE_SECONDS

    # --- hosts -------------------------------------------------------------------------------------------------------
    async def _attach(self, step: Attach) -> None:
        view, session = self.view, self._session()
        assert view.found is not None
        hosts = [host for host in view.spec.hosts if host.node in step.nodes]
        outcomes = await asyncio.gather(*(self._attach_one(session, view.found, host) for host in hosts))
        found = await session.client.find(view.fabric_name, view.spec.blade)
        if found is not None:
            session.record(found)
        await self._change(Change(attachments={entry.node: entry for entry in outcomes}))

    async def _attach_one(self, session: Session, found: Region, host: RegionHost) -> Attachment:
        tries = self.ctx.memory.attach[self.view.name, host.node]
        try:
            identity = await session.client.attach(found, HostKey(system_uuid_key(host.system_uuid)))
        except FabricError as error:
            if error.fault is Fault.DEPOSED:
                raise DeposedError(str(error)) from error
            tries.count += 1
            tries.due = self.ctx.clock.monotonic() + min(2.0 ** (tries.count - 1), ATTACH_PAUSE_MAX_SECONDS)
            await self.ctx.events.emit(
                self._reference, "Warning", "AttachFailed", f"node {host.node}: {error}; tried again by itself"
            )
            message = str(error)[:1024]
            return Attachment(node=host.node, phase=AttachmentPhase.FAILED, epoch=self.view.epoch, message=message)
        self.ctx.memory.attach.pop((self.view.name, host.node), None)
        self.ctx.memory.link_trouble.pop((host.node, self.view.spec.blade), None)
        log.info("attached to node %s", host.node)
        return Attachment(
            node=host.node,
            phase=AttachmentPhase.ATTACHED,
            epoch=self.view.epoch,
            identity=Identity(kind=identity.kind, blade=identity.blade, region=identity.region, gcxlid=identity.gcxlid),
        )

    async def _detach(self, step: Detach) -> None:
        view, session, node, fenced = self.view, self._session(), step.node, step.fenced
        host = view.host(node)
        assert host is not None
        if view.found is not None:
            key = HostKey(system_uuid_key(host.system_uuid))
            await session.client.detach(view.found, key)
            session.record(replace(view.found, hosts=view.found.hosts - {key}))
        phase = AttachmentPhase.FENCED if fenced else AttachmentPhase.DETACHED
        if fenced:
            message = f"node {node} held on to region {view.name} and was cut off; look why its plugin is silent"
            await self.ctx.events.emit(self._reference, "Warning", "HostFenced", message)
        self.ctx.memory.attach.pop((view.name, node), None)
        await self._change(Change(attachments={node: Attachment(node=node, phase=phase, epoch=view.epoch)}))
        log.info("%s node %s", phase.value.lower(), node)

    async def _forget(self, step: ForgetHost) -> None:
        """JSON patch with a test: server-side apply cannot remove another manager's entry."""
        entries = self.live.get("status", {}).get("hosts") or []
        index = next((i for i, entry in enumerate(entries) if entry["node"] == step.node), None)
        if index is None:
            return
        path = f"/status/hosts/{index}"
        operations: list[Object] = [
            {"op": "test", "path": f"{path}/node", "value": step.node},
            {"op": "remove", "path": path},
        ]
        self.live = await self.ctx.api.json_patch(REGION, self.live, operations, subresource="status")

    # --- the claim ---------------------------------------------------------------------------------------------------
    async def _read_claim(self) -> Object | None:
        ref = self.view.spec.claim_ref
        claim = await self.ctx.api.get(CLAIM, ref.name, ref.namespace) if ref else None
        return claim if claim and ref and claim["metadata"]["uid"] == ref.uid else None

    async def _mark_composed(self, _: MarkComposed) -> None:
        view, claim = self.view, await self._read_claim()
        share = view.spec.share_id
        if claim is None or share is None:
            return
        message = f"region {view.name} of {view.spec.bytes} bytes on blade {view.spec.blade}"
        if await set_condition(self.ctx, claim, share, CONDITION_COMPOSED, "Composed", message):
            took = body.age_seconds(claim, view.now)
            self.ctx.metrics.claim_seconds.observe(took)
            await self.ctx.events.emit(Reference.of(CLAIM, claim), "Normal", "RegionComposed", message)
            log.info("RegionComposed after %.0f s", took)

    async def _fail(self, step: Fail) -> float | None:
        """Slice first, condition second: the scheduler takes the first device that fits."""
        cause, message = step.cause, step.message
        view, claim = self.view, await self._read_claim()
        share = view.spec.share_id
        if claim is None or share is None:
            return None
        age = body.age_seconds(claim, view.now)
        if cause is Cause.REQUEST and age < self.ctx.settings.request_fault_seconds:
            return self.ctx.settings.request_fault_seconds - age
        if cause in {Cause.NO_CAPACITY, Cause.BLADE_SICK}:
            await blades.distrust(self.ctx, view.spec.blade, cause, message, view.spec.bytes)
        if cause is Cause.UNREACHABLE_HOSTS:
            await nodes.distrust_links(self.ctx, [place.node for place in view.places], view.spec.blade)
        reason = "".join(word.capitalize() for word in cause.value.split("-"))
        if await set_condition(self.ctx, claim, share, CONDITION_FAILED, reason, message):
            self.ctx.metrics.claims_failed.labels(view.spec.blade, cause.value).inc()
            await self.ctx.events.emit(Reference.of(CLAIM, claim), "Warning", "RegionFailed", message)
        return None

    # --- the end -----------------------------------------------------------------------------------------------------
    async def _lose(self, step: Lose) -> None:
        """The epoch first: after a crash in between the loss is seen again, and the epoch grows once more."""
        view, message = self.view, step.message
        self._session().forget(view.fabric_name)
        spec = view.spec.model_copy(update={"epoch": view.epoch + 1})
        await self._write_spec(spec)
        region = CXLRegion.read(self.live)
        lost = self._condition(COMPOSED, true=False, reason="Lost", message=message)
        fresh = replace(view, region=region, found=None)
        change = Change(RegionPhase.LOST, fields={"scrub": None, "power_epoch": None}, conditions=(lost,))
        await self._write_status(status_of(fresh, change))
        self.ctx.metrics.lost.labels(view.spec.blade).inc()
        await self.ctx.events.emit(self._reference, "Warning", "RegionLost", message)

    async def _release(self, _: Release) -> None:
        """Look once more, live, whether somebody has taken the bytes over; then give them back."""
        view, session = self.view, self._session()
        items, _version = await self.ctx.api.list_all(REGION)
        if any(heir_of(view.name, view.spec.fabric_name, item) for item in items):
            await self._finish(Finish("another region has taken the bytes over"))
            return
        found = await session.client.find(view.fabric_name, view.spec.blade)
        if found is None:
            session.forget(view.fabric_name)
            return
        for host in found.hosts:
            await session.client.detach(found, host)  # every host of the spec is off; this one has no entry
        await session.client.release(found)
        session.forget(view.fabric_name)
        message = f"{view.spec.bytes} bytes given back to blade {view.spec.blade}; the data was dropped"
        await self.ctx.events.emit(self._reference, "Normal", "RegionReleased", message)
        log.info("released: %s", message)

    async def _finish(self, step: Finish) -> None:
        """Ask for deletion first: with the finalizer off and no deletion the object would begin a new life."""
        if not self.view.deleting:
            await self.ctx.api.delete(REGION, self.live)
            fresh = await self.ctx.api.get(REGION, self.view.name)
            if fresh is None:
                return
            self.live = fresh
        left = [f for f in self.live["metadata"].get("finalizers") or [] if f != FINALIZER_REGION]
        await self.ctx.api.merge(REGION, self.live, {"metadata": {"finalizers": left or None}})
        for key in [key for key in self.ctx.memory.attach if key[0] == self.view.name]:
            self.ctx.memory.attach.pop(key, None)
        log.info("deleted: %s", step.message)
