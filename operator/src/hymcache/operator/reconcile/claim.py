"""ResourceClaims: an allocation without a region gets one, by the name that its share gives it."""

from __future__ import annotations

import logging

from hymcache.crds.config import ConfigError, RegionConfig
from hymcache.crds.model import ReclaimPolicy
from hymcache.crds.names import CAPACITY_MEMORY, CONDITION_FAILED
from hymcache.crds.region import CXLRegion, RegionPhase
from hymcache.operator.clients.events import Reference
from hymcache.operator.clients.kinds import CLAIM, REGION, Object
from hymcache.operator.log import about, note
from hymcache.operator.reconcile.claim_status import has, set_condition
from hymcache.operator.reconcile.context import Context
from hymcache.operator.reconcile.region import body
from hymcache.operator.reconcile.region.hosts import OFF
from hymcache.operator.reconcile.region.observe import heir_of
from hymcache.operator.reconcile.region.status import COMPOSED, EVICTED
from hymcache.operator.store import results_of
from hymcache.operator.workqueue import Key

log = logging.getLogger(__name__)

ADOPTION_SECONDS = 0.5


async def reconcile(ctx: Context, name: str) -> float | None:
    """Make the regions of one claim's allocation; returns when a claim that cannot be served is failed."""
    if not ctx.store.complete:
        return 0.2
    known = ctx.store.get(CLAIM, name)
    if known is None:
        return None
    with about(claim=name):
        missing = [r for r in results_of(known) if r.get("shareID") and not _region(ctx, r)]
        if not missing:
            return None
        namespace, _, short = name.partition("/")
        claim = await ctx.api.get(CLAIM, short, namespace)
        if claim is None:
            return None
        pauses = [await _serve(ctx, claim, r) for r in results_of(claim) if r.get("shareID") and not _region(ctx, r)]
        return min((pause for pause in pauses if pause is not None), default=None)


def _region(ctx: Context, result: Object) -> Object | None:
    found: Object | None = ctx.store.get(REGION, f"r-{result['shareID']}")
    return found


async def _serve(ctx: Context, claim: Object, result: Object) -> float | None:
    share = str(result["shareID"])
    if has(claim, share, CONDITION_FAILED):
        return None
    allocation = claim["status"]["allocation"]
    request = str(result["request"]).split("/")[0]
    try:
        config = RegionConfig.of_claim(allocation["devices"].get("config") or [], request)
        if CAPACITY_MEMORY not in (result.get("consumedCapacity") or {}):
            raise ConfigError(f"request {request}: expected consumed capacity {CAPACITY_MEMORY}, found none")
    except ConfigError as error:
        return await _refuse(ctx, claim, share, str(error))
    name, spec = body.from_claim(claim, result, config)
    note(region=name, blade=spec.blade)
    async with ctx.memory.locks[spec.blade]:
        if await ctx.api.get(REGION, name) is not None:
            return None
        old = await _retained(ctx, claim, spec.blade, spec.bytes)
        if old is not None and not _left(old):
            if body.age_seconds(claim, ctx.clock.utc()) < ctx.settings.compose_budget_seconds:
                return ADOPTION_SECONDS  # a host of its last allocation has not let go yet
            old = None
        if old is not None:
            spec = body.adopting(spec, old)
            log.info("adopts the bytes of region %s", old.metadata.name)
        await ctx.api.apply(REGION, body.body_of(name, spec, ctx.api.generation), None)
    log.info("region made for %d bytes on blade %s", spec.bytes, spec.blade)
    ctx.wake(Key("region", name), 0.0)
    return None


def _left(region: CXLRegion) -> bool:
    """No host is attached any more: the hosts of the new allocation begin from nothing."""
    status = region.status
    return status is not None and all(a.phase in OFF for a in status.attachments)


async def _refuse(ctx: Context, claim: Object, share: str, message: str) -> float | None:
    """The claim's own fault. Not at once: it would come back to the same blade, and fail again, in a circle."""
    message = (
        f"claim {claim['metadata']['namespace']}/{claim['metadata']['name']}: {message}; correct it and make it anew"
    )
    await ctx.events.emit(Reference.of(CLAIM, claim), "Warning", "ClaimRefused", message)
    left = ctx.settings.request_fault_seconds - body.age_seconds(claim, ctx.clock.utc())
    if left > 0:
        return left
    await set_condition(ctx, claim, share, CONDITION_FAILED, "Request", message)
    ctx.metrics.claims_failed.labels("", "request").inc()
    return None


async def _retained(ctx: Context, claim: Object, blade: str, size: int) -> CXLRegion | None:
    """The region of the same claim on the same blade whose bytes were kept, read live under the blade's lock."""
    items, _ = await ctx.api.list_all(REGION)
    for item in items:
        region = CXLRegion.read(item)
        ref, status = region.spec.claim_ref, region.status
        if ref is None or ref.uid != claim["metadata"]["uid"] or status is None:
            continue
        holds = {c.type for c in status.conditions if c.status == "True"}
        kept = COMPOSED in holds and EVICTED not in holds and status.phase is not RegionPhase.RELEASING
        kept = kept and not item["metadata"].get("deletionTimestamp")
        kept = kept and region.spec.reclaim_policy is ReclaimPolicy.RETAIN
        taken = any(heir_of(region.metadata.name, region.spec.fabric_name, other) for other in items)
        if kept and not taken and (region.spec.blade, region.spec.bytes) == (blade, size):
            return region
    return None
