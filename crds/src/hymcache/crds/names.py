"""Names that other programs read: the API group, the DRA driver, labels, annotations, attributes, condition types.

A name here is a contract with users, with the scheduler and with older releases: add, never rename.
"""

from __future__ import annotations

GROUP = "hymcache.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
DRIVER = "hymcache.io"
"""DRA driver name: `spec.driver` of the slices, `driver` of allocation results, and what the plugins register as."""

# Device classes, one per `mode` of a device.
CLASS_SHARED = "hymcache-shared"
CLASS_EXCLUSIVE = "hymcache-exclusive"
CLASS_REGION = "hymcache-region"
CLASS_PREFIX = "hymcache-"
"""Claims of a class with this prefix fall under the claim policy."""

# Device attributes (C identifiers, in the driver's domain) and capacities.
ATTRIBUTE_MODE = "mode"
ATTRIBUTE_MEDIA = "media"
ATTRIBUTE_BLADE = "blade"
ATTRIBUTE_COHERENCE = "coherence"
ATTRIBUTE_REGION_NAME = "regionName"
CAPACITY_MEMORY = "memory"
CAPACITY_REGIONS = "regions"

# Conditions of an allocated device in `ResourceClaim.status.devices`.
CONDITION_COMPOSED = f"{GROUP}/RegionComposed"
"""Binding condition: the region stands on the blade; never set back once True."""
CONDITION_FAILED = f"{GROUP}/RegionFailed"
"""Binding failure condition: the scheduler gives the allocation up and allocates anew."""

# Taint of a device whose blade cannot compose.
TAINT_BLADE = f"{GROUP}/blade-unhealthy"

# Labels and annotations.
LABEL_BLADE_PREFIX = f"{GROUP}/blade-"
LABEL_CABLED = "cabled"
LABEL_BLADE = f"{GROUP}/blade"
"""On a CXLRegion: its blade, for `kubectl get cxlregions -l`."""
LABEL_CLAIM_UID = f"{GROUP}/claim-uid"
ANNOTATION_GENERATION = f"{GROUP}/lease-generation"
"""Generation of the leader that last took the object over; a leader with a lower one must stop."""
ANNOTATION_TOUCHED = f"{GROUP}/touched"
"""On a ResourceSlice: changed to make the scheduler retry pods that wait for the blade's bytes."""

FINALIZER_FABRIC = f"{GROUP}/fabric"
"""On a CXLFabric: regions on its blades are not released yet."""
FINALIZER_REGION = f"{GROUP}/region"
"""On a CXLRegion: its memory on the fabric is not released yet."""

REGION_PREFIX = "r-"
FABRIC_PREFIX_DEFAULT = "hymcache-"
BLADE_NAME_LENGTH_MAX = 57
"""`blade-<name>` is the name part of a label key: 63 characters at most."""


def blade_label(blade: str) -> str:
    """Key of the node label that says "this node is cabled to `blade` and its plugin is alive"."""
    return LABEL_BLADE_PREFIX + blade


def slice_name(blade: str) -> str:
    """Name of the one ResourceSlice of a blade's pool."""
    return f"hymcache-{blade}"


def region_name(share_id: str) -> str:
    """Name of the CXLRegion that an allocation's `shareID` stands for."""
    return REGION_PREFIX + share_id


def fabric_region_name(region: str, prefix: str = FABRIC_PREFIX_DEFAULT) -> str:
    """Name of a region on the fabric: the idempotency key of compose, and the mark of what is ours."""
    return prefix + region


def system_uuid_key(system_uuid: str) -> str:
    """A system UUID in the form that is compared: Node status, SMBIOS and Redfish differ in case and in dashes."""
    return system_uuid.replace("-", "").lower()
