"""The one ResourceSlice of a blade's pool. Pure.

The scheduler counts bytes against `memory`, so the slice must be true before an allocation is failed. A device whose
bytes are too few to say (`value` has to be at least two steps) is left out: running pods do not mind.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from hymcache.crds.names import (
    ANNOTATION_GENERATION,
    ANNOTATION_TOUCHED,
    ATTRIBUTE_BLADE,
    ATTRIBUTE_COHERENCE,
    ATTRIBUTE_MEDIA,
    ATTRIBUTE_MODE,
    CAPACITY_MEMORY,
    CAPACITY_REGIONS,
    CONDITION_COMPOSED,
    CONDITION_FAILED,
    DRIVER,
    LABEL_BLADE,
    LABEL_CABLED,
    TAINT_BLADE,
    blade_label,
    slice_name,
)
from hymcache.crds.quantity import format_bytes
from hymcache.operator.clients.kinds import BLADE, Object
from hymcache.operator.fabric.session import BladeFacts


@dataclass(frozen=True)
class Offer:
    """What a blade offers now."""

    facts: BladeFacts
    memory_bytes: int
    """Capacity minus what nobody can get: foreign, static and stuck regions, and what a failed compose has shown."""
    slots: int
    taint: str = ""
    """Why nothing new may be placed; empty: it may."""


def memory_of(offer: Offer) -> int:
    """Whole granules, or 0 when they are too few for the API: `value` must be min + step at least."""
    step = offer.facts.granule_bytes
    whole = offer.memory_bytes // step * step
    return whole if whole >= 2 * step else 0


def device(offer: Offer) -> Object | None:
    """The shared device, or None when there is nothing to offer."""
    memory, step = memory_of(offer), format_bytes(offer.facts.granule_bytes)
    if not memory or offer.slots < 1:
        return None
    facts = offer.facts
    attributes = {
        ATTRIBUTE_MODE: {"string": "shared"},
        ATTRIBUTE_MEDIA: {"string": facts.media.value},
        ATTRIBUTE_COHERENCE: {"string": facts.coherence.value},
        ATTRIBUTE_BLADE: {"string": facts.name},
    }
    found: Object = {
        "name": f"{facts.media.value}-shared",
        "attributes": attributes,
        "allowMultipleAllocations": True,
        "bindingConditions": [CONDITION_COMPOSED],
        "bindingFailureConditions": [CONDITION_FAILED],
        "capacity": {
            CAPACITY_MEMORY: {
                "value": format_bytes(memory),
                "requestPolicy": {"default": step, "validRange": {"min": step, "step": step}},
            },
            CAPACITY_REGIONS: {
                "value": str(offer.slots),
                "requestPolicy": {"default": "1", "validValues": ["1"]},
            },
        },
    }
    if offer.taint:
        found["taints"] = [{"key": TAINT_BLADE, "value": offer.taint, "effect": "NoSchedule"}]
    return found


def slice_body(offer: Offer, blade: Object, live: Object | None, generation: int, touched: str | None = None) -> Object:
    """The whole slice for server-side apply.

    Args:
        offer: what the blade offers.
        blade: the CXLBlade, which becomes its owner.
        live: the slice as it is; its pool generation grows only when the set of devices changes.
        generation: lease generation.
        touched: new value of the touch annotation; None keeps the old one.
    """
    devices = [d for d in (device(offer),) if d is not None]
    annotations = {ANNOTATION_GENERATION: str(generation)}
    old = (live or {}).get("metadata", {}).get("annotations") or {}
    if stamp := touched or old.get(ANNOTATION_TOUCHED):
        annotations[ANNOTATION_TOUCHED] = stamp
    owner = {
        "apiVersion": BLADE.api_version,
        "kind": BLADE.name,
        "name": blade["metadata"]["name"],
        "uid": blade["metadata"]["uid"],
        "controller": True,
    }
    term = {"matchExpressions": [{"key": blade_label(offer.facts.name), "operator": "In", "values": [LABEL_CABLED]}]}
    return {
        "metadata": {
            "name": slice_name(offer.facts.name),
            "labels": {LABEL_BLADE: offer.facts.name},
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": {
            "driver": DRIVER,
            "pool": {
                "name": offer.facts.name,
                "generation": _pool_generation(devices, live),
                "resourceSliceCount": 1,
            },
            "nodeSelector": {"nodeSelectorTerms": [term]},
            "devices": _with_taint_times(devices, live),
        },
    }


def _pool_generation(devices: list[Object], live: Object | None) -> int:
    if live is None:
        return 1
    current = int(live["spec"]["pool"]["generation"])
    names = [d["name"] for d in live["spec"].get("devices") or []]
    return current if names == [d["name"] for d in devices] else current + 1


def _with_taint_times(devices: list[Object], live: Object | None) -> list[Object]:
    """The server dates a taint; an unchanged one keeps its date, or every apply would be a change."""
    devices = copy.deepcopy(devices)
    old = {d["name"]: d.get("taints") or [] for d in ((live or {}).get("spec", {}).get("devices") or [])}
    for entry in devices:
        for taint in entry.get("taints", []):
            same = next((t for t in old.get(entry["name"], []) if _same_taint(t, taint)), None)
            if same and "timeAdded" in same:
                taint["timeAdded"] = same["timeAdded"]
    return devices


def _same_taint(one: Object, other: Object) -> bool:
    return all(one.get(key) == other.get(key) for key in ("key", "value", "effect"))


def differs(body: Object, live: Object) -> bool:
    """Whether an apply of `body` would change `live`: what we set is compared, what the server adds is not."""
    if not (_within(body["metadata"], live["metadata"]) and _within(body["spec"], live["spec"])):
        return True
    kept = live["spec"].get("devices") or []
    return any(set(old) - set(new) for new, old in zip(body["spec"]["devices"], kept, strict=True))


def dropped_fields(body: Object, written: Object) -> list[str]:
    """Device fields that the server has silently dropped: its feature gates are off."""
    lost = set()
    for sent, kept in zip(body["spec"]["devices"], written["spec"].get("devices") or [], strict=False):
        lost |= set(sent) - set(kept)
    return sorted(lost)


def _within(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and _within(v, whole[key]) for key, v in part.items())
    if isinstance(part, list):
        if not isinstance(whole, list) or len(part) != len(whole):
            return False
        return all(_within(a, b) for a, b in zip(part, whole, strict=True))
    return bool(part == whole)
