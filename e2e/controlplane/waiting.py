"""Waits with a deadline that say what they waited for, and what they saw last."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

T = TypeVar("T")
SECONDS = 60.0
"""How long a wait goes on for what has to come: no bar, but more than a busy machine needs."""

NOT_YET = (ApiException, HTTPError, OSError, LookupError)


class WaitTimeoutError(AssertionError):
    """The awaited thing did not come in time."""


def wait(what: str, probe: Callable[[], T | None], *, seconds: float = SECONDS, pause: float = 0.05) -> T:
    """Call `probe` until it returns something true, at most `seconds`; return that.

    A refusal, a lost connection or a missing field that `probe` meets counts as "not yet"; the last one is named when
    time is over. Any other exception ends the wait.

    Raises:
        WaitTimeoutError: it never became true.
    """
    deadline = time.monotonic() + seconds
    seen: object = None
    while True:
        try:
            found = probe()
        except NOT_YET as error:
            seen = error
        else:
            if found:
                return found
            seen = found
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"waited {seconds:g} s for {what}; last seen: {seen!r}")
        time.sleep(pause)


def first_times(probes: dict[str, Callable[[], object]], *, seconds: float) -> dict[str, float]:
    """Wait until each probe was true once; after how many seconds each was so for the first time.

    Raises:
        WaitTimeoutError: one never became true.
    """
    begun = time.monotonic()
    found: dict[str, float] = {}

    def look() -> bool:
        for what, probe in probes.items():
            with contextlib.suppress(*NOT_YET):
                if what not in found and probe():
                    found[what] = time.monotonic() - begun
        return len(found) == len(probes)

    try:
        wait(", ".join(probes), look, seconds=seconds)
    except WaitTimeoutError as error:
        raise WaitTimeoutError(f"{error}; seen so far: {found}") from error
    return found


def holds(what: str, probe: Callable[[], bool], *, seconds: float, pause: float = 0.1) -> None:
    """Check that `probe` stays true for `seconds`.

    Raises:
        AssertionError: it became false.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert probe(), f"{what} stopped being true before {seconds:g} s had passed"
        time.sleep(pause)
