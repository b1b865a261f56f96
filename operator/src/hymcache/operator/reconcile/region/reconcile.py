"""One region: observe, plan, act, until there is nothing to do or something to wait for."""

from __future__ import annotations

import logging

from hymcache.crds.region import RegionPhase
from hymcache.operator.clients.kinds import REGION
from hymcache.operator.log import about, note
from hymcache.operator.reconcile.context import Context
from hymcache.operator.reconcile.region.apply import Act
from hymcache.operator.reconcile.region.observe import observe, ready
from hymcache.operator.reconcile.region.plan import plan
from hymcache.operator.reconcile.region.status import BLOCKED
from hymcache.operator.reconcile.region.steps import Done, Wait
from pydantic import ValidationError

log = logging.getLogger(__name__)

STEPS_MAX = 50
"""Far more than a life has; more means that two steps undo one another."""
NOT_READY_SECONDS = 0.2


def measure(ctx: Context) -> None:
    """Regions by phase, and those that a host does not let go of."""
    phases = dict.fromkeys(RegionPhase, 0)
    stuck = 0
    for body in ctx.store.all(REGION):
        status = body.get("status") or {}
        phases[RegionPhase(status.get("phase") or RegionPhase.PENDING)] += 1
        stuck += any(c["type"] == BLOCKED for c in status.get("conditions") or [])
    for phase, count in phases.items():
        ctx.metrics.regions.labels(phase.value).set(count)
    ctx.metrics.leaked.set(stuck)


async def reconcile(ctx: Context, name: str) -> float | None:
    """Bring one region nearer to what is wanted; returns after how many seconds to come again, or None."""
    with about(region=name):
        for _ in range(STEPS_MAX):
            live = await ctx.api.get(REGION, name)
            if live is None:
                return None
            if not ready(ctx, live):
                return NOT_READY_SECONDS
            ref = live["spec"].get("claimRef")
            note(claim=f"{ref['namespace']}/{ref['name']}" if ref else None, blade=live["spec"]["blade"])
            try:
                view = await observe(ctx, live)
            except ValidationError as error:
                log.error("cannot be read by this release and is left alone: %s", error)
                return None
            step = plan(view, ctx.settings)
            if isinstance(step, Done | Wait):
                if isinstance(step, Wait):
                    log.debug("waits %.1f s: %s", step.again, step.why)
                return step.again
            log.debug("step %s", step)
            if (pause := await Act(ctx, live, view).do(step)) is not None:
                return pause
        raise RuntimeError(f"region {name}: expected to settle within {STEPS_MAX} steps; two of them undo one another")
