"""The API server through the official client: raw dicts in, server-side apply out.

Every object goes through the custom-objects calls, built-in ones too, because they hand JSON through unchanged; the
typed models drop fields that they do not know.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from hymcache.crds import CXLNode, CXLRegion, names
from hymcache.dra.clients import ApiError, Object
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from prometheus_client import Counter
from urllib3.exceptions import HTTPError

APPLY: Final = "application/apply-patch+yaml"
MANAGER_LENGTH_MAX: Final = 128
NOT_FOUND: Final = 404
GROUP: Final = (names.GROUP, names.VERSION)

Kind = type[CXLRegion | CXLNode]


def field_manager(node: str) -> str:
    """Who owns this node's fields; one manager per node.

    A manager's apply removes what it had applied before and omits now: a shared one would delete the other nodes'
    entries.
    """
    name = f"hymcache-plugin-{node}"
    if len(name) > MANAGER_LENGTH_MAX:
        name = f"hymcache-plugin-{hashlib.sha256(node.encode()).hexdigest()}"
    return name


class Kube:
    """`Api` over HTTP. One connection pool, safe from any thread; tokens are re-read as they rotate."""

    def __init__(self, node: str, *, kubeconfig: Path | None, timeout_seconds: float, errors: Counter) -> None:
        settings = client.Configuration()
        try:
            if kubeconfig is None:
                config.load_incluster_config(client_configuration=settings)
            else:
                config.load_kube_config(config_file=str(kubeconfig), client_configuration=settings)
        except ConfigException as error:
            raise ApiError(f"no way to the API server ({error}): run in a pod, or set the kubeconfig") from error
        settings.retries = False  # callers have deadlines of their own, and come again
        self._objects = client.CustomObjectsApi(client.ApiClient(settings))
        self._timeout = (timeout_seconds, timeout_seconds)
        self._manager = field_manager(node)
        self._counter = errors

    def claim(self, namespace: str, name: str) -> Object | None:
        """See `Api`."""
        with self._errors("get", f"claim {namespace}/{name}"):
            return _or_none(
                lambda: self._objects.get_namespaced_custom_object(
                    "resource.k8s.io", "v1", namespace, "resourceclaims", name, _request_timeout=self._timeout
                )
            )

    def region(self, name: str) -> Object | None:
        """See `Api`."""
        return self._get(CXLRegion, name)

    def node(self, name: str) -> Object | None:
        """See `Api`."""
        return self._get(CXLNode, name)

    def regions(self) -> list[Object]:
        """See `Api`."""
        with self._errors("list", "CXLRegions"):
            found: Any = self._objects.list_cluster_custom_object(
                *GROUP, CXLRegion.PLURAL, _request_timeout=self._timeout
            )
            return list(found["items"])

    def region_after(self, name: str, version: str, seconds: float) -> Object | None:
        """See `Api`. A watch that ends early for whatever reason is followed by a read, so nothing is missed."""
        with self._errors("watch", f"CXLRegion {name}"), contextlib.suppress(ApiException):
            events = watch.Watch().stream(
                self._objects.list_cluster_custom_object,
                *GROUP,
                CXLRegion.PLURAL,
                field_selector=f"metadata.name={name}",
                resource_version=version,
                timeout_seconds=max(1, round(seconds)),
                _request_timeout=(self._timeout[0], seconds + 1),
            )
            with contextlib.closing(events):
                for event in events:
                    if event.get("type") in {"ADDED", "MODIFIED"}:
                        return dict(event["raw_object"])
                    break  # deleted, or the version is too old to watch from
        return self.region(name)

    def apply_host(self, region: str, entry: Object) -> None:
        """See `Api`."""
        body = _object(CXLRegion, region, status={"hosts": [entry]})
        with self._errors("apply", f"the host entry of CXLRegion {region}"):
            self._apply(CXLRegion, region, body, status=True)

    def apply_node(self, name: str, status: Object) -> None:
        """See `Api`."""
        body = _object(CXLNode, name, status=status)
        with self._errors("apply", f"CXLNode {name}"):
            if not self._apply(CXLNode, name, body, status=True):
                self._apply(CXLNode, name, _object(CXLNode, name), status=False)
                self._apply(CXLNode, name, body, status=True)

    def _get(self, kind: Kind, name: str) -> Object | None:
        with self._errors("get", f"{kind.KIND} {name}"):
            return _or_none(
                lambda: self._objects.get_cluster_custom_object(
                    *GROUP, kind.PLURAL, name, _request_timeout=self._timeout
                )
            )

    def _apply(self, kind: Kind, name: str, body: Object, *, status: bool) -> bool:
        """Server-side apply; False if the object does not exist. What comes back is not used: for 201 it is None."""
        call = self._objects.patch_cluster_custom_object_status if status else self._objects.patch_cluster_custom_object
        try:
            call(
                *GROUP,
                kind.PLURAL,
                name,
                body,
                field_manager=self._manager,
                force=True,  # ours by policy, whoever wrote it under another manager's name
                _content_type=APPLY,
                _request_timeout=self._timeout,
            )
        except ApiException as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return True

    @contextlib.contextmanager
    def _errors(self, verb: str, what: str) -> Iterator[None]:
        try:
            yield
        except ApiException as error:
            self._counter.labels(verb).inc()
            raise ApiError(f"{verb} of {what} was refused: {_reason(error)}") from error
        except (HTTPError, OSError) as error:
            self._counter.labels(verb).inc()
            raise ApiError(f"{verb} of {what}: the API server did not answer ({type(error).__name__})") from error


def _object(kind: Kind, name: str, **rest: Object) -> Object:
    return {"apiVersion": names.API_VERSION, "kind": kind.KIND, "metadata": {"name": name}, **rest}


def _or_none(call: Callable[[], Any]) -> Object | None:
    try:
        return dict(call())
    except ApiException as error:
        if error.status == NOT_FOUND:
            return None
        raise


def _reason(error: ApiException) -> str:
    """The server's own sentence, without headers and status object."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {error.status} {error.reason}"
