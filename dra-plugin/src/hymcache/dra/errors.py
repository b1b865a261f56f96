"""Why a claim cannot be prepared or unprepared now. The text of an error becomes an event on the user's pod."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What stands in the way; also the `kind` label of the error counter."""

    FOREIGN = "foreign"
    """The claim is not what the kubelet believes: gone, re-created, or without a device of this driver."""
    REFUSED = "refused"
    """The claim may not use the region. Waiting does not help: someone has to change an object."""
    WAITING = "waiting"
    """The operator or the fabric is not done yet; the kubelet's retry will find it further on."""
    BUSY = "busy"
    """Another call for the same claim is running, or processes still use the region."""
    API = "api"
    """The API server could not be reached or refused a request."""
    FABRIC = "fabric"
    """The cable did not hand the region over, or handed over something else."""
    REGION = "region"
    """The bytes in the region are not those that this claim may use."""
    STOPPED = "stopped"
    """The caller gave up, the claim was unprepared meanwhile, or the plugin is shutting down."""
    INTERNAL = "internal"
    """A defect: the log has the traceback."""


class ClaimError(Exception):
    """A claim could not be prepared or unprepared; the message is one sentence that says what to do."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
