"""The API server, as far as the plugin needs it. `kube.py` is the only module that imports a Kubernetes client."""

from __future__ import annotations

from typing import Any, Protocol

Object = dict[str, Any]
"""A Kubernetes object as JSON types: models would drop fields that they do not know."""


class ApiError(Exception):
    """The API server could not be reached in time, or refused; the message is one sentence."""


class Api(Protocol):
    """Calls may block up to the configured timeout and come from any thread. All raise `ApiError`."""

    def claim(self, namespace: str, name: str) -> Object | None:
        """The ResourceClaim as it is now, None if there is none."""
        ...

    def region(self, name: str) -> Object | None:
        """The CXLRegion as it is now, None if there is none."""
        ...

    def regions(self) -> list[Object]:
        """All CXLRegions."""
        ...

    def region_after(self, name: str, version: str, seconds: float) -> Object | None:
        """The CXLRegion as soon as its resourceVersion is another than `version`, at the latest after `seconds`."""
        ...

    def apply_host(self, region: str, entry: Object) -> None:
        """Make `entry` this node's element of `status.hosts`, whole: a field left out is removed.

        A region that does not exist is no error: nothing is left to report to.
        """
        ...

    def node(self, name: str) -> Object | None:
        """The CXLNode, None if there is none."""
        ...

    def apply_node(self, name: str, status: Object) -> None:
        """Create the CXLNode if it is missing and make `status` its whole status, as far as this node writes it."""
        ...
