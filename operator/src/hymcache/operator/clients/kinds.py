"""The kinds that the operator reads or writes, and where the API server has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hymcache.crds.blade import CXLBlade
from hymcache.crds.fabric import CXLFabric
from hymcache.crds.model import Resource
from hymcache.crds.names import GROUP, VERSION
from hymcache.crds.node import CXLNode
from hymcache.crds.region import CXLRegion

Object = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One kind of object."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", namespace: str | None = None, subresource: str = "") -> str:
        """Path of the collection, of one object, or of a part of it."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = f"/namespaces/{quote(namespace)}" if self.namespaced and namespace else ""
        return (
            f"{root}{where}/{self.plural}"
            + (f"/{quote(name)}" if name else "")
            + (f"/{subresource}" if subresource else "")
        )


def _own(kind: type[Resource]) -> Kind:
    return Kind(GROUP, VERSION, kind.PLURAL, kind.KIND)


FABRIC, BLADE, REGION, CXLNODE = (_own(kind) for kind in (CXLFabric, CXLBlade, CXLRegion, CXLNode))
CLAIM = Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)
SLICE = Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice")
NODE = Kind("", "v1", "nodes", "Node")
POD = Kind("", "v1", "pods", "Pod", namespaced=True)
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
SECRET = Kind("", "v1", "secrets", "Secret", namespaced=True)
EVENT = Kind("events.k8s.io", "v1", "events", "Event", namespaced=True)

WATCHED = (FABRIC, BLADE, REGION, CXLNODE, CLAIM, SLICE, NODE, POD)
"""What the operator keeps in its store, in the order in which it is listed."""
