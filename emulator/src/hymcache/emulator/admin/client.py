"""A client of the admin API, for the command line: one request, one JSON answer."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from hymcache.emulator.admin import ROOT

TIMEOUT_SECONDS = 600.0  # a power cycle that restores large regions takes long


class AdminError(Exception):
    """The appliance refused or could not be reached; the text is its own sentence."""


@dataclass(frozen=True)
class Admin:
    """Where an appliance is, and the credentials for it. `ca` is the certificate that signed its own."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: Path | None = None

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request below `/admin/v1`; the answer's JSON, or None where it has none.

        Raises:
            AdminError: refused, or no answer.
        """
        headers = {"Authorization": aiohttp.encode_basic_auth(self.user, self.password or "")} if self.user else {}
        tls = ssl.create_default_context(cafile=self.ca) if self.ca else True
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
                session.request(method, f"{self.url}{ROOT}/{path}", json=body, ssl=tls) as response,
            ):
                raw = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise AdminError(f"{self.url}: expected an appliance, found no answer ({error}); is it running?") from error
        return _result(self.url, response.status, raw)


def _result(url: str, status: int, raw: bytes) -> Any:
    try:
        found = json.loads(raw) if raw else None
    except ValueError:
        raise AdminError(f"{url}: expected JSON, found something else with status {status}") from None
    if status >= 400:
        raise AdminError(found["error"]["message"] if isinstance(found, dict) else f"{url}: status {status}")
    return found
