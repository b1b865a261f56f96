"""What to do next for a region: the first thing that is not as it should be. Pure.

Order of a life: finalizer and spec, hosts, compose, attach, RegionComposed; then detach of hosts that are done; in the
end detach of all, release, deletion. Whatever crashed in between is found again from the objects and the fabric.
"""

from __future__ import annotations

from datetime import timedelta

from hymcache.crds.model import ReclaimPolicy
from hymcache.crds.region import AttachmentPhase, HostState, RegionHost, RegionPhase
from hymcache.operator.reconcile.region.hosts import OFF, assign
from hymcache.operator.reconcile.region.status import COMPOSED, EVICTED, Change, status_of
from hymcache.operator.reconcile.region.steps import (
    Attach,
    Cause,
    Compose,
    Detach,
    Done,
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
    Wait,
    WriteStatus,
)
from hymcache.operator.reconcile.region.view import Need, View
from hymcache.operator.settings import Settings

RETRY_SECONDS = 1.0
LEAVING_SECONDS = 5.0


def plan(view: View, settings: Settings) -> Step:
    """The next step."""
    if releasing(view):
        return _end(view, settings)
    if view.share.need is Need.NO and not view.static:
        return _keep(view, settings)
    return _serve(view, settings)


def releasing(view: View) -> bool:
    """The bytes are to go: deleted, evicted, dropped by policy, or nobody can ever ask for them again.

    Once the phase says Releasing there is no way back: the same claim gets a new share, and with it a new region.
    """
    if view.deleting or view.status.phase is RegionPhase.RELEASING or view.condition(EVICTED):
        return True
    if view.static or view.share.need is Need.YES:
        return False
    dropped = view.spec.reclaim_policy is ReclaimPolicy.DELETE or not view.condition(COMPOSED)
    return dropped or view.inherited or view.share.need is Need.NEVER


# --- an allocation stands on it --------------------------------------------------------------------------------------
def _serve(view: View, settings: Settings) -> Step:
    if view.share.failed:
        return _settled(view, Wait(30.0, "the scheduler has not given the failed allocation up yet"))
    if not view.finalized or (view.blade is not None and not _filled(view)):  # an unknown blade fills nothing
        return Prepare()
    if view.blade is None:
        return _without_blade(view, settings)
    if _lost(view):
        return Lose(f"blade {view.spec.blade} has lost the bytes of region {view.name}; made anew, empty")
    assignment = assign(view)
    if assignment.hosts != tuple(view.spec.hosts):
        return SetHosts(assignment.hosts)
    if not view.condition(COMPOSED) or view.found is None:
        return _compose(view, settings)
    if step := _attach(view):
        return step
    if not view.share.composed and not view.static:
        return _announce(view)
    if step := _let_go(view, settings):
        return step
    return _settled(view, Done(_again(view)))


def _filled(view: View) -> bool:
    spec = view.spec
    return None not in (spec.uuid, spec.epoch, spec.domains, spec.coherence, spec.media, spec.fabric_name)


def _without_blade(view: View, settings: Settings) -> Step:
    message = f"blade {view.spec.blade}: expected in the inventory of a fabric, found in none; check `kubectl get cxlb`"
    if view.share.composed or view.static or not _overdue(view, settings):
        return _settled(view, Wait(5.0, message))
    return Fail(Cause.BLADE_SICK, message)


def _lost(view: View) -> bool:
    """Composed, and gone since; or listed, but over memory that was without power."""
    if not view.condition(COMPOSED):
        return False
    before, now = view.status.power_epoch, view.blade.power_epoch if view.blade else None
    return view.missing or (before is not None and now is not None and now > before)


def _overdue(view: View, settings: Settings) -> bool:
    since = view.share.allocated
    return since is not None and view.now - since > timedelta(seconds=settings.compose_budget_seconds)


def _compose(view: View, settings: Settings) -> Step:
    blade = view.blade
    assert blade is not None
    spec = view.spec
    if problem := _impossible(view):
        age = (view.now - view.share.allocated).total_seconds() if view.share.allocated else 0.0
        if view.share.composed or age < settings.request_fault_seconds:
            return _settled(view, Wait(max(1.0, settings.request_fault_seconds - age), problem), problem)
        return Fail(Cause.REQUEST, problem)
    if view.status.phase not in {RegionPhase.COMPOSING, RegionPhase.LOST}:
        return WriteStatus(status_of(view, Change(RegionPhase.COMPOSING)))
    if view.found is None and view.free_bytes < spec.bytes:
        return _make_room(view, settings)
    return Compose()


def _make_room(view: View, settings: Settings) -> Step:
    """Bytes that come back by themselves are waited for, then retained data goes, then the slice was wrong."""
    need = view.spec.bytes
    if view.free_bytes + view.coming_bytes >= need and not _overdue(view, settings):
        return _settled(view, Wait(RETRY_SECONDS, "bytes of a released region come back soon"))
    if view.retained:
        return Evict(view.retained[0])
    if view.coming_bytes and not _overdue(view, settings):
        return _settled(view, Wait(RETRY_SECONDS, "bytes of a released region come back soon"))
    message = (
        f"blade {view.spec.blade}: expected {need} free bytes for region {view.name}, found {view.free_bytes}; "
        "the blade is offered with less until its inventory says otherwise"
    )
    if view.share.composed or view.static:
        return _settled(view, Wait(30.0, message), message)
    return Fail(Cause.NO_CAPACITY, message)


def _impossible(view: View) -> str | None:
    blade, spec = view.blade, view.spec
    assert blade is not None
    if spec.domains is not None and spec.domains > blade.max_hosts:
        return (
            f"region {view.name}: expected at most {blade.max_hosts} domains on blade {blade.name}, found "
            f"{spec.domains}; ask for fewer, or for a blade that serves more hosts"
        )
    if spec.bytes % blade.granule_bytes:
        return (
            f"region {view.name}: expected a multiple of the granule of {blade.granule_bytes} bytes of blade "
            f"{blade.name}, found {spec.bytes}; round the size up"
        )
    return None


def _attach(view: View) -> Step | None:
    """Every wanted host at once; a failed one again when its pause is over."""
    due = []
    for host in view.spec.hosts:
        if not host.wanted:
            continue
        attachment = view.attachment(host.node)
        failed = attachment is not None and attachment.phase is AttachmentPhase.FAILED
        if failed and host.node not in view.attach_due:
            continue
        if attachment is None or attachment.phase is not AttachmentPhase.ATTACHED or not view.connected(host):
            due.append(host.node)
    return Attach(tuple(due)) if due else None


def _again(view: View) -> float | None:
    """Failed attaches are tried again, and hosts that do not let go may turn out to be dead: both by time alone."""
    if any(h.wanted and not view.attached(h.node) for h in view.spec.hosts):
        return RETRY_SECONDS
    return LEAVING_SECONDS if any(not h.wanted and view.connected(h) for h in view.spec.hosts) else None


def _announce(view: View) -> Step:
    """RegionComposed, if at least one of the nodes that the pods are meant for can use the region."""
    wanted = [h.node for h in view.spec.hosts if h.wanted]
    usable = [node for node in wanted if view.attached(node)]
    if wanted and not usable:
        if set(wanted) <= view.attach_given_up:
            reasons = "; ".join(a.message or "" for n in wanted if (a := view.attachment(n)))
            message = f"region {view.name} cannot be attached to {', '.join(wanted)}: {reasons}"
            return Fail(Cause.UNREACHABLE_HOSTS, message)
        return _settled(view, Wait(RETRY_SECONDS, "no host is attached yet"))
    cabled = [place.node for place in view.places if place.cabled]
    if view.places and not cabled:
        nodes = ", ".join(place.node for place in view.places)
        return Fail(
            Cause.UNREACHABLE_HOSTS,
            f"region {view.name}: expected a live plugin and a cable to blade {view.spec.blade} on {nodes}, found "
            "none; the pods are placed anew",
        )
    return MarkComposed()


# --- hosts that are done ---------------------------------------------------------------------------------------------
def _let_go(view: View, settings: Settings) -> Step | None:
    """Detach hosts that no pod needs any more, each after it let go or was cut off."""
    for host in view.spec.hosts:
        if not host.wanted and (step := _leave(view, host, settings)):
            return step
    return None


def _leave(view: View, host: RegionHost, settings: Settings) -> Step | None:
    attachment = view.attachment(host.node)
    entry = view.reported(host.node)
    if attachment is None and not view.connected(host):
        return ForgetHost(host.node) if entry is not None and not view.nodes[host.node].exists else None
    if attachment is not None and attachment.phase in OFF and not view.connected(host):
        return ForgetHost(host.node) if entry is not None and _cannot_speak(view, host.node) else None
    if attachment is None or attachment.phase is not AttachmentPhase.DETACHING:
        return WriteStatus(status_of(view, Change(leaving=host.node)))
    if entry is None or entry.state in {HostState.RELEASED, HostState.ABSENT} or _rebooted(view, host.node):
        return Detach(host.node, fenced=False)
    facts = view.nodes[host.node]
    if not facts.exists or facts.dead_seconds > settings.fence_seconds:
        return Detach(host.node, fenced=True)
    return None


def _rebooted(view: View, node: str) -> bool:
    """The host has booted since it reported: nothing of what it had mapped is left."""
    entry, facts = view.reported(node), view.nodes[node]
    return bool(entry and entry.boot_id and facts.boot_id and entry.boot_id != facts.boot_id)


def _cannot_speak(view: View, node: str) -> bool:
    """The plugin that wrote the entry is gone for good: the operator removes it."""
    return not view.nodes[node].exists


# --- the end ---------------------------------------------------------------------------------------------------------
def _keep(view: View, settings: Settings) -> Step:
    """No allocation, but the claim may come back: everything stays but the hosts."""
    if any(h.wanted for h in view.spec.hosts):
        return SetHosts(tuple(h.model_copy(update={"wanted": False}) for h in view.spec.hosts))
    if view.blade is not None and _lost(view):
        return WriteStatus(status_of(view, Change(RegionPhase.RELEASING)))
    return _let_go(view, settings) or _settled(view, Done(_again(view)))


def _end(view: View, settings: Settings) -> Step:
    if not view.finalized:
        return Finish("") if not view.deleting else Done()
    if view.status.phase is not RegionPhase.RELEASING:
        return WriteStatus(status_of(view, Change(RegionPhase.RELEASING)))
    if any(h.wanted for h in view.spec.hosts):
        return SetHosts(tuple(h.model_copy(update={"wanted": False}) for h in view.spec.hosts))
    if view.inherited:
        return Finish("another region has taken the bytes over")
    if step := _let_go(view, settings):
        return step
    holders = tuple(h.node for h in view.spec.hosts if view.connected(h))
    if holders:
        waiting = Wait(5.0, f"hosts {', '.join(holders)} have not let go of region {view.name}")
        return _settled(view, waiting, blocked=holders)
    if view.found is not None or (view.blade is None and view.condition(COMPOSED)):
        return Release() if view.blade is not None else _settled(view, Wait(10.0, "its blade is not in any inventory"))
    return Finish("released")


def _settled(view: View, otherwise: Done | Wait, problem: str = "", blocked: tuple[str, ...] = ()) -> Step:
    """Write the status first, if it is not what the view says."""
    target = status_of(view, Change(problem=problem, blocked=blocked))
    same = target.model_dump(exclude={"hosts"}) == view.status.model_dump(exclude={"hosts"})
    return otherwise if same else WriteStatus(target)
