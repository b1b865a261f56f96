"""What can go wrong in an appliance: one exception, a closed set of kinds, one sentence each."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """Kinds of refusal; the Redfish front maps each to a status and a message of the Base registry."""

    NOT_FOUND = "not-found"
    BAD_VALUE = "bad-value"
    EXISTS = "exists"
    IN_USE = "in-use"
    BUSY = "busy"
    HOST_LIMIT = "host-limit"
    NO_CAPACITY = "no-capacity"
    POWER_LOST = "power-lost"


class ApplianceError(Exception):
    """A request that the appliance refuses, or could not finish.

    The text is one sentence: object, what was expected, what was found, what to do. `remedy` is its last part, which
    the Redfish front repeats as the message's Resolution.
    """

    def __init__(self, kind: Kind, thing: str, *, expected: str, found: str, remedy: str) -> None:
        super().__init__(f"{thing}: expected {expected}, found {found}; {remedy}")
        self.kind = kind
        self.thing = thing
        self.remedy = remedy
