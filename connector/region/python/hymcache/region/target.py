"""Region targets: a path, a descriptor, or a socket that hands one over (`unix:/path.sock`, `?region=NAME`)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from urllib.parse import parse_qs

from hymcache.region.handover import receive

Target = str | os.PathLike[str] | int
"""Where a region lies."""

SCHEME = "unix:"


@contextlib.contextmanager
def opened(target: Target, timeout: float = 5.0) -> Iterator[Target]:
    """The path or descriptor behind `target`; a descriptor received from a socket is closed on leaving.

    The region opens it again for itself, as a received descriptor shares its locks with the sender.

    Raises:
        HandoverError: the socket refuses or does not answer within `timeout` seconds.
        ValueError: a socket target without a path, or with other parameters than `region`.
    """
    if not isinstance(target, str) or not target.startswith(SCHEME):
        yield target
        return
    path, region = _socket(target)
    descriptor, _ = receive(path, region=region, timeout=timeout)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _socket(target: str) -> tuple[str, str | None]:
    path, _, query = target.removeprefix(SCHEME).partition("?")
    try:
        parameters = parse_qs(query, strict_parsing=True) if query else {}
    except ValueError:
        parameters = {query: []}
    regions = parameters.pop("region", [])
    if not path or parameters or len(regions) > 1:
        raise ValueError(f"target: expected unix:/path.sock or unix:/path.sock?region=NAME, found {target!r}")
    return path, regions[0] if regions else None
