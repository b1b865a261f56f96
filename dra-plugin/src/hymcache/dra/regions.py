"""CXLRegions as this node reads them."""

from __future__ import annotations

from hymcache.crds import CXLRegion
from hymcache.crds.region import HostStatus
from hymcache.dra.clients import Api, ApiError, Object
from hymcache.dra.errors import ClaimError, Kind
from pydantic import ValidationError


def parse(raw: Object) -> CXLRegion:
    """The region as a model.

    Raises:
        ClaimError: REFUSED, a field has a value that this release does not know.
    """
    try:
        return CXLRegion.read(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ClaimError(
            Kind.REFUSED,
            f"CXLRegion {raw['metadata']['name']}: {'.'.join(map(str, first['loc']))}: {first['msg']}, found "
            f"{first['input']!r}; upgrade the plugin or correct the object",
        ) from error


def version(raw: Object) -> str:
    """The resourceVersion, to wait for a later one."""
    return str(raw["metadata"].get("resourceVersion", ""))


def fetch(api: Api, name: str) -> Object:
    """The CXLRegion, read now.

    Raises:
        ClaimError: WAITING, there is none; API, it could not be read.
    """
    try:
        raw = api.region(name)
    except ApiError as error:
        raise ClaimError(Kind.API, str(error)) from error
    if raw is None:
        raise ClaimError(
            Kind.WAITING, f"CXLRegion {name} does not exist; if it does not appear, look at the operator's log"
        )
    return raw


def entry_of(region: CXLRegion, node: str) -> HostStatus | None:
    """The node's own entry in `status.hosts`."""
    return next((host for host in region.status.hosts if host.node == node), None) if region.status else None
