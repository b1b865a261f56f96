"""What an allocation and a CXLRegion mean for this node: pure functions of what was read, no effects.

The kubelet may ask for the same claim any number of times; the same objects give the same answer, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hymcache.crds import names
from hymcache.crds.config import Access, ConfigError, RegionConfig
from hymcache.crds.model import Coherence
from hymcache.crds.region import Attachment, AttachmentPhase, CXLRegion, RegionHost
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.keys import ClaimUID, ShareKey


@dataclass(frozen=True)
class ClaimRef:
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: ClaimUID

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Share:
    """One allocation result of our driver. `request` is the base name, without a sub-request."""

    key: ShareKey
    request: str
    pool: str
    device: str
    share_id: str | None
    region: str
    access: Access


class Scrub(StrEnum):
    """Whether hosts clear the region. Only the operator's word that it was cleared makes old bytes worth refusing."""

    NONE = "none"
    """No: the fabric did, or the bytes are the claim's own."""
    DUE = "due"
    """Not done yet: until it is formatted the memory may hold anything, of anybody."""
    DONE = "done"
    """A host has said that it did, in this epoch."""


@dataclass(frozen=True)
class Wanted:
    """What this node must find behind its cable, and the part of it that this node alone writes."""

    blade: str
    fabric_region: str
    region_bytes: int
    uuid: str
    epoch: int
    domains: int
    domain: int
    init: bool
    coherence: Coherence
    chunk_bytes: int | None
    writable: bool
    scrub: Scrub = Scrub.NONE

    @property
    def vouched(self) -> bool:
        """Whether this host answers for the clearing: only an init host formats, and it clears before."""
        return self.init and self.scrub is not Scrub.NONE


def shares_of(claim: Mapping[str, Any], ref: ClaimRef, driver: str) -> tuple[Share, ...]:
    """The shares that `claim`, freshly read, gives to `driver`, sorted.

    Raises:
        ClaimError: another object than the kubelet means, no allocation, nothing of this driver, or parameters that
            cannot be used.
    """
    found = claim.get("metadata", {}).get("uid")
    if found != ref.uid:
        raise ClaimError(
            Kind.FOREIGN,
            f"claim {ref} was re-created: expected UID {ref.uid}, found {found}; re-create the pod as well",
        )
    devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
    results = [result for result in devices.get("results") or [] if result.get("driver") == driver]
    if not results:
        raise ClaimError(
            Kind.FOREIGN, f"claim {ref} has no allocated device of driver {driver}; it was deallocated, or is not ours"
        )
    shares = [_share(result, ref, devices.get("config") or []) for result in results]
    if len({share.key for share in shares}) != len(shares):
        raise ClaimError(Kind.REFUSED, f"claim {ref} holds the same device twice; make one claim per region")
    return tuple(sorted(shares, key=lambda share: (share.request, share.pool, share.device, share.key.share)))


def _share(result: Mapping[str, Any], ref: ClaimRef, config: list[dict[str, Any]]) -> Share:
    request = str(result["request"]).split("/")[0]
    pool, device, share_id = str(result["pool"]), str(result["device"]), result.get("shareID")
    if result.get("adminAccess"):
        raise ClaimError(
            Kind.REFUSED, f"claim {ref}, request {request}: admin access shows a blade, it has no region to attach"
        )
    try:
        access = RegionConfig.of_claim(config, request).access
    except ConfigError as error:
        raise ClaimError(Kind.REFUSED, f"claim {ref}: {error}") from error
    return Share(
        key=ShareKey.of(ref.uid, share_id, pool, device),
        request=request,
        pool=pool,
        device=device,
        share_id=share_id,
        region=names.region_name(share_id) if share_id else device,
        access=access,
    )


def check_permission(region: CXLRegion, ref: ClaimRef) -> None:
    """Refuse a claim that may not use `region`: it is neither the claim it was made for, nor in an allowed namespace.

    Anybody can name a static region in a claim; the namespace is what keeps tenants apart.

    Raises:
        ClaimError: refused.
    """
    owner = region.spec.claim_ref
    if owner is not None and owner.uid == ref.uid:
        return
    if ref.namespace in region.spec.allowed_namespaces:
        return
    allowed = ", ".join(region.spec.allowed_namespaces) or "none"
    raise ClaimError(
        Kind.REFUSED,
        f"claim {ref} may not use CXLRegion {region.metadata.name}: its allowedNamespaces are {allowed}; "
        f"add {ref.namespace} there or use another region",
    )


def attached(region: CXLRegion, node: str) -> Attachment | None:
    """The attachment of `node`, if the fabric has connected it for the region's present epoch."""
    found = _attachment(region, node)
    current = found is not None and found.phase is AttachmentPhase.ATTACHED and found.identity is not None
    if not current or found is None or (found.epoch is not None and found.epoch != region.spec.epoch):
        return None
    return found


def wanted(region: CXLRegion, share: Share, node: str) -> Wanted | str:
    """What to open and verify on `node`; or, in words, what it is still waiting for."""
    host = next((host for host in region.spec.hosts if host.node == node), None)
    attachment = attached(region, node)
    if host is None or attachment is None or attachment.identity is None:
        return _waits_for(region, host, node)
    spec = region.spec
    if spec.uuid is None or spec.epoch is None or spec.domains is None or spec.coherence is None:
        return "the operator to fill in uuid, epoch, domains and coherence"
    return Wanted(
        blade=attachment.identity.blade,
        fabric_region=attachment.identity.region,
        region_bytes=spec.bytes,
        uuid=spec.uuid,
        epoch=spec.epoch,
        domains=spec.domains,
        domain=host.domain,
        init=host.init,
        coherence=spec.coherence,
        chunk_bytes=spec.chunk_bytes,
        writable=share.access is Access.READ_WRITE,
        scrub=_scrub(region),
    )


def _scrub(region: CXLRegion) -> Scrub:
    status, epoch = region.status, region.spec.epoch
    if status is None:
        return Scrub.DUE
    if any(host.scrubbed and host.epoch == epoch for host in status.hosts):
        return Scrub.DONE
    return Scrub.DUE if status.scrub is None else Scrub.NONE


def _attachment(region: CXLRegion, node: str) -> Attachment | None:
    entries = region.status.attachments if region.status else []
    return next((entry for entry in entries if entry.node == node), None)


def _waits_for(region: CXLRegion, host: RegionHost | None, node: str) -> str:
    attachment = _attachment(region, node)
    if attachment is None:
        known = "which has given the node no domain yet" if host is None else "which has not begun"
        return f"the operator to attach node {node}, {known}"
    detail = f": {attachment.message}" if attachment.message else ""
    return f"the attachment of node {node}, which is {attachment.phase}{detail}"
