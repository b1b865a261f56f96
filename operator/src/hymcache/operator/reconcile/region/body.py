"""The parts of a CXLRegion that the operator writes, as server-side apply takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from hymcache.crds.config import RegionConfig
from hymcache.crds.names import (
    ANNOTATION_GENERATION,
    CAPACITY_MEMORY,
    FINALIZER_REGION,
    LABEL_BLADE,
    LABEL_CLAIM_UID,
    fabric_region_name,
    region_name,
)
from hymcache.crds.quantity import parse_bytes
from hymcache.crds.region import ClaimRef, CXLRegion, CXLRegionSpec, CXLRegionStatus, RegionHost
from hymcache.operator.clients.kinds import Object
from hymcache.operator.fabric.session import BladeFacts

USER_FIELDS = ("blade", "bytes", "reclaimPolicy", "allowedNamespaces")
"""Of a static region: the user's, who may apply them again."""


def body_of(name: str, spec: CXLRegionSpec, generation: int) -> Object:
    """Metadata and spec."""
    fields = spec.dump()
    if spec.claim_ref is None:
        fields = {key: value for key, value in fields.items() if key not in USER_FIELDS}
    labels = {LABEL_BLADE: spec.blade}
    if spec.claim_ref is not None:
        labels[LABEL_CLAIM_UID] = spec.claim_ref.uid
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {ANNOTATION_GENERATION: str(generation)},
            "finalizers": [FINALIZER_REGION],
        },
        "spec": fields,
    }


def status_body(name: str, status: CXLRegionStatus) -> Object:
    """The status without what the plugins write."""
    fields = status.model_dump(mode="json", exclude_none=True, exclude={"hosts"})
    return {"metadata": {"name": name}, "status": fields}


def filled(region: CXLRegion, blade: BladeFacts, prefix: str) -> CXLRegionSpec:
    """The spec with everything that the operator decides: identity, domains, what the blade is."""
    spec = region.spec
    return spec.model_copy(
        update={
            "uuid": spec.uuid or spec.share_id or region.metadata.uid,
            "epoch": spec.epoch or 1,
            "domains": spec.domains or blade.max_hosts,
            "coherence": spec.coherence or blade.coherence,
            "media": spec.media or blade.media,
            "fabric_name": spec.fabric_name or fabric_region_name(region.metadata.name, prefix),
        }
    )


def with_hosts(spec: CXLRegionSpec, hosts: Iterable[RegionHost]) -> CXLRegionSpec:
    """The spec with other hosts."""
    return spec.model_copy(update={"hosts": list(hosts)})


def from_claim(claim: Object, result: Object, config: RegionConfig) -> tuple[str, CXLRegionSpec]:
    """Name and first spec of the region of one allocation result."""
    meta, share = claim["metadata"], str(result["shareID"])
    consumed = result.get("consumedCapacity") or {}
    spec = CXLRegionSpec(
        blade=result["pool"],
        bytes=parse_bytes(str(consumed[CAPACITY_MEMORY])),
        domains=config.domains,
        chunk_bytes=config.chunk_bytes,
        reclaim_policy=config.reclaim_policy,
        allowed_namespaces=[meta["namespace"]],
        claim_ref=ClaimRef(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"]),
        share_id=share,
    )
    return region_name(share), spec


def adopting(spec: CXLRegionSpec, region: CXLRegion) -> CXLRegionSpec:
    """The spec of a new share over the bytes of a retained one: same identity, same domains of the same hosts."""
    old = region.spec
    keep = ("uuid", "epoch", "domains", "coherence", "media", "chunk_bytes", "fabric_name")
    update: dict[str, Any] = {name: getattr(old, name) for name in keep}
    update["adopted_from"] = region.metadata.name
    update["hosts"] = [host.model_copy(update={"wanted": False}) for host in old.hosts]
    return spec.model_copy(update=update)


def age_seconds(claim: Object, now: datetime) -> float:
    """Seconds since a claim was allocated; 0 when that is not known."""
    stamp = ((claim.get("status") or {}).get("allocation") or {}).get("allocationTimestamp")
    return (now - datetime.fromisoformat(stamp)).total_seconds() if stamp else 0.0
