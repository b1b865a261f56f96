"""Requests to the API server as raw dicts: the client library's models would drop fields that they do not know.

Every write to an object that operators share carries the uid and resourceVersion of a live reading, so that a leader
that was deposed meanwhile gets a 409; see `leader.py` for the other half.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urlencode

from hymcache.crds.names import ANNOTATION_GENERATION
from hymcache.operator.clients.kinds import Kind, Object

log = logging.getLogger(__name__)

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
JSON = "application/json"
MANAGER = "hymcache-operator"
PAGE = 500


class ApiError(Exception):
    """The API server refused, or did not answer (`status` 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ConflictError(ApiError):
    """The object changed since it was read, or exists already: read it again and decide anew."""


class DeposedError(Exception):
    """Another operator has taken over: this process must stop."""


class Transport(Protocol):
    """One request: method, path with query, body, content type -> status and document."""

    async def request(self, method: str, path: str, body: Any, content_type: str) -> tuple[int, Object]:
        """Send it. Raises ApiError with status 0 when no answer came."""

    async def close(self) -> None:
        """Close connections."""


def generation_of(body: Object) -> int:
    """Lease generation that an object was last taken over with; 0 when never."""
    text = (body.get("metadata", {}).get("annotations") or {}).get(ANNOTATION_GENERATION, "0")
    return int(text) if str(text).isdigit() else 0


class Api:
    """The operations that the operator needs.

    Args:
        transport: how requests travel.
        generation: this leader's lease generation; 0 before there is one.
        after_write: called with a word about each write that was made, after it; tests of crashes hook in here.
    """

    def __init__(
        self, transport: Transport, *, generation: int = 0, after_write: Callable[[str], None] = lambda _: None
    ) -> None:
        self._transport = transport
        self._after_write = after_write
        self.generation = generation

    async def close(self) -> None:
        """Close connections."""
        await self._transport.close()

    # --- reading -----------------------------------------------------------------------------------------------------
    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        """One object, live; None when it does not exist."""
        try:
            return await self._send("GET", kind.path(name, namespace))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list_all(self, kind: Kind) -> tuple[list[Object], str]:
        """All objects of a kind in all namespaces, and the resourceVersion that they are complete at."""
        items: list[Object] = []
        query = {"limit": str(PAGE)}
        while True:
            page = await self._send("GET", f"{kind.path()}?{urlencode(query)}")
            items += page["items"]
            more = page["metadata"].get("continue")
            if not more:
                return items, str(page["metadata"]["resourceVersion"])
            query["continue"] = more

    # --- writing -----------------------------------------------------------------------------------------------------
    async def create(self, kind: Kind, body: Object) -> Object:
        """POST. Raises ConflictError when the name is taken."""
        return await self._write("POST", kind.path(namespace=body["metadata"].get("namespace")), body, JSON, "create")

    async def replace(self, kind: Kind, body: Object) -> Object:
        """PUT with the resourceVersion in the body."""
        meta = body["metadata"]
        return await self._write("PUT", kind.path(meta["name"], meta.get("namespace")), body, JSON, "replace")

    async def apply(self, kind: Kind, body: Object, live: Object | None, *, subresource: str = "") -> Object:
        """Server-side apply on top of `live`, or of nothing: then the object is made.

        Args:
            kind: of the object.
            body: metadata.name, and all fields that the operator owns in this object or subresource.
            live: what was read; its uid and resourceVersion become preconditions.
            subresource: for example `status`.

        Raises:
            ConflictError: `live` is not what the server has.
            DeposedError: a newer leader has taken the object over.
        """
        body = {"apiVersion": kind.api_version, "kind": kind.name, **body, "metadata": self._owned(body, live)}
        meta = body["metadata"]
        path = kind.path(meta["name"], meta.get("namespace"), subresource)
        query = urlencode({"fieldManager": MANAGER, "force": "true"})
        return await self._write("PATCH", f"{path}?{query}", body, APPLY, f"apply {subresource}".strip())

    async def merge(self, kind: Kind, live: Object, patch: Object, *, subresource: str = "") -> Object:
        """JSON merge patch of `live`, with its uid and resourceVersion as preconditions."""
        self._check(live)
        meta = live["metadata"]
        keep = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **keep}}
        path = kind.path(meta["name"], meta.get("namespace"), subresource)
        return await self._write("PATCH", f"{path}?fieldManager={MANAGER}", body, MERGE, "merge")

    async def json_patch(self, kind: Kind, live: Object, operations: list[Object], *, subresource: str = "") -> Object:
        """JSON patch; put `test` operations first.

        Raises:
            ConflictError: a `test` failed.
        """
        self._check(live)
        meta = live["metadata"]
        path = kind.path(meta["name"], meta.get("namespace"), subresource)
        try:
            return await self._write("PATCH", f"{path}?fieldManager={MANAGER}", operations, JSON_PATCH, "json-patch")
        except ApiError as error:
            if error.status == 422 and "test" in str(error) and "operation" in str(error):
                raise ConflictError(error.status, str(error)) from error
            raise

    async def delete(self, kind: Kind, live: Object) -> None:
        """Delete this very object; one that is gone is fine."""
        self._check(live)
        meta = live["metadata"]
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta["uid"]}}
        try:
            await self._write("DELETE", kind.path(meta["name"], meta.get("namespace")), options, JSON, "delete")
        except ApiError as error:
            if error.status not in {404, 409}:
                raise

    # --- below -------------------------------------------------------------------------------------------------------
    def _check(self, live: Object | None) -> None:
        if live is not None and generation_of(live) > self.generation > 0:
            raise DeposedError(
                f"{live.get('kind', 'object')} {live['metadata']['name']}: expected lease generation "
                f"{self.generation} or lower, found {generation_of(live)}; another operator leads"
            )

    def _owned(self, body: Object, live: Object | None) -> Object:
        self._check(live)
        meta = dict(body["metadata"])
        if live is not None:
            meta |= {"uid": live["metadata"]["uid"], "resourceVersion": live["metadata"]["resourceVersion"]}
        return meta

    async def _write(self, method: str, path: str, body: Any, content_type: str, verb: str) -> Object:
        reply = await self._send(method, path, body, content_type)
        self._after_write(f"{verb} {path.partition('?')[0]}")
        return reply

    async def _send(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Object:
        status, document = await self._transport.request(method, path, body, content_type)
        if status < 300:
            return document
        message = f"{method} {path.partition('?')[0]}: {status} {document.get('message') or json.dumps(document)[:300]}"
        log.debug("%s", message)
        if status == 409:
            raise ConflictError(status, message)
        raise ApiError(status, message)
