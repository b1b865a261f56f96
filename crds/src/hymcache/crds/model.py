"""What all kinds share: naming of fields, conditions, and the facts of a kind that its CRD needs."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from hymcache.crds.names import API_VERSION
from pydantic import BaseModel, ConfigDict, Field

ACRONYMS = {"id": "ID", "uuid": "UUID"}


def camel(name: str) -> str:
    """Kubernetes spelling of a field name: `share_id` is `shareID`, `used_bytes` is `usedBytes`."""
    head, *rest = name.split("_")
    return head + "".join(ACRONYMS.get(word, word.capitalize()) for word in rest)


def rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    """CEL validation rules (rule, message) of a schema node."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]}


def fixed_once_set(*fields: str) -> tuple[tuple[str, str], ...]:
    """CEL rules: a field may be set once and neither change nor go after that."""
    return tuple(
        (f"!has(oldSelf.{f}) || (has(self.{f}) && self.{f} == oldSelf.{f})", f"{f} cannot change once it is set")
        for f in fields
    )


def list_map(*keys: str) -> dict[str, Any]:
    """Schema of a list whose entries are merged by `keys`, so that several writers own an entry each."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


NodeName = Annotated[str, Field(min_length=1, max_length=253)]
SystemUUID = Annotated[str, Field(min_length=1, max_length=64, description="SMBIOS system UUID of the host.")]
BladeName = Annotated[str, Field(min_length=1, max_length=57, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Message = Annotated[str, Field(max_length=1024)]


class Model(BaseModel):
    """A part of an object. Unknown fields are ignored on reading: a newer release may have written them."""

    model_config = ConfigDict(
        alias_generator=camel, validate_by_name=True, validate_by_alias=True, serialize_by_alias=True, extra="ignore"
    )

    def dump(self) -> dict[str, Any]:
        """The object as JSON types, unset fields left out."""
        return self.model_dump(mode="json", exclude_none=True)


class Condition(Model):
    """A condition, as everywhere in Kubernetes."""

    type: str = Field(max_length=316, description="CamelCase name of what is true or false.")
    status: Literal["True", "False", "Unknown"]
    reason: str = Field(max_length=128, description="CamelCase word for programs.")
    message: str = Field(default="", max_length=1024, description="One sentence: what was found and what to do.")
    last_transition_time: datetime = Field(description="When `status` last changed.")
    observed_generation: int | None = Field(default=None, ge=0)


Conditions = Annotated[
    list[Condition],
    Field(default_factory=list, max_length=16, json_schema_extra=list_map("type"), description="What holds now."),
]


class Media(StrEnum):
    """What the memory of a blade is made of."""

    DRAM = "dram"
    HYBRID = "hybrid"


class Coherence(StrEnum):
    """Whether loads, stores and atomics are coherent between hosts (`hardware`) or only inside one (`software`)."""

    SOFTWARE = "software"
    HARDWARE = "hardware"


class ReclaimPolicy(StrEnum):
    """What happens to a region's bytes when no allocation needs it any more."""

    DELETE = "Delete"
    RETAIN = "Retain"


class Column(NamedTuple):
    """A column of `kubectl get`; `wide` ones show with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


class Metadata(Model):
    """The part of an object's metadata that is read here."""

    model_config = ConfigDict(extra="allow")
    name: str
    uid: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Resource(Model):
    """A kind of group hymcache.io: cluster-scoped, with spec and status."""

    KIND: ClassVar[str]
    PLURAL: ClassVar[str]
    SHORT: ClassVar[str]
    COLUMNS: ClassVar[tuple[Column, ...]]

    api_version: str = API_VERSION
    kind: str = ""
    metadata: Metadata

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Self:
        """The object as a model.

        Raises:
            pydantic.ValidationError: a field that is known here has an impossible value.
        """
        return cls.model_validate(raw)
