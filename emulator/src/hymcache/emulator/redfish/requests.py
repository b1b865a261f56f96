"""Bodies that clients send. Properties that the service does not use are let through, as Redfish services do."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeVar

from aiohttp import web
from hymcache.emulator.errors import ApplianceError, Kind
from hymcache.emulator.model import Access
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

Body = TypeVar("Body", bound=BaseModel)


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Exact(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class LinkTo(_Lenient):
    """A reference."""

    path: str = Field(alias="@odata.id")


class ChunkLinks(_Lenient):
    """Where a new chunk is to come from; the blade has one pool, so any of its logical devices will do."""

    logical_devices: list[LinkTo] = Field(default=[], alias="CXLLogicalDevices")


class NewChunk(_Lenient):
    """POST MemoryChunks. `Name` is required here: it is what makes asking twice harmless."""

    name: str = Field(alias="Name")
    size_mib: int = Field(alias="MemoryChunkSizeMiB", ge=1, le=1 << 43)
    address_range_type: Literal["Volatile"] = Field(default="Volatile", alias="AddressRangeType")
    operational_state: Literal["Online"] = Field(default="Online", alias="RequestedOperationalState")
    links: ChunkLinks = Field(default=ChunkLinks(), alias="Links")


class ChunkInfo(_Lenient):
    """What a connection gives access to."""

    capabilities: list[Literal["Read", "Write"]] = Field(default=["Read", "Write"], alias="AccessCapabilities")
    chunk: LinkTo = Field(alias="MemoryChunk")

    @property
    def access(self) -> Access:
        """The capabilities as one word. Raises ApplianceError BAD_VALUE: memory that can only be written."""
        if "Read" not in self.capabilities:
            raise ApplianceError(
                Kind.BAD_VALUE,
                "property AccessCapabilities",
                expected='["Read"] or ["Read", "Write"]',
                found=json.dumps(self.capabilities),
                remedy="add Read",
            )
        return Access.READ_WRITE if "Write" in self.capabilities else Access.READ_ONLY


class ConnectionLinks(_Lenient):
    """Both ends of a new connection; the target may be left out, since the chunk names it."""

    initiators: list[LinkTo] = Field(alias="InitiatorEndpoints", min_length=1)
    targets: list[LinkTo] = Field(default=[], alias="TargetEndpoints")


class NewConnection(_Lenient):
    """POST Connections. Without a `Name` the service chooses one, and asking twice makes two."""

    name: str = Field(default="", alias="Name", max_length=200)
    type: Literal["Memory"] = Field(alias="ConnectionType")
    chunks: list[ChunkInfo] = Field(alias="MemoryChunkInfo", min_length=1, max_length=1)
    links: ConnectionLinks = Field(alias="Links")


class InitiatorLinks(_Exact):
    """The only links of a connection that can be changed."""

    initiators: list[LinkTo] = Field(alias="InitiatorEndpoints")


class ConnectionPatch(_Exact):
    """PATCH of a connection: the whole new set of hosts."""

    links: InitiatorLinks = Field(alias="Links")


class NewSession(_Lenient):
    """POST Sessions."""

    user: str = Field(alias="UserName")
    password: SecretStr = Field(alias="Password")


async def read(request: web.Request, model: type[Body]) -> Body:
    """The request's JSON body as `model`.

    Raises:
        ApplianceError: BAD_VALUE, naming the property; the value itself is not repeated, it may be a secret.
    """
    try:
        value: Any = json.loads(await request.read())
    except ValueError as error:
        raise _bad("request body", "JSON", f"something else ({error})") from None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "request body"
        found = "nothing" if first["type"] == "missing" else f"a {type(first['input']).__name__} that is not"
        raise _bad(f"property {place}", first["msg"].removeprefix("Input should be "), found) from None


def _bad(thing: str, expected: str, found: str) -> ApplianceError:
    return ApplianceError(Kind.BAD_VALUE, thing, expected=expected, found=found, remedy="correct the request")
