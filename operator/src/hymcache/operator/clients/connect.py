"""Credentials, TLS and transport to the API server: the one module that knows the `kubernetes` package."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import kopf
from hymcache.operator.clients.api import ApiError
from hymcache.operator.clients.kinds import Object
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config


class ConnectError(Exception):
    """No usable credentials were found."""


class KubernetesTransport:
    """Requests over the client library's connection pool; the token is read anew as it rotates."""

    def __init__(self, configuration: Configuration, timeout_seconds: float) -> None:
        self._configuration = configuration
        self._client = ApiClient(configuration)
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, connect=min(5.0, timeout_seconds))

    async def request(self, method: str, path: str, body: Any, content_type: str) -> tuple[int, Object]:
        """Send one request. No answer is an `ApiError` of status 0."""
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": "hymcache-operator"}
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        if token:
            headers["Authorization"] = token
        url = f"{self._configuration.host}{path}"
        # Serialised here: the library would turn a JSON patch into a strategic merge patch by its own rules.
        data = json.dumps(body) if body is not None else None
        try:
            session = self._client.rest_client.pool_manager or self._client.rest_client._create_pool_manager()
            self._client.rest_client.pool_manager = session
            async with session.request(method, url, data=data, headers=headers, timeout=self._timeout) as reply:
                raw = await reply.read()
                return reply.status, _document(raw)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ApiError(0, f"{method} {path.partition('?')[0]}: {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Close the connection pool."""
        await self._client.close()


def _document(raw: bytes) -> Object:
    try:
        document = json.loads(raw)
    except ValueError:
        return {"message": raw.decode(errors="replace")[:300]}
    return document if isinstance(document, dict) else {"message": str(document)}


async def configuration(kubeconfig: str | None) -> Configuration:
    """Where the API server is and who we are: the file if one is named, else the pod's service account, else ~/.kube.

    Raises:
        ConnectError: none of them works.
    """
    found = Configuration()
    try:
        if kubeconfig:
            await load_kube_config(config_file=kubeconfig, client_configuration=found)
            return found
        try:
            load_incluster_config(client_configuration=found)
        except ConfigException:
            await load_kube_config(client_configuration=found)
    except ConfigException as error:
        raise ConnectError(
            f"API server: expected a service account or a kubeconfig, found neither ({error}); set --kubeconfig"
        ) from error
    return found


async def kopf_login(found: Configuration) -> kopf.ConnectionInfo:
    """The same credentials for kopf's watches."""
    token = await found.get_api_key_with_prefix("BearerToken")
    scheme, _, secret = (token or "").partition(" ")
    return kopf.ConnectionInfo(
        server=found.host,
        ca_path=found.ssl_ca_cert,
        insecure=not found.verify_ssl,
        scheme=scheme or None,
        token=secret or None,
        certificate_path=found.cert_file,
        private_key_path=found.key_file,
    )
