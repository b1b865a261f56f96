"""Writing `status.devices` of a claim: the two conditions that the scheduler waits for. Never set back, never both."""

from __future__ import annotations

from hymcache.crds.names import CONDITION_COMPOSED, CONDITION_FAILED
from hymcache.operator.clients.api import ApiError
from hymcache.operator.clients.events import Reference
from hymcache.operator.clients.kinds import CLAIM, Object
from hymcache.operator.clock import rfc3339
from hymcache.operator.reconcile.context import Context
from hymcache.operator.store import results_of


class UnwritableError(Exception):
    """Nobody can patch this claim's status; the message says why and what to do."""


UNWRITABLE = (
    "expected a claim whose status can be patched, found opaque parameters that were sent with blanks between JSON "
    "tokens, which the API server takes for a change of the allocation; make the claim anew with kubectl"
)
KEYS = ("driver", "pool", "device", "shareID")
"""What names an entry of `status.devices`."""


def device_of(claim: Object, share: str) -> Object | None:
    """The entry of `status.devices` for a share."""
    devices = (claim.get("status") or {}).get("devices") or []
    return next((d for d in devices if d.get("shareID") == share), None)


def has(claim: Object, share: str, kind: str) -> bool:
    """Whether a condition of the share is True."""
    conditions = (device_of(claim, share) or {}).get("conditions") or []
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


async def set_condition(ctx: Context, claim: Object, share: str, kind: str, reason: str, message: str) -> bool:
    """Set one condition of a share to True.

    Args:
        ctx: doors to the outside.
        claim: read live; its uid and resourceVersion are preconditions.
        share: `shareID`; the API server refuses one that the allocation does not carry.
        kind: condition type.
        reason: CamelCase word.
        message: one sentence.

    Raises:
        UnwritableError: the claim was made in a way that lets nobody patch its status.

    Returns:
        False when the allocation is gone or has the opposite condition: there is nothing left to say.
    """
    result = next((r for r in results_of(claim) if r.get("shareID") == share), None)
    opposite = CONDITION_FAILED if kind == CONDITION_COMPOSED else CONDITION_COMPOSED
    if result is None or has(claim, share, opposite):
        return False
    if has(claim, share, kind):
        return True
    entry: Object = {key: result[key] for key in KEYS if key in result}
    entry["conditions"] = [
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message[:32768],
            "lastTransitionTime": rfc3339(ctx.clock.utc()),
        }
    ]
    try:
        await ctx.api.json_patch(CLAIM, claim, operations(claim, entry), subresource="status")
    except ApiError as error:
        if error.status == 404:
            return False
        if error.status == 422 and "status.allocation" in str(error):
            await ctx.events.emit(Reference.of(CLAIM, claim), "Warning", "ClaimUnwritable", UNWRITABLE)
            raise UnwritableError(f"{UNWRITABLE}; the API server said: {error}") from error
        raise
    return True


def operations(claim: Object, entry: Object) -> list[Object]:
    """A JSON patch that puts one device entry into the claim's status, if the claim is still as it was read.

    Not server-side apply: it rewrites the opaque parameters in `status.allocation` with sorted keys, and the API server
    takes that for a change of the allocation, which only the scheduler may make (422, Kubernetes 1.37).
    """
    meta = claim["metadata"]
    tests: list[Object] = [
        {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
    ]
    devices = (claim.get("status") or {}).get("devices")
    if not devices:
        return [*tests, {"op": "add", "path": "/status/devices", "value": [entry]}]
    index = next((i for i, d in enumerate(devices) if all(d.get(key) == entry.get(key) for key in KEYS)), None)
    if index is None:
        return [*tests, {"op": "add", "path": "/status/devices/-", "value": entry}]
    old = devices[index]
    others = [c for c in old.get("conditions") or [] if c["type"] != entry["conditions"][0]["type"]]
    merged = {**old, **entry, "conditions": [*others, *entry["conditions"]]}
    return [*tests, {"op": "replace", "path": f"/status/devices/{index}", "value": merged}]
