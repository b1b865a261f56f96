"""CXLBlade and its slice: what the inventory says, what a failed compose has shown, what is stuck.

The status keeps the distrust (`Composable`, `capBytes`, `retryTime`), so that a new leader has it too.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Literal

from hymcache.crds.blade import CabledHost, CXLBlade, CXLBladeStatus
from hymcache.crds.model import Condition
from hymcache.crds.names import slice_name, system_uuid_key
from hymcache.crds.quantity import format_bytes
from hymcache.operator.clients.events import Reference
from hymcache.operator.clients.kinds import BLADE, NODE, SLICE, Object
from hymcache.operator.fabric.session import BladeFacts, Session
from hymcache.operator.log import about
from hymcache.operator.reconcile import slices
from hymcache.operator.reconcile.context import Context
from hymcache.operator.reconcile.region.status import BLOCKED, COMPOSED, condition
from hymcache.operator.reconcile.region.steps import Cause
from hymcache.operator.workqueue import Key

log = logging.getLogger(__name__)

COMPOSABLE = "Composable"
HEALTHY = "Healthy"


def fabric_key(ctx: Context, blade: str) -> Key:
    """Key of the fabric that the blade belongs to."""
    session = ctx.session_of(blade)
    return Key("fabric", session.fabric if session else "")


async def reconcile(ctx: Context, name: str) -> float | None:
    """Status and slice of one blade; returns when its distrust ends."""
    with about(blade=name):
        live = await ctx.api.get(BLADE, name)
        if live is None or live["metadata"].get("deletionTimestamp"):
            return None
        session = ctx.session_of(name)
        if not ctx.store.complete or session is None or (session.inventory is None and session.error is None):
            return 0.5
        status = plan_status(ctx, live, session)
        live = await _write_status(ctx, live, status)
        facts = session.blade(name)
        if facts is not None:
            live_slice = await publish(ctx, live, facts, status, session)
            await _check_pool(ctx, live, name)
            ctx.metrics.blade_bytes.labels(name).set(facts.bytes)
            ctx.metrics.blade_free.labels(name).set(status.free_bytes or 0)
            log.debug("slice generation %s", live_slice["spec"]["pool"]["generation"])
        return _until(status.retry_time, ctx.clock.utc())


def _until(moment: datetime | None, now: datetime) -> float | None:
    return max(0.5, (moment - now).total_seconds()) if moment else None


# --- status ----------------------------------------------------------------------------------------------------------
def plan_status(ctx: Context, live: Object, session: Session) -> CXLBladeStatus:
    """The status from inventory and store; distrust is carried over until its time is over."""
    name = live["metadata"]["name"]
    old = CXLBlade.read(live).status or CXLBladeStatus(conditions=[])
    facts, now = session.blade(name), ctx.clock.utc()
    health, message = _health(session, facts, name)
    conditions = [condition(old.conditions, HEALTHY, "True" if health == "OK" else "False", health, message, now)]
    distrusted = old.retry_time is not None and (old.retry_time > now or not session.reachable)
    if distrusted:
        conditions += [c for c in old.conditions if c.type == COMPOSABLE]
    if facts is None:
        kept = old.model_copy(update={"health": health, "message": message})
        return kept.model_copy(update={"conditions": sorted(conditions, key=lambda c: c.type)})
    regions = session.regions_on(name)
    free = facts.bytes - sum(r.bytes for r in regions)
    ours = ctx.settings.fabric_prefix
    hosts = _hosts(ctx, facts)
    return CXLBladeStatus(
        media=facts.media,
        coherence=facts.coherence,
        bytes=facts.bytes,
        granule_bytes=facts.granule_bytes,
        free_bytes=max(0, free),
        foreign_bytes=sum(r.bytes for r in regions if not r.name.startswith(ours)),
        max_hosts=facts.max_hosts,
        regions=len(regions),
        power_epoch=facts.power_epoch,
        capacity=format_bytes(facts.bytes),
        free=format_bytes(max(0, free)),
        health=health,
        hosts=hosts,
        hosts_cabled=f"{sum(h.state == 'Cabled' for h in hosts)}/{len(hosts)}",
        cap_bytes=old.cap_bytes if distrusted else None,
        retry_time=old.retry_time if distrusted else None,
        failures=old.failures,
        message=message or (_distrust_message(old) if distrusted else None),
        conditions=sorted(conditions, key=lambda c: c.type),
    )


def _health(
    session: Session, facts: BladeFacts | None, name: str
) -> tuple[Literal["OK", "Warning", "Critical", "Unknown"], str]:
    if session.error is not None:
        return "Unknown", f"fabric {session.fabric} cannot be read: {session.error}"[:1000]
    if facts is None:
        return "Unknown", f"blade {name}: expected in the inventory of fabric {session.fabric}, found gone"
    if facts.health in {"OK", "Unknown"}:
        return "OK", ""
    return facts.health, f"blade {name}: expected health OK, found {facts.health}; look at the appliance"


def _distrust_message(old: CXLBladeStatus) -> str | None:
    return next((c.message for c in old.conditions if c.type == COMPOSABLE), None)


def _hosts(ctx: Context, facts: BladeFacts) -> list[CabledHost]:
    nodes = {system_uuid_key(body["systemUUID"]): body["metadata"]["name"] for body in ctx.store.all(NODE)}
    found = []
    for host in sorted(facts.hosts | facts.hosts_down):
        node = nodes.get(host)
        if node is None:
            found.append(CabledHost(system_uuid=host, state="NoNode"))
        else:
            state: Literal["Cabled", "NoPlugin"] = "Cabled" if ctx.cabled(node, facts) else "NoPlugin"
            found.append(CabledHost(system_uuid=host, node=node, state=state))
    return found


async def _write_status(ctx: Context, live: Object, status: CXLBladeStatus) -> Object:
    body = {"metadata": {"name": live["metadata"]["name"]}, "status": status.dump()}
    if (CXLBlade.read(live).status or CXLBladeStatus(conditions=[])) == status:
        return live
    return await ctx.api.apply(BLADE, body, live, subresource="status")


# --- slice -----------------------------------------------------------------------------------------------------------
def offer_of(ctx: Context, facts: BladeFacts, status: CXLBladeStatus, session: Session) -> slices.Offer:
    """What may be offered: capacity without what is not ours to give, under the cap of a failed compose."""
    regions = session.regions_on(facts.name)
    sizes = {r.name: r.bytes for r in regions}
    ours = {r.name for r in regions if r.name.startswith(ctx.settings.fabric_prefix)}
    withheld = {name for name in sizes if name not in ours}
    known: set[str] = set()
    for body in ctx.store.regions_on(facts.name):
        fabric_name = body["spec"].get("fabricName", "")
        known.add(fabric_name)
        stuck = any(c["type"] == BLOCKED for c in (body.get("status") or {}).get("conditions") or [])
        if stuck or "claimRef" not in body["spec"]:
            withheld.add(fabric_name)
    withheld |= {name for name in ours - known if name in ctx.memory.orphans}
    memory = facts.bytes - sum(sizes.get(name, 0) for name in withheld)
    if status.cap_bytes is not None:
        memory = min(memory, status.cap_bytes)
    slots = (facts.regions_max or ctx.settings.region_slots) - len(withheld & set(sizes))
    taint = ""
    if status.health in {"Unknown", "Critical"}:
        taint = "unhealthy"
    elif status.retry_time is not None and status.cap_bytes is None:
        taint = "compose-failed"
    return slices.Offer(facts, max(0, memory), slots, taint)


async def publish(
    ctx: Context, blade: Object, facts: BladeFacts, status: CXLBladeStatus, session: Session, touched: str | None = None
) -> Object:
    """Write the slice if it is not what the blade offers; returns it as it stands."""
    live = await ctx.api.get(SLICE, slice_name(facts.name))
    offer = offer_of(ctx, facts, status, session)
    body = slices.slice_body(offer, blade, live, ctx.api.generation, touched)
    ctx.metrics.blade_offered.labels(facts.name).set(slices.memory_of(offer))
    if live is not None and not slices.differs(body, live):
        return live
    written = await ctx.api.apply(SLICE, body, live)
    if lost := slices.dropped_fields(body, written):
        note = (
            f"slice of blade {facts.name}: the API server dropped {', '.join(lost)}; turn its feature gates "
            "DRAConsumableCapacity and DRADeviceBindingConditions on, or use Kubernetes 1.36 or later"
        )
        await ctx.events.emit(Reference.of(BLADE, blade), "Warning", "SliceFieldsDropped", note)
    log.info("slice published: %s", [d["name"] for d in body["spec"]["devices"]])
    return written


async def _check_pool(ctx: Context, blade: Object, name: str) -> None:
    """A second slice in a pool makes the scheduler use none of them, without a word."""
    foreign = [
        s["metadata"]["name"]
        for s in ctx.store.all(SLICE)
        if s["spec"]["pool"]["name"] == name and s["metadata"]["name"] != slice_name(name)
    ]
    ctx.metrics.foreign_slices.set(
        sum(s["metadata"]["name"] != slice_name(s["spec"]["pool"]["name"]) for s in ctx.store.all(SLICE))
    )
    if foreign:
        note = f"slices {', '.join(foreign)} are in the pool of blade {name} and stop its claims; delete them"
        await ctx.events.emit(Reference.of(BLADE, blade), "Warning", "ForeignSlice", note)


async def touch(ctx: Context, name: str) -> float | None:
    """Change the slice's annotation: the scheduler tries waiting pods again. At most once in `touch_seconds`."""
    if not ctx.store.waiting_pods():
        return None
    now, last = ctx.clock.monotonic(), ctx.memory.touched.get(name)
    if last is not None and now - last < ctx.settings.touch_seconds:
        return ctx.settings.touch_seconds - (now - last)
    with about(blade=name):
        blade, session = await ctx.api.get(BLADE, name), ctx.session_of(name)
        facts = session.blade(name) if session else None
        if blade is None or session is None or facts is None:
            return None
        ctx.memory.touched[name] = now
        stamp = ctx.clock.utc().isoformat() + f"#{now:.3f}"
        await publish(ctx, blade, facts, plan_status(ctx, blade, session), session, stamp)
        ctx.metrics.touches.labels(name).inc()
        log.info("slice touched for waiting pods")
    return None


# --- distrust --------------------------------------------------------------------------------------------------------
async def distrust(ctx: Context, name: str, cause: Cause, message: str, wanted_bytes: int) -> None:
    """Make the slice true after a failed compose: shrink it (no capacity) or taint it (sick), for a growing time."""
    blade, session = await ctx.api.get(BLADE, name), ctx.session_of(name)
    facts = session.blade(name) if session else None
    if blade is None or session is None or facts is None:
        return  # not in any inventory: nothing of it is offered to a claim that is not allocated yet
    old = plan_status(ctx, blade, session)
    failures = (old.failures or 0) + 1
    settings = ctx.settings
    pause = min(settings.blade_backoff_seconds * 2 ** (failures - 1), settings.blade_backoff_max_seconds)
    now = ctx.clock.utc()
    cap = _composed_bytes(ctx, name, session) + _largest(facts, session, wanted_bytes)
    composable = condition(old.conditions, COMPOSABLE, "False", _reason(cause), message, now)
    status = old.model_copy(
        update={
            "failures": failures,
            "retry_time": now + timedelta(seconds=pause),
            "cap_bytes": cap if cause is Cause.NO_CAPACITY else None,
            "message": message[:1024],
            "conditions": _replaced(old.conditions, composable),
        }
    )
    blade = await _write_status(ctx, blade, status)
    await publish(ctx, blade, facts, status, session)
    await ctx.events.emit(
        Reference.of(BLADE, blade), "Warning", _reason(cause), f"{message}; tried again in {pause:.0f} s"
    )
    ctx.wake(Key("blade", name), pause)


def _reason(cause: Cause) -> str:
    return "NoCapacity" if cause is Cause.NO_CAPACITY else "ComposeFailed"


def _replaced(conditions: list[Condition], new: Condition) -> list[Condition]:
    return sorted([*(c for c in conditions if c.type != new.type), new], key=lambda c: c.type)


def _composed_bytes(ctx: Context, name: str, session: Session) -> int:
    """Bytes of the regions on the blade that claims have: the scheduler counts them against the slice."""
    sizes = {r.name: r.bytes for r in session.regions_on(name)}
    composed = 0
    for body in ctx.store.regions_on(name):
        conditions = (body.get("status") or {}).get("conditions") or []
        if "claimRef" in body["spec"] and any(c["type"] == COMPOSED and c["status"] == "True" for c in conditions):
            composed += sizes.get(body["spec"].get("fabricName", ""), 0)
    return composed


def _largest(facts: BladeFacts, session: Session, wanted: int) -> int:
    """The most that could still be composed: what is free, but less than what was just refused."""
    free = facts.bytes - sum(r.bytes for r in session.regions_on(facts.name))
    return max(0, min(free, wanted - facts.granule_bytes))


async def recovered(ctx: Context, name: str) -> None:
    """A compose has succeeded: failures are counted from none again, and the blade is offered as before."""
    known = ctx.store.get(BLADE, name)
    if not known or not (known.get("status") or {}).get("failures"):
        return
    blade, session = await ctx.api.get(BLADE, name), ctx.session_of(name)
    if blade is None or session is None:
        return
    old = plan_status(ctx, blade, session)
    kept = [c for c in old.conditions if c.type != COMPOSABLE]
    fresh = {"failures": None, "retry_time": None, "cap_bytes": None, "message": None, "conditions": kept}
    await _write_status(ctx, blade, old.model_copy(update=fresh))
    ctx.wake(Key("blade", name), 0.0)
