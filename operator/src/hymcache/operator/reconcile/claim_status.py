"""Writing `status.devices` of a claim: the two conditions that the scheduler waits for. Never set back, never both."""

from __future__ import annotations

from hymcache.crds.names import CONDITION_COMPOSED, CONDITION_FAILED
from hymcache.operator.clients.api import Api, ApiError
from hymcache.operator.clients.kinds import CLAIM, Object
from hymcache.operator.clock import Clock, rfc3339
from hymcache.operator.store import results_of


def device_of(claim: Object, share: str) -> Object | None:
    """The entry of `status.devices` for a share."""
    devices = (claim.get("status") or {}).get("devices") or []
    return next((d for d in devices if d.get("shareID") == share), None)


def has(claim: Object, share: str, kind: str) -> bool:
    """Whether a condition of the share is True."""
    conditions = (device_of(claim, share) or {}).get("conditions") or []
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


async def set_condition(
    api: Api, clock: Clock, claim: Object, share: str, kind: str, reason: str, message: str
) -> bool:
    """Set one condition of a share to True by server-side apply.

    Args:
        api: the API server.
        clock: for the condition's time.
        claim: read live; its uid is a precondition.
        share: `shareID`; the API server refuses one that the allocation does not carry.
        kind: condition type.
        reason: CamelCase word.
        message: one sentence.

    Returns:
        False when the allocation is gone or has the opposite condition: there is nothing left to say.
    """
    result = next((r for r in results_of(claim) if r.get("shareID") == share), None)
    opposite = CONDITION_FAILED if kind == CONDITION_COMPOSED else CONDITION_COMPOSED
    if result is None or has(claim, share, opposite):
        return False
    if has(claim, share, kind):
        return True
    entry = {key: result[key] for key in ("driver", "pool", "device", "shareID")}
    entry["conditions"] = [
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message[:32768],
            "lastTransitionTime": rfc3339(clock.utc()),
        }
    ]
    meta = {"name": claim["metadata"]["name"], "namespace": claim["metadata"]["namespace"]}
    try:
        await api.apply(CLAIM, {"metadata": meta, "status": {"devices": [entry]}}, claim, subresource="status")
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True
