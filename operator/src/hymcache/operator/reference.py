"""Settings, metrics, conditions and events -> the reference page of the operator."""

from __future__ import annotations

import dataclasses

from hymcache.operator.metrics import Metrics
from hymcache.operator.settings import Settings

CONDITIONS = {
    "ResourceClaim device": {
        "hymcache.io/RegionComposed": "The region stands on the blade; the scheduler binds the pod. Never set back.",
        "hymcache.io/RegionFailed": "This allocation cannot be served; the scheduler makes another one.",
    },
    "CXLRegion": {
        "Composed": "The bytes are on the fabric, under the epoch of the spec.",
        "Attached": "False: a wanted host could not be connected; the message says which and why.",
        "HostsRefused": "A node wants the region and no domain is left for it.",
        "Retained": "No allocation needs the region, and its data is kept.",
        "Evicted": "Its bytes were needed by another region; the data is dropped.",
        "ReleaseBlocked": "A live host does not let go; the bytes stay where they are, and are not offered.",
        "Problem": "What keeps the region from being served, and what to do.",
    },
    "CXLBlade": {
        "Healthy": "Health by the fabric manager, or why it cannot be read.",
        "Composable": "False: a compose failed; the blade is offered with less, or not at all, until `retryTime`.",
    },
    "CXLFabric": {
        "Reachable": "The whole inventory was read; False: what was tried and what came back.",
        "BladesNamed": "False: a blade has the name of one that belongs to another fabric.",
    },
}
EVENTS = {
    "RegionComposed": "claim: the scheduler may bind its pods",
    "RegionFailed": "claim: the allocation was given up, with the reason",
    "ClaimRefused": "claim: its parameters cannot be used; failed after a pause, or it would come back at once",
    "ClaimUnwritable": "claim: it was made with blanks in its opaque parameters, and nobody can patch its status",
    "RegionReleased": "region: its bytes went back to the blade, the data was dropped",
    "RegionLost": "region: the blade lost its bytes; they are made anew, empty, under another epoch",
    "RetainedDataDropped": "region: its bytes were needed",
    "AttachFailed": "region: a host could not be connected; tried again",
    "HostFenced": "region: a host that did not answer was cut off the fabric",
    "NoCapacity": "blade: it had fewer bytes than its slice said",
    "ComposeFailed": "blade: it could not compose",
    "ForeignSlice": "blade: a slice that is not ours is in its pool and stops its claims",
    "SliceFieldsDropped": "blade: the API server's feature gates are off",
    "FabricUnreachable": "fabric: the inventory could not be read",
    "FabricInUse": "fabric: it is being deleted and still has regions",
}


def page() -> str:
    """The Markdown page."""
    lines = [
        "# Operator",
        "",
        "Generated from `operator/`; do not edit.",
        "",
        "## Settings",
        "",
        "Flags of `hymcache-operator`, `HYMCACHE_OPERATOR_<NAME>` variables, chart values below `operator.settings`.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    for setting in dataclasses.fields(Settings):
        default = setting.default if setting.default != "" else " "
        lines.append(f"| `--{setting.name.replace('_', '-')}` | `{default}` | {setting.metadata['help']} |")
    lines += ["", "## Metrics", "", "At `/metrics`.", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in sorted(Metrics().registry.collect(), key=lambda family: family.name):
        labels = ", ".join(_labels(family.name))
        lines.append(f"| `{family.name}` | {family.type} | {labels} | {family.documentation} |")
    lines += ["", "## Conditions", ""]
    for kind, conditions in CONDITIONS.items():
        lines += [f"### {kind}", "", "| type | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {text} |" for name, text in conditions.items()]
        lines.append("")
    lines += ["## Events", "", "| reason | on, and when |", "|---|---|"]
    lines += [f"| `{reason}` | {text} |" for reason, text in EVENTS.items()]
    return "\n".join(lines) + "\n"


def _labels(name: str) -> list[str]:
    metrics = vars(Metrics())
    found = next((m for m in metrics.values() if getattr(m, "_name", None) == name), None)
    return list(getattr(found, "_labelnames", ()))
