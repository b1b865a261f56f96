"""CXLFabric: read the whole fabric at every poll; blades, regions and orphans follow from what is found."""

from __future__ import annotations

import base64
import hashlib
import logging

from hymcache.crds.fabric import Backend, CXLFabric, CXLFabricSpec, CXLFabricStatus
from hymcache.crds.names import ANNOTATION_GENERATION, FINALIZER_FABRIC
from hymcache.operator.clients.api import DeposedError
from hymcache.operator.clients.events import Reference
from hymcache.operator.clients.kinds import BLADE, FABRIC, NODE, REGION, SECRET, Object
from hymcache.operator.fabric.instrumented import Instrumented
from hymcache.operator.fabric.port import FabricError, Fault
from hymcache.operator.fabric.redfish import RedfishFabric, RedfishSettings
from hymcache.operator.fabric.session import Session
from hymcache.operator.log import about
from hymcache.operator.reconcile.context import Context
from hymcache.operator.reconcile.region.status import condition
from hymcache.operator.workqueue import Key
from pydantic import ValidationError

log = logging.getLogger(__name__)

REACHABLE = "Reachable"
BLADES_NAMED = "BladesNamed"
GONE_AFTER = 3
"""Good inventories without a blade before its object is deleted."""


class SecretError(Exception):
    """The credentials Secret cannot be used; the message says what was expected and found."""


async def reconcile(ctx: Context, name: str) -> float | None:
    """Poll one fabric; returns the pause to the next poll."""
    with about(fabric=name):
        live = await ctx.api.get(FABRIC, name)
        if live is None:
            await ctx.sessions.drop(name)
            return None
        if not ctx.store.complete:
            return 0.2
        if live["metadata"].get("deletionTimestamp"):
            return await _leave(ctx, live)
        try:
            spec = CXLFabric.read(live).spec
            session = await _session(ctx, live, spec)
        except (ValidationError, SecretError) as error:
            ctx.memory.unusable_fabrics.add(name)
            await _report(ctx, live, None, str(error))
            return 30.0
        ctx.memory.unusable_fabrics.discard(name)
        try:
            changed = await session.refresh()
        except FabricError as error:
            if error.fault is Fault.DEPOSED:
                raise DeposedError(str(error)) from error
            ctx.metrics.fabric_up.labels(name).set(0)
            await _report(ctx, live, session, str(error))
            _wake_blades(ctx, name)
            return min(float(spec.poll_interval_seconds), 2.0 ** min(session.failures, 9))
        ctx.metrics.fabric_up.labels(name).set(1)
        live = await _hold(ctx, live)
        taken = await _blades(ctx, live, session)
        await _report(ctx, live, session, None, taken)
        await _orphans(ctx, session)
        _wake(ctx, session, changed)
        return float(spec.poll_interval_seconds)


# --- session ---------------------------------------------------------------------------------------------------------
async def _session(ctx: Context, live: Object, spec: CXLFabricSpec) -> Session:
    """The session for this spec and these credentials; a new one when either has changed."""
    name = live["metadata"]["name"]
    secret = await _secret(ctx, spec)
    settings = RedfishSettings(
        endpoint=spec.endpoint,
        username=secret.get("username"),
        password=secret.get("password"),
        ca_pem=secret.get("ca.crt"),
        verify=not spec.tls.insecure_skip_verify,
        generation=ctx.api.generation,
        emulated=spec.backend is Backend.EMULATED,
    )
    print_of = hashlib.sha256(repr((spec, sorted(secret.items()))).encode()).hexdigest()
    session = ctx.sessions.get(name)
    if session is None or session.fingerprint != print_of:
        client = Instrumented(RedfishFabric(settings, ctx.after_write), name, ctx.metrics)
        session = Session(name, client, spec, ctx.clock, print_of)
        await ctx.sessions.put(session)
    return session


async def _secret(ctx: Context, spec: CXLFabricSpec) -> dict[str, str]:
    if not spec.credentials_secret:
        return {}
    where = f"Secret {ctx.settings.namespace}/{spec.credentials_secret}"
    body = await ctx.api.get(SECRET, spec.credentials_secret, ctx.settings.namespace)
    if body is None:
        raise SecretError(f"{where}: expected with keys username and password, found none; create it")
    try:
        data = {key: base64.b64decode(value).decode() for key, value in (body.get("data") or {}).items()}
    except ValueError:
        raise SecretError(f"{where}: expected text in its keys, found something else; create it anew") from None
    if missing := [key for key in ("username", "password") if key not in data]:
        raise SecretError(
            f"{where}: expected keys username and password, found no {' and no '.join(missing)}; add them"
        )
    return data


# --- objects ---------------------------------------------------------------------------------------------------------
async def _report(
    ctx: Context, live: Object, session: Session | None, error: str | None, taken: list[str] | None = None
) -> None:
    """Status of the fabric; a failure is an event too."""
    old = CXLFabricStatus.model_validate(live.get("status") or {})
    now = ctx.clock.utc()
    blades = [facts.name for facts in session.blades()] if session else old.blades
    reachable = condition(
        old.conditions,
        REACHABLE,
        "False" if error else "True",
        "InventoryFailed" if error else "InventoryRead",
        error or "",
        now,
    )
    conditions = [reachable]
    if taken:
        message = f"blades {', '.join(taken)} have names that blades of another fabric have; rename their chassis"
        conditions.insert(0, condition(old.conditions, BLADES_NAMED, "False", "NameTaken", message, now))
    status = CXLFabricStatus(
        reachable=reachable.status,
        version=session.inventory.version if session and session.inventory else old.version,
        blades=sorted(blades),
        blade_count=len(blades),
        last_inventory_time=old.last_inventory_time if error else now,
        message=error[:1024] if error else None,
        conditions=conditions,
        observed_generation=live["metadata"].get("generation"),
    )
    if error:
        await ctx.events.emit(Reference.of(FABRIC, live), "Warning", "FabricUnreachable", error)
    fresh = await ctx.api.get(FABRIC, live["metadata"]["name"])
    if fresh is not None:
        body = {"metadata": {"name": fresh["metadata"]["name"]}, "status": status.dump()}
        await ctx.api.apply(FABRIC, body, fresh, subresource="status")


async def _hold(ctx: Context, live: Object) -> Object:
    """Keep the object while regions stand on its blades: without it they could not be released."""
    finalizers = live["metadata"].get("finalizers") or []
    if FINALIZER_FABRIC in finalizers:
        return live
    return await ctx.api.merge(FABRIC, live, {"metadata": {"finalizers": [*finalizers, FINALIZER_FABRIC]}})


async def _leave(ctx: Context, live: Object) -> float | None:
    """The user deletes the fabric: not before its last region is released."""
    name = live["metadata"]["name"]
    blades = [b["metadata"]["name"] for b in ctx.store.all(BLADE) if b["spec"]["fabric"] == name]
    held = [r["metadata"]["name"] for blade in blades for r in ctx.store.regions_on(blade)]
    if held:
        note = f"fabric {name} stays until its regions are released, end the pods of {', '.join(sorted(held)[:10])}"
        await ctx.events.emit(Reference.of(FABRIC, live), "Warning", "FabricInUse", note)
        session = ctx.sessions.get(name)
        if session is not None:
            await session.refresh()
        return 5.0
    left = [f for f in live["metadata"].get("finalizers") or [] if f != FINALIZER_FABRIC]
    await ctx.api.merge(FABRIC, live, {"metadata": {"finalizers": left or None}})
    await ctx.sessions.drop(name)
    return None


async def _blades(ctx: Context, live: Object, session: Session) -> list[str]:
    """One CXLBlade per blade found; returns names that another fabric's blade has already."""
    name, taken = live["metadata"]["name"], []
    found = {facts.name: facts for facts in session.blades()}
    for blade, facts in found.items():
        ctx.memory.gone_blades.pop(blade, None)
        known = ctx.store.get(BLADE, blade) or await ctx.api.get(BLADE, blade)
        if known is None:
            owner = {
                "apiVersion": FABRIC.api_version,
                "kind": FABRIC.name,
                "name": name,
                "uid": live["metadata"]["uid"],
                "controller": True,
            }
            meta = {
                "name": blade,
                "ownerReferences": [owner],
                "annotations": {ANNOTATION_GENERATION: str(ctx.api.generation)},
            }
            made = await ctx.api.apply(BLADE, {"metadata": meta, "spec": {"fabric": name, "bladeID": facts.id}}, None)
            ctx.store.observe(BLADE, made)
            log.info("blade %s found", blade)
        elif known["spec"]["fabric"] != name:
            taken.append(blade)
    for known in ctx.store.all(BLADE):
        blade = known["metadata"]["name"]
        if known["spec"]["fabric"] != name or blade in found:
            continue
        ctx.memory.gone_blades[blade] = times = ctx.memory.gone_blades.get(blade, 0) + 1
        if times >= GONE_AFTER and not ctx.store.regions_on(blade):
            await ctx.api.delete(BLADE, known)
            log.info("blade %s is gone from the fabric", blade)
    return taken


# --- regions on the fabric -------------------------------------------------------------------------------------------
async def _orphans(ctx: Context, session: Session) -> None:
    """Remove regions with our prefix that no CXLRegion names, after a grace; nothing else is ever touched."""
    known = {body["spec"].get("fabricName") for body in ctx.store.all(REGION)}
    now = ctx.clock.monotonic()
    ours = [r for blade in session.blades() for r in session.regions_on(blade.name)]
    strays = {r.name: r for r in ours if r.name.startswith(ctx.settings.fabric_prefix) and r.name not in known}
    seen = ctx.memory.orphans
    for name in [n for n in seen if n not in strays]:
        del seen[name]
    for name, region in strays.items():
        if now - seen.setdefault(name, now) < ctx.settings.orphan_grace_seconds:
            continue
        items, _ = await ctx.api.list_all(REGION)
        if any(item["spec"].get("fabricName") == name for item in items):
            continue
        for host in region.hosts:
            await session.client.detach(region, host)
        await session.client.release(region)
        session.forget(name)
        del seen[name]
        ctx.metrics.orphans.inc()
        log.warning("orphan %s of %d bytes removed from blade %s", name, region.bytes, region.blade)


def _wake_blades(ctx: Context, fabric: str) -> None:
    for body in ctx.store.all(BLADE):
        if body["spec"]["fabric"] == fabric:
            ctx.wake(Key("blade", body["metadata"]["name"]), 0.0)


def _wake(ctx: Context, session: Session, changed: set[str]) -> None:
    """Blades always; regions whose fabric side looks different, or whose blade was without power; all nodes."""
    epochs = {facts.name: facts.power_epoch for facts in session.blades()}
    for blade in epochs:
        ctx.wake(Key("blade", blade), 0.0)
    for body in ctx.store.all(REGION):
        blade, status = body["spec"]["blade"], body.get("status") or {}
        before, now = status.get("powerEpoch"), epochs.get(blade)
        lost_power = before is not None and now is not None and now > before
        if body["spec"].get("fabricName") in changed or lost_power:
            ctx.wake(Key("region", body["metadata"]["name"]), 0.0)
    for body in ctx.store.all(NODE):
        ctx.wake(Key("node", body["metadata"]["name"]), 0.0)
