"""The operator's part of a region's status. Pure; a time changes only when what it dates changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from hymcache.crds.model import Condition, ReclaimPolicy
from hymcache.crds.quantity import format_bytes
from hymcache.crds.region import (
    Attachment,
    AttachmentPhase,
    CXLRegionStatus,
    HostState,
    RegionPhase,
    Scrub,
)
from hymcache.operator.reconcile.region.hosts import assign
from hymcache.operator.reconcile.region.view import Need, View

COMPOSED = "Composed"
ATTACHED = "Attached"
REFUSED = "HostsRefused"
BLOCKED = "ReleaseBlocked"
RETAINED = "Retained"
EVICTED = "Evicted"
PROBLEM = "Problem"


Truth = Literal["True", "False", "Unknown"]


def condition(old: list[Condition], kind: str, status: Truth, reason: str, message: str, now: datetime) -> Condition:
    """A condition whose time moves only with its status."""
    before = next((c for c in old if c.type == kind), None)
    since = before.last_transition_time if before and before.status == status else now
    return Condition(type=kind, status=status, reason=reason, message=message[:1024], last_transition_time=since)


@dataclass(frozen=True)
class Change:
    """What a step has decided or found out, beside what follows from the view."""

    phase: RegionPhase | None = None
    leaving: str | None = None
    """Node whose attachment becomes Detaching."""
    attachments: dict[str, Attachment] = field(default_factory=dict)
    """New entries by node."""
    problem: str = ""
    """One sentence on what keeps the region from being served."""
    blocked: tuple[str, ...] = ()
    """Nodes that keep the region from being released."""
    fields: dict[str, object] = field(default_factory=dict)
    """Fields of the status, such as scrub."""
    conditions: tuple[Condition, ...] = ()


NOTHING = Change()


def status_of(view: View, change: Change = NOTHING) -> CXLRegionStatus:
    """The status that follows from the view and the change."""
    old = view.status
    places = _attachments(view, change)
    hits, misses = (sum(getattr(h, name) or 0 for h in old.hosts) for name in ("hits", "misses"))
    used = sum(h.used_bytes or 0 for h in old.hosts)
    ref = view.spec.claim_ref
    wanted = [h.node for h in view.spec.hosts if h.wanted]
    here = {a.node for a in places if a.phase is AttachmentPhase.ATTACHED}
    status = CXLRegionStatus(
        phase=old.phase,
        conditions=_conditions(view, change, places),
        attachments=places,
        hosts=old.hosts,
        used_bytes=used,
        hit_rate=f"{100 * hits / (hits + misses):.1f}%" if hits + misses else None,
        scrub=_scrub(view),
        size=format_bytes(view.spec.bytes),
        used=f"{100 * used // view.spec.bytes}%",
        claim=f"{ref.namespace}/{ref.name}" if ref else None,
        hosts_attached=f"{len(here & set(wanted))}/{len(wanted)}",
        released_time=_released(view),
        power_epoch=old.power_epoch,
        formatted_epoch=view.epoch if view.formatted else old.formatted_epoch,
    )
    status = status.model_copy(update=change.fields)
    return status.model_copy(update={"phase": change.phase or _phase(view, status)})


def _attachments(view: View, change: Change) -> list[Attachment]:
    """Entries of this epoch for hosts of the spec, in the spec's order."""
    found = []
    for host in view.spec.hosts:
        entry = change.attachments.get(host.node) or view.attachment(host.node)
        if host.node == change.leaving:
            entry = (entry or Attachment(node=host.node, phase=AttachmentPhase.DETACHING)).model_copy(
                update={"phase": AttachmentPhase.DETACHING, "identity": None, "message": None, "epoch": view.epoch}
            )
        if entry is not None:
            found.append(entry)
    return found


def _scrub(view: View) -> Scrub | None:
    """What is recorded, or what the host with the init role reports."""
    if view.status.scrub is not None:
        return view.status.scrub
    for host in view.status.hosts:
        if host.scrubbed and host.epoch == view.epoch:
            return Scrub(time=view.now, by=host.node, how="cleared by the host before it formatted the region")
    return None


def _released(view: View) -> datetime | None:
    if view.static or view.share.need is Need.YES:
        return None
    return view.status.released_time or view.now


def _phase(view: View, status: CXLRegionStatus) -> RegionPhase:
    """Follows from conditions and attachments."""
    if view.status.phase is RegionPhase.RELEASING:
        return RegionPhase.RELEASING
    if not any(c.type == COMPOSED and c.status == "True" for c in status.conditions):
        before = view.status.phase
        return before if before in {RegionPhase.COMPOSING, RegionPhase.LOST} else RegionPhase.PENDING
    if status.scrub is None:
        return RegionPhase.COMPOSING
    wanted = {h.node for h in view.spec.hosts if h.wanted}
    failed = any(a.phase is AttachmentPhase.FAILED for a in status.attachments if a.node in wanted)
    troubled = any(h.state is HostState.FAILED or h.problem for h in status.hosts if h.node in wanted)
    sick = view.blade is None or view.blade.health == "Critical"
    return RegionPhase.DEGRADED if failed or troubled or sick else RegionPhase.READY


def _conditions(view: View, change: Change, places: list[Attachment]) -> list[Condition]:
    old, now = view.status.conditions, view.now
    kept = {c.type: c for c in old if c.type in {COMPOSED, EVICTED}}
    kept |= {c.type: c for c in change.conditions}
    if failed := [f"{a.node}: {a.message}" for a in places if a.phase is AttachmentPhase.FAILED]:
        kept[ATTACHED] = condition(old, ATTACHED, "False", "AttachFailed", "; ".join(failed), now)
    elif places:
        kept[ATTACHED] = condition(old, ATTACHED, "True", "AllAttached", "", now)
    serving = view.static or view.share.need is Need.YES
    if serving and (refused := assign(view).refused):
        message = (
            f"{', '.join(refused)}: expected a free domain of {view.spec.domains}, found none; the hosts that have one "
            "must leave first, or the claim must ask for more domains"
        )
        kept[REFUSED] = condition(old, REFUSED, "True", "NoDomainLeft", message, now)
    if change.blocked:
        message = (
            f"{', '.join(change.blocked)}: expected the region to be let go, found it in use; end the pods there, or "
            "delete the Node if the host is dead"
        )
        kept[BLOCKED] = condition(old, BLOCKED, "True", "HostsHoldRegion", message, now)
    if not serving and view.spec.reclaim_policy is ReclaimPolicy.RETAIN and COMPOSED in kept:
        kept[RETAINED] = condition(old, RETAINED, "True", "ClaimNotAllocated", "kept while nobody needs the bytes", now)
    if change.problem:
        kept[PROBLEM] = condition(old, PROBLEM, "True", "CannotServe", change.problem, now)
    return [kept[kind] for kind in sorted(kept)]
