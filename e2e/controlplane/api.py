"""The API server as tests see it: plain dicts in and out, every kind alike, refusals as `ApiException`."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient

__all__ = ["Api", "ApiException", "Kind"]

Object = dict[str, Any]
Objects = list[Object]
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
YAML = "application/yaml"  # of which JSON is a part; the client sends it as it is
RAW = {"serialize": False}  # the reply as it came, not the client's wrapper


class Kind(NamedTuple):
    """A kind of object: apiVersion and kind, as a manifest names them."""

    api_version: str
    name: str


NAMESPACE = Kind("v1", "Namespace")
NODE = Kind("v1", "Node")
POD = Kind("v1", "Pod")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount")
EVENT = Kind("events.k8s.io/v1", "Event")
LEASE = Kind("coordination.k8s.io/v1", "Lease")
CLAIM = Kind("resource.k8s.io/v1", "ResourceClaim")
CLASS = Kind("resource.k8s.io/v1", "DeviceClass")
SLICE = Kind("resource.k8s.io/v1", "ResourceSlice")
CRD = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")


def kind_of(body: Object) -> Kind:
    """The kind that a manifest says it is."""
    return Kind(body["apiVersion"], body["kind"])


def documents(source: Path | str | Iterable[Object]) -> Iterator[Object]:
    """Objects of a YAML file, of a folder's `*.yaml` by name, of a YAML text, or of an iterable; Lists are opened."""
    if isinstance(source, Path):
        texts = [p.read_text() for p in (sorted(source.glob("*.yaml")) if source.is_dir() else [source])]
        found: Iterable[Any] = (body for text in texts for body in yaml.safe_load_all(text))
    else:
        found = yaml.safe_load_all(source) if isinstance(source, str) else source
    for body in found:
        if body and body.get("kind") == "List":
            yield from body["items"]
        elif body:
            yield body


class Api:
    """One identity's view of the API server: `plane.api` is the admin's, `plane.api_as(token)` anybody else's.

    Every method takes and returns raw dicts, so no field is dropped on the way. A refusal raises `ApiException`: its
    `status` is the HTTP code, its `body` the server's Status object.
    """

    def __init__(self, settings: client.Configuration, discovery_cache: Path) -> None:
        self._client = client.ApiClient(settings)
        self._discovery_cache = discovery_cache

    @classmethod
    def with_token(cls, server: str, ca: Path, token: str, discovery_cache: Path) -> Self:
        """The view of the owner of a bearer token."""
        settings = client.Configuration(host=server)
        settings.ssl_ca_cert = str(ca)
        settings.api_key = {"authorization": token}
        settings.api_key_prefix = {"authorization": "Bearer"}
        return cls(settings, discovery_cache)

    @classmethod
    def from_kubeconfig(cls, path: Path, discovery_cache: Path) -> Self:
        """The view of a kubeconfig's current context."""
        settings = client.Configuration()
        config.load_kube_config(str(path), client_configuration=settings)
        return cls(settings, discovery_cache)

    def close(self) -> None:
        """Close its connections."""
        self._client.rest_client.pool_manager.clear()

    @functools.cached_property
    def _dynamic(self) -> DynamicClient:
        """Made at the first use, since it reads what the server serves: a server that starts does not serve all yet."""
        return DynamicClient(self._client, cache_file=str(self._discovery_cache))

    def _resource(self, kind: Kind, subresource: str = "") -> Any:
        resource = self._dynamic.resources.get(api_version=kind.api_version, kind=kind.name)
        return resource.subresources[subresource] if subresource else resource

    def create(self, body: Object, *, dry_run: bool = False) -> Object:
        """POST an object, as kubectl does: without a blank between JSON tokens.

        The client's own JSON has blanks. The API server keeps opaque parameters byte by byte, compares them so, and
        takes a claim that was made with blanks for changed at every later patch of its status (Kubernetes 1.37).
        """
        where = {"namespace": body["metadata"].get("namespace")}
        text = json.dumps(body, separators=(",", ":"))
        reply = self._resource(kind_of(body)).create(body=text, content_type=YAML, **where, **RAW, **_dry(dry_run))
        return _dict(reply)

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """One object."""
        return _dict(self._resource(kind).get(name=name, namespace=namespace, **RAW))

    def find(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        """One object, or None when it does not exist."""
        try:
            return self.get(kind, name, namespace)
        except ApiException as error:
            if error.status != 404:
                raise
            return None

    def list(self, kind: Kind, namespace: str | None = None, *, labels: str | None = None) -> Objects:
        """All objects of a kind, of one namespace or of all."""
        found = _dict(self._resource(kind).get(namespace=namespace, label_selector=labels, **RAW))
        return [{"apiVersion": kind.api_version, "kind": kind.name, **item} for item in found["items"]]

    def apply(
        self, body: Object, *, manager: str = "e2e", force: bool = True, subresource: str = "", dry_run: bool = False
    ) -> Object:
        """Server-side apply, of the object or of a subresource such as `status`."""
        options = {"field_manager": manager, "force_conflicts": "true" if force else "false", **_dry(dry_run)}
        return self._patch(kind_of(body), body["metadata"], body, APPLY, subresource, **options)

    def merge(
        self, kind: Kind, name: str, patch: Object, namespace: str | None = None, *, subresource: str = ""
    ) -> Object:
        """JSON merge patch."""
        return self._patch(kind, {"name": name, "namespace": namespace}, patch, MERGE, subresource)

    def patch(
        self, kind: Kind, name: str, operations: Objects, namespace: str | None = None, *, subresource: str = ""
    ) -> Object:
        """JSON patch: a list of operations."""
        return self._patch(kind, {"name": name, "namespace": namespace}, operations, JSON, subresource)

    def _patch(
        self, kind: Kind, meta: Object, body: Any, content_type: str, subresource: str, **options: str
    ) -> Object:
        resource = self._resource(kind, subresource)
        call = {"name": meta["name"], "namespace": meta.get("namespace"), "content_type": content_type}
        return _dict(resource.patch(body=body, **call, **options, **RAW))

    def replace(self, body: Object, *, subresource: str = "") -> Object:
        """PUT an object."""
        return _dict(self._resource(kind_of(body), subresource).replace(body=body, **_named(body["metadata"]), **RAW))

    def delete(self, kind: Kind, name: str, namespace: str | None = None, *, grace_seconds: int | None = None) -> None:
        """Delete one object; one that is gone already is fine."""
        try:
            _dict(
                self._resource(kind).delete(name=name, namespace=namespace, grace_period_seconds=grace_seconds, **RAW)
            )
        except ApiException as error:
            if error.status != 404:
                raise

    def mint_token(
        self, namespace: str, service_account: str, bound_to: Object | None = None, seconds: int = 3600
    ) -> str:
        """A service-account token by TokenRequest; bound to a pod, it names that pod's node."""
        spec: Object = {"expirationSeconds": seconds}
        if bound_to:
            meta = bound_to["metadata"]
            kind = kind_of(bound_to)
            spec["boundObjectRef"] = {"apiVersion": kind.api_version, "kind": kind.name}
            spec["boundObjectRef"] |= {"name": meta["name"], "uid": meta["uid"]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = self._resource(SERVICE_ACCOUNT, "token").create(
            body=body, name=service_account, namespace=namespace, **RAW
        )
        return str(_dict(made)["status"]["token"])

    def raw(self, path: str) -> str:
        """Body of a GET of any path, for example `/readyz` or `/metrics`."""
        request = self._client.param_serialize("GET", path, auth_settings=["BearerToken"])
        reply = self._client.call_api(*request).response
        text = str(reply.data.decode())
        if reply.status >= 400:
            raise ApiException(status=reply.status, reason=text)
        return text


def _dict(reply: Any) -> Object:
    found: Object = json.loads(reply.data)
    return found


def _named(meta: Object) -> Object:
    return {"name": meta["name"], "namespace": meta.get("namespace")}


def _dry(dry_run: bool) -> Object:
    return {"dry_run": "All"} if dry_run else {}
