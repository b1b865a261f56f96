"""RegionConfig: the opaque parameters of a claim of driver hymcache.io. Not a stored kind, so read strictly here.

config:
  - opaque:
      driver: hymcache.io
      parameters: {apiVersion: hymcache.io/v1alpha1, kind: RegionConfig, reclaimPolicy: Retain}
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, Self

from hymcache.crds.model import Model, ReclaimPolicy, camel
from hymcache.crds.names import DRIVER
from pydantic import ConfigDict, Field, ValidationError


class Access(StrEnum):
    """What the claim's pods may do with the region."""

    READ_WRITE = "ReadWrite"
    READ_ONLY = "ReadOnly"


class ConfigError(ValueError):
    """The claim's parameters cannot be used; the message says which field, what was expected and what was found."""


class RegionConfig(Model):
    """What a claim may say about its region, beside the bytes."""

    model_config = ConfigDict(
        alias_generator=camel, validate_by_name=False, validate_by_alias=True, serialize_by_alias=True, extra="forbid"
    )

    api_version: Literal["hymcache.io/v1alpha1"]
    kind: Literal["RegionConfig"]
    reclaim_policy: ReclaimPolicy = Field(
        default=ReclaimPolicy.DELETE,
        description="`Delete` drops the data with the allocation; `Retain` keeps it while nobody needs the bytes.",
    )
    access: Access = Field(default=Access.READ_WRITE, description="What the claim's pods may do with the region.")
    domains: int | None = Field(
        default=None, ge=1, le=256, description="Hosts that can write, fixed at format; default: the blade's maximum."
    )
    chunk_bytes: int | None = Field(
        default=None,
        ge=64 << 10,
        le=64 << 20,
        multiple_of=64 << 10,
        description="Allocation unit inside the region, in bytes; default: chosen at format.",
    )

    @classmethod
    def of_claim(cls, config: list[dict[str, Any]], request: str) -> Self:
        """The parameters for `request` (base name) out of `status.allocation.devices.config`; defaults when none.

        A claim's own entry wins over one of its device class; among equals the last wins, as in the API's order.

        Raises:
            ConfigError: the parameters are of another kind, or a field is unknown or out of range.
        """
        found: dict[str, Any] | None = None
        for source in ("FromClass", "FromClaim"):
            for entry in config:
                opaque = entry.get("opaque") or {}
                names = [name.split("/")[0] for name in entry.get("requests") or []]
                if entry.get("source", "FromClaim") != source or opaque.get("driver") != DRIVER:
                    continue
                if not names or request in names:
                    found = opaque.get("parameters") or {}
        if found is None:
            found = {"apiVersion": "hymcache.io/v1alpha1", "kind": "RegionConfig"}
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "parameters"
            raise ConfigError(f"RegionConfig.{where}: {first['msg']}, found {first['input']!r}") from error
