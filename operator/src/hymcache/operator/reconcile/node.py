"""Nodes: the blade labels that pods are placed by, the system UUID that plugins are told, what is left of a gone node.

A label says: cabled, link up, plugin registered, heartbeat fresh. It is the only thing that keeps pods off a host where
they could not start.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from hymcache.crds.names import LABEL_BLADE_PREFIX, LABEL_CABLED, blade_label
from hymcache.operator.clients.kinds import BLADE, CXLNODE, FABRIC, NODE, Object
from hymcache.operator.log import about
from hymcache.operator.reconcile.context import Context, Heartbeat
from hymcache.operator.workqueue import Key

ASK_SECONDS = 2.0
"""So long before a plugin counts as silent its heartbeat is read: labels and fences hang on it, a watch may pause."""

log = logging.getLogger(__name__)


async def reconcile(ctx: Context, name: str) -> float | None:
    """Labels and CXLNode of one node; returns when its heartbeat would be stale."""
    with about(node=name):
        await _listen(ctx, name)
        if not ctx.store.complete or not _fabrics_read(ctx):
            return 0.5
        if ctx.store.get(NODE, name) is None and await ctx.api.get(NODE, name) is None:
            await _gone(ctx, name)
            return None
        await _tell_uuid(ctx, name)
        await _label(ctx, name)
        if ctx.store.get(CXLNODE, name) is None:
            return None
        troubles = [until for (node, _), until in ctx.memory.link_trouble.items() if node == name]
        return min([_until_judged(ctx, name), *(max(0.5, t - ctx.clock.monotonic()) for t in troubles)])


def _until_judged(ctx: Context, name: str) -> float:
    """Seconds until the heartbeat is to be read, or else is stale, or else is to be read again."""
    limit = ctx.settings.heartbeat_stale_seconds
    left = limit - ctx.silent_seconds(name)
    if left > ASK_SECONDS:
        return left - ASK_SECONDS
    return left + 0.5 if left > 0 else limit


def _fabrics_read(ctx: Context) -> bool:
    """Every fabric was read, or could not be: before that no label can be judged."""
    names = {body["metadata"]["name"] for body in ctx.store.all(FABRIC)} - ctx.memory.unusable_fabrics
    sessions = [ctx.sessions.get(name) for name in names]
    return all(s is not None and (s.inventory is not None or s.error is not None) for s in sessions)


async def _listen(ctx: Context, name: str) -> None:
    """Note when the heartbeat was seen to change, by the watch or, before it counts as stale, by a read."""
    beats, now = ctx.memory.heartbeats, ctx.clock.monotonic()
    value = _heartbeat(ctx.store.get(CXLNODE, name))
    beat = beats.get(name)
    if beat is None:
        beat = beats[name] = Heartbeat(value, now, moved=False)
    elif beat.value != value:
        beat = beats[name] = Heartbeat(value, beat.seen if value == beat.asked else now, moved=True)
    if value and ctx.silent_seconds(name) >= ctx.settings.heartbeat_stale_seconds - ASK_SECONDS:
        live = _heartbeat(await ctx.api.get(CXLNODE, name))
        if live not in {"", beat.value, beat.asked}:
            beats[name] = replace(beat, seen=ctx.clock.monotonic(), moved=True, asked=live)


def _heartbeat(body: Object | None) -> str:
    return str(((body or {}).get("status") or {}).get("heartbeat") or "")


def desired_labels(ctx: Context, name: str) -> set[str]:
    """Keys of the blade labels that the node should have; those of blades that cannot be judged now stay."""
    body = ctx.store.get(NODE, name)
    present = {key for key in body["metadata"]["labels"] if key.startswith(LABEL_BLADE_PREFIX)} if body else set()
    wanted = {
        blade_label(blade.name)
        for session in ctx.sessions.all()
        for blade in session.blades()
        if ctx.cabled(name, blade)
    }
    read = {session.fabric for session in ctx.sessions.all() if session.inventory is not None}
    of_unread = {blade_label(b["metadata"]["name"]) for b in ctx.store.all(BLADE) if b["spec"]["fabric"] not in read}
    return wanted | (present & of_unread)


async def _label(ctx: Context, name: str) -> None:
    body = ctx.store.get(NODE, name)
    if body is None:
        return
    present = {key for key in body["metadata"]["labels"] if key.startswith(LABEL_BLADE_PREFIX)}
    wanted = desired_labels(ctx, name)
    if present == wanted:
        return
    live = await ctx.api.get(NODE, name)
    if live is None:
        return
    labels: Object = {**dict.fromkeys(wanted, LABEL_CABLED), **dict.fromkeys(present - wanted)}
    await ctx.api.merge(NODE, live, {"metadata": {"labels": labels}})
    log.info("labels: +%s -%s", sorted(wanted - present), sorted(present - wanted))
    for session in ctx.sessions.all():
        for blade in session.blades():
            if blade_label(blade.name) in wanted ^ present:
                ctx.wake(Key("blade", blade.name), 0.0)


async def _tell_uuid(ctx: Context, name: str) -> None:
    """The plugin may not read Nodes: its CXLNode tells it which host it is."""
    known, uuid = ctx.store.get(CXLNODE, name), ctx.system_uuid(name)
    if known is None or not uuid or (known.get("spec") or {}).get("systemUUID") == uuid:
        return
    live = await ctx.api.get(CXLNODE, name)
    if live is not None:
        await ctx.api.apply(CXLNODE, {"metadata": {"name": name}, "spec": {"systemUUID": uuid}}, live)


async def _gone(ctx: Context, name: str) -> None:
    """The Node was deleted: its CXLNode goes, and its regions are fenced by their own reconciles."""
    live = await ctx.api.get(CXLNODE, name)
    if live is not None:
        await ctx.api.delete(CXLNODE, live)
        log.info("deleted with its Node")
    ctx.memory.heartbeats.pop(name, None)


async def distrust_links(ctx: Context, nodes: list[str], blade: str) -> None:
    """Take the blade's label off nodes that could not be attached, before the allocation is failed."""
    until = ctx.clock.monotonic() + ctx.settings.blade_backoff_seconds
    for node in nodes:
        ctx.memory.link_trouble[node, blade] = until
        await _label(ctx, node)
        ctx.wake(Key("node", node), ctx.settings.blade_backoff_seconds + 0.5)
