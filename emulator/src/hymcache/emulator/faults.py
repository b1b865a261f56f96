"""Faults that an appliance is told to have: which requests they meet, and how often. What they do is in `http.inject`.

Deterministic: a rule counts, and where it is to be irregular it draws from a generator with its own seed.
"""

from __future__ import annotations

import random
import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


class Fault(StrEnum):
    """What can be wrong with an answer. "Done" means that the blade did what was asked."""

    LOST_REPLY = "lost-reply"
    """Done, then the connection is reset: the client cannot know."""
    DONE_500 = "500-but-done"
    """Done, answered 500."""
    ERROR_500 = "500"
    """Not done, answered 500."""
    BUSY = "503"
    """Not done, answered 503 with a time to retry after."""
    MISSING = "404"
    """Not done, answered 404."""
    DUPLICATE = "duplicate"
    """A POST makes two objects of one name: a service without idempotency."""
    SLOW = "slow"
    """Waits `seconds` before anything else; may be combined with another fault."""
    REFUSE = "refuse"
    """Not done, answered 507: no memory."""
    LIE_CAPACITY = "lie-capacity"
    """The memory domain reports `bytes` more than there is (default: as much again)."""
    MANGLED_LINKS = "mangled-links"
    """Links lose what is between the root and their last name, as some aggregators do."""
    ASYNC_TASK = "async-task"
    """Answered 202 with a task; done in the background."""
    IGNORED = "ignored"
    """Not done, answered 204 as if it were."""
    GARBLED = "garbled"
    """Done, answered with a body that breaks off in the middle."""
    RESET = "reset"
    """Not done, the connection is reset."""


def _regular_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return text


class Rule(BaseModel):
    """One fault and the requests that it meets, in the order of the list; the first that fits counts."""

    model_config = ConfigDict(extra="forbid")

    method: str = Field(default="*", pattern=r"^(\*|[A-Z]+)$", description="HTTP method in capitals, * for all")
    path: Annotated[str, AfterValidator(_regular_expression)] = Field(
        default="", description="regular expression, found anywhere in the path"
    )
    fault: Fault
    times: int | None = Field(default=1, ge=1, description="requests that it meets; null: all")
    skip: int = Field(default=0, ge=0, description="requests that fit and are let through first")
    seconds: float = Field(default=0.0, ge=0, le=3600, description="wait of `slow`")
    bytes: int | None = Field(default=None, ge=0, description="lie of `lie-capacity`")
    probability: float = Field(default=1.0, gt=0, le=1, description="chance of each request that fits")
    seed: int = Field(default=0, description="seed of `probability`")

    @model_validator(mode="after")
    def _slow_needs_seconds(self) -> Self:
        if self.fault is Fault.SLOW and not self.seconds:
            raise ValueError("seconds above 0 for the fault slow")
        return self

    def fits(self, method: str, path: str) -> bool:
        """Whether a request is one of those that this rule is about."""
        return self.method in ("*", method) and re.search(self.path, path) is not None


class Active:
    """A rule and what it has seen."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.fitted = 0
        self.met = 0
        self._random = random.Random(rule.seed)

    def meets(self, method: str, path: str) -> bool:
        """Whether this request gets the fault; counts it."""
        rule = self.rule
        if not rule.fits(method, path) or (rule.times is not None and self.met >= rule.times):
            return False
        self.fitted += 1
        if self.fitted <= rule.skip or self._random.random() >= rule.probability:
            return False
        self.met += 1
        return True


class Faults:
    """The rules in force."""

    def __init__(self) -> None:
        self._active: list[Active] = []

    @property
    def active(self) -> list[Active]:
        """The rules, in their order."""
        return list(self._active)

    def set(self, rules: list[Rule]) -> None:
        """Put these rules in place of all others; counts start anew."""
        self._active = [Active(rule) for rule in rules]

    def take(self, method: str, path: str) -> list[Rule]:
        """The faults that one request gets: any number of `slow` ones, and after them at most one other."""
        taken: list[Rule] = []
        for active in self._active:
            if active.meets(method, path):
                taken.append(active.rule)
                if active.rule.fault is not Fault.SLOW:
                    break
        return taken
