"""The steps that a plan is made of: one effect each, all of them safe to repeat."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hymcache.crds.region import CXLRegionStatus, RegionHost


class Cause(Enum):
    """Why an allocation is given up; decides what the slice has to say first."""

    NO_CAPACITY = "no-capacity"
    """The blade has fewer bytes than its slice says: shrink it."""
    BLADE_SICK = "blade-sick"
    """The blade cannot compose: taint it."""
    UNREACHABLE_HOSTS = "unreachable-hosts"
    """No host that the pods are meant for can be attached: those nodes lose the blade's label."""
    REQUEST = "request"
    """The claim asks for what no blade of the kind can do: nothing changes, and it is failed late."""


@dataclass(frozen=True)
class Done:
    """Nothing to do. `again` seconds until something may be, by time alone."""

    again: float | None = None


@dataclass(frozen=True)
class Wait:
    """Nothing to do until something else happens; look again after `again` seconds."""

    again: float
    why: str


@dataclass(frozen=True)
class Prepare:
    """Write finalizer and the spec fields that the operator fills."""


@dataclass(frozen=True)
class SetHosts:
    """Write `spec.hosts`."""

    hosts: tuple[RegionHost, ...]


@dataclass(frozen=True)
class Compose:
    """Compose on the fabric, then record size, scrub and power epoch."""


@dataclass(frozen=True)
class Evict:
    """Let the oldest retained region go, for its bytes."""

    region: str


@dataclass(frozen=True)
class Attach:
    """Connect hosts on the fabric, then record their identities."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Detach:
    """Disconnect a host on the fabric. `fenced`: without its consent."""

    node: str
    fenced: bool


@dataclass(frozen=True)
class ForgetHost:
    """Remove the status entry of a host that cannot do it itself."""

    node: str


@dataclass(frozen=True)
class MarkComposed:
    """RegionComposed=True on the claim."""


@dataclass(frozen=True)
class Fail:
    """Make the slice true, then RegionFailed=True on the claim."""

    cause: Cause
    message: str


@dataclass(frozen=True)
class Lose:
    """The bytes are gone: raise the epoch, forget attachments, begin anew."""

    message: str


@dataclass(frozen=True)
class Release:
    """Give the bytes back on the fabric."""


@dataclass(frozen=True)
class Finish:
    """Take the finalizer off and delete the object."""

    message: str


@dataclass(frozen=True)
class WriteStatus:
    """Write the operator's part of the status."""

    status: CXLRegionStatus


Step = (
    Done | Wait | Prepare | SetHosts | Compose | Evict | Attach | Detach | ForgetHost | MarkComposed | Fail | Lose
    | Release | Finish | WriteStatus
)  # fmt: skip
