"""Reading all that a `View` holds. Whatever would lead to memory being given away is read live."""

from __future__ import annotations

from typing import Any

from hymcache.crds.names import CONDITION_COMPOSED, CONDITION_FAILED
from hymcache.crds.region import CXLRegion, RegionPhase
from hymcache.operator.clients.kinds import CLAIM, CXLNODE, NODE, REGION, Object
from hymcache.operator.clock import parse
from hymcache.operator.fabric.session import BladeFacts, Session
from hymcache.operator.reconcile.claim_status import has
from hymcache.operator.reconcile.context import ATTACH_TRIES, Context
from hymcache.operator.reconcile.region.status import BLOCKED, EVICTED, RETAINED
from hymcache.operator.reconcile.region.view import Need, NodeFacts, Place, Share, View
from hymcache.operator.store import shares_of


def ready(ctx: Context, region: Object) -> bool:
    """Enough is known to decide: all kinds were listed, and the blade's fabric was read, or could not be."""
    if not ctx.store.complete:
        return False
    session = ctx.session_of(region["spec"]["blade"])
    sessions = [session] if session else ctx.sessions.all()
    return all(s.inventory is not None or s.error is not None for s in sessions)


async def observe(ctx: Context, live: Object) -> View:
    """The view of a region that was just read.

    Raises:
        pydantic.ValidationError: the object is not a CXLRegion that this release understands.
    """
    region = CXLRegion.read(live)
    blade = ctx.blade(region.spec.blade)
    session = ctx.session_of(region.spec.blade)
    fabric_name = region.spec.fabric_name or region.metadata.name
    claim = await _claim(ctx, region)
    places = _places(ctx, region, claim, blade)
    nodes = {p.node for p in places} | {h.node for h in region.spec.hosts}
    free, coming = _bytes(ctx, session, blade)
    name = region.metadata.name
    now = ctx.clock.monotonic()
    tries = {node: ctx.memory.attach[name, node] for node in nodes if (name, node) in ctx.memory.attach}
    return View(
        region=region,
        finalizers=frozenset(live["metadata"].get("finalizers") or ()),
        deleting=bool(live["metadata"].get("deletionTimestamp")),
        share=_share(region, claim),
        places=places,
        blade=blade,
        found=session.region(fabric_name) if session else None,
        missing=session.missing(fabric_name) if session else False,
        free_bytes=free,
        coming_bytes=coming,
        retained=_retained(ctx, region),
        nodes={node: await _node(ctx, node) for node in nodes},
        inherited=_inherited(ctx, region),
        attach_due=frozenset(n for n in nodes if n not in tries or tries[n].due <= now),
        attach_given_up=frozenset(n for n, t in tries.items() if t.count >= ATTACH_TRIES),
        now=ctx.clock.utc(),
    )


async def _claim(ctx: Context, region: CXLRegion) -> Object | None:
    """The region's claim: from the store while that shows the allocation, else live."""
    ref = region.spec.claim_ref
    if ref is None:
        return None
    known: Object | None = ctx.store.get(CLAIM, f"{ref.namespace}/{ref.name}")
    if known is not None and known["metadata"]["uid"] == ref.uid and region.spec.share_id in shares_of(known):
        return known
    if region.status is not None and region.status.phase is RegionPhase.RELEASING:
        return known
    return await ctx.api.get(CLAIM, ref.name, ref.namespace)


def _share(region: CXLRegion, claim: Object | None) -> Share:
    ref, share = region.spec.claim_ref, region.spec.share_id
    if ref is None:
        return Share(Need.YES)
    if claim is None or claim["metadata"]["uid"] != ref.uid:
        return Share(Need.NEVER)
    if share is None or share not in shares_of(claim):
        return Share(Need.NO)
    return Share(
        Need.YES,
        parse(claim["status"]["allocation"].get("allocationTimestamp")),
        has(claim, share, CONDITION_COMPOSED),
        has(claim, share, CONDITION_FAILED),
    )


def _places(ctx: Context, region: CXLRegion, claim: Object | None, blade: BladeFacts | None) -> tuple[Place, ...]:
    """Nodes of the pods that the claim is reserved for: a plugin alone cannot ask for memory."""
    if claim is None or region.spec.share_id not in shares_of(claim):
        return ()
    reserved = {r.get("uid") for r in claim["status"].get("reservedFor") or []}
    meta = claim["metadata"]
    pods = [pod for pod in ctx.store.pods_of(f"{meta['namespace']}/{meta['name']}") if pod.uid in reserved]
    found: dict[str, Place] = {}
    for pod in sorted(pods, key=lambda pod: pod.name):
        uuid = ctx.system_uuid(pod.place) if pod.place else ""
        if pod.place and uuid:
            cabled = blade is not None and ctx.cabled(pod.place, blade)
            found[pod.place] = Place(pod.place, uuid, cabled)
    return tuple(found.values())


async def _node(ctx: Context, node: str) -> NodeFacts:
    known: Any = ctx.store.get(NODE, node)
    exists = known is not None or await ctx.api.get(NODE, node) is not None
    reported = ((ctx.store.get(CXLNODE, node) or {}).get("status") or {}).get("bootID")
    silent = ctx.silent_seconds(node) - ctx.settings.heartbeat_stale_seconds
    return NodeFacts(exists, reported, max(0.0, silent))


def _bytes(ctx: Context, session: Session | None, blade: BladeFacts | None) -> tuple[int, int]:
    """Free bytes of the blade, and those that regions on their way out will give back."""
    if session is None or blade is None:
        return 0, 0
    on_blade = {r.name: r.bytes for r in session.regions_on(blade.name)}
    coming = 0
    for body in ctx.store.regions_on(blade.name):
        status = body.get("status") or {}
        going = status.get("phase") == "Releasing" or _is(status, EVICTED)
        if going and not _is(status, BLOCKED):
            coming += on_blade.get(body["spec"].get("fabricName", ""), 0)
    return blade.bytes - sum(on_blade.values()), coming


def _is(status: Object, condition: str) -> bool:
    return any(c["type"] == condition and c["status"] == "True" for c in status.get("conditions") or [])


def _retained(ctx: Context, region: CXLRegion) -> tuple[str, ...]:
    """Regions on the same blade that keep unused data, the longest unused first."""
    found = []
    for body in ctx.store.regions_on(region.spec.blade):
        status = body.get("status") or {}
        going = status.get("phase") == "Releasing" or bool(body["metadata"].get("deletionTimestamp"))
        going = going or _is(status, EVICTED) or body["metadata"]["name"] == region.metadata.name
        if _is(status, RETAINED) and not going:
            found.append((status.get("releasedTime", ""), body["metadata"]["name"]))
    return tuple(name for _, name in sorted(found))


def _inherited(ctx: Context, region: CXLRegion) -> bool:
    return any(heir_of(region.metadata.name, region.spec.fabric_name, body) for body in ctx.store.all(REGION))


def heir_of(name: str, fabric_name: str | None, other: Object) -> bool:
    """`other` has taken over the bytes of region `name`, directly or from one that had."""
    if not fabric_name or other["metadata"]["name"] == name or other["spec"].get("fabricName") != fabric_name:
        return False
    return other["spec"].get("adoptedFrom") == name or fabric_name.endswith(name)
