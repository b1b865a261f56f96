"""Models -> the reference page of the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hymcache.crds.config import RegionConfig
from hymcache.crds.model import Resource
from hymcache.crds.names import API_VERSION
from hymcache.crds.render import KINDS, schema_of, structural


def _limits(schema: dict[str, Any]) -> str:
    parts = [schema.get("format") if schema["type"] == "string" and "format" in schema else schema["type"]]
    if "enum" in schema:
        parts = [" or ".join(f"`{value}`" for value in schema["enum"])]
    if "minimum" in schema or "maximum" in schema:
        parts.append(f"{schema.get('minimum', '')}..{schema.get('maximum', '')}")
    if "maxItems" in schema:
        parts.append(f"at most {schema['maxItems']}")
    if keys := schema.get("x-kubernetes-list-map-keys"):
        parts.append(f"merged by {', '.join(keys)}")
    return ", ".join(str(part) for part in parts)


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        default = "required" if name in required else f"`{json.dumps(field['default'])}`" if "default" in field else ""
        yield where, _limits(field), default, " ".join(field.get("description", "").split())
        yield from _fields(field, where)
        if field["type"] == "array":
            yield from _fields(field["items"], f"{where}[]")


def _table(schema: dict[str, Any], path: str) -> list[str]:
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    rows += [f"| `{where}` | {kind} | {default} | {text} |" for where, kind, default, text in _fields(schema, path)]
    return rows


def _rules(schema: dict[str, Any]) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", []):
        yield rule["message"]
    for child in schema.get("properties", {}).values():
        yield from _rules(child)
        yield from _rules(child.get("items", {}))


def _kind(kind: type[Resource]) -> list[str]:
    schema = schema_of(kind)
    lines = [f"## {kind.KIND}", "", schema["description"], ""]
    lines += [f"Short name `{kind.SHORT}`; cluster-scoped. Columns: {', '.join(c.name for c in kind.COLUMNS)}.", ""]
    for part in ("spec", "status"):
        lines += _table({"properties": {part: schema["properties"][part]}, "required": schema.get("required", [])}, "")
        lines.append("")
    if messages := list(_rules(schema)):
        lines += ["Rules that the API server checks:", "", *(f"- {message}" for message in messages), ""]
    return lines


def page() -> str:
    """The Markdown page of all kinds."""
    lines = ["# Custom resources", "", f"Group and version `{API_VERSION}`. Generated from `crds/`; do not edit.", ""]
    for kind in KINDS:
        lines += _kind(kind)
    document = RegionConfig.model_json_schema(by_alias=True)
    config = structural(document, document.get("$defs", {}), defaults=True)
    lines += ["## RegionConfig", "", " ".join((RegionConfig.__doc__ or "").split()), ""]
    lines += ["Opaque parameters of a claim for driver `hymcache.io`; unknown fields are refused.", ""]
    lines += _table(config, "")
    return "\n".join(lines) + "\n"
