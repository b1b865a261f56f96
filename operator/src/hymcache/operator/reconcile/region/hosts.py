"""Which host writes which domain, and which one formats. Pure.

A domain changes its host only after the old one is off: it confirmed that no process uses the region and that its
caches are flushed, or the fabric cut it off, or it has rebooted.
"""

from __future__ import annotations

from dataclasses import dataclass

from hymcache.crds.region import AttachmentPhase, RegionHost
from hymcache.operator.reconcile.region.view import View

OFF = frozenset({AttachmentPhase.DETACHED, AttachmentPhase.FENCED})


@dataclass(frozen=True)
class Assignment:
    """The hosts a region is to have, and the nodes for which no domain is left."""

    hosts: tuple[RegionHost, ...]
    refused: tuple[str, ...]


def is_off(view: View, host: RegionHost) -> bool:
    """The host cannot reach the region: it never was attached in this epoch, or has been detached or fenced."""
    attachment = view.attachment(host.node)
    if attachment is None:
        return not view.connected(host)
    return attachment.phase in OFF and not view.connected(host)


def assign(view: View) -> Assignment:
    """Domains for the wanted nodes: what a host has it keeps, then free domains, then those of hosts that are off."""
    domains = view.spec.domains or 1
    wanted = {place.node: place for place in view.places}
    hosts = {h.node: h.model_copy(update={"wanted": h.node in wanted}) for h in view.spec.hosts}
    refused = []
    for node, place in wanted.items():
        known = hosts.get(node)
        if known is not None:
            if known.system_uuid != place.system_uuid and is_off(view, known):
                del hosts[node]  # the node is another machine now; it gets an entry of its own next time
            continue
        taken = {h.domain for h in hosts.values()}
        domain = next((d for d in range(domains) if d not in taken), None)
        if domain is None:
            old = next((h for h in hosts.values() if not h.wanted and is_off(view, h)), None)
            if old is None:
                refused.append(node)
                continue
            del hosts[old.node]
            domain = old.domain
        hosts[node] = RegionHost(node=node, system_uuid=place.system_uuid, domain=domain)
    return Assignment(tuple(_with_init(view, hosts)), tuple(refused))


def _with_init(view: View, hosts: dict[str, RegionHost]) -> list[RegionHost]:
    """The init role: the first wanted host's until the region is formatted; it moves only from a host that is off."""
    holder = next((h for h in hosts.values() if h.init), None)
    if view.formatted or (holder is not None and not _may_move(view, holder)):
        return list(hosts.values())
    candidates = [h for h in hosts.values() if h.wanted]
    better = [h for h in candidates if not _failed(view, h)]
    chosen = next(iter(better or candidates), holder)
    return [h.model_copy(update={"init": chosen is not None and h.node == chosen.node}) for h in hosts.values()]


def _failed(view: View, host: RegionHost) -> bool:
    attachment = view.attachment(host.node)
    return attachment is not None and attachment.phase is AttachmentPhase.FAILED


def _may_move(view: View, holder: RegionHost) -> bool:
    """The holder has never had the region in this epoch, or is off again, and is not about to get it."""
    if _failed(view, holder):
        return not view.connected(holder)
    return not holder.wanted and is_off(view, holder)
