"""Models -> CustomResourceDefinitions with structural schemas, as `kubectl apply` takes them."""

from __future__ import annotations

from typing import Any

from hymcache.crds.blade import CXLBlade
from hymcache.crds.fabric import CXLFabric
from hymcache.crds.model import Column, Resource
from hymcache.crds.names import GROUP, VERSION
from hymcache.crds.node import CXLNode
from hymcache.crds.region import CXLRegion

KINDS: tuple[type[Resource], ...] = (CXLFabric, CXLBlade, CXLRegion, CXLNode)
"""Every stored kind, in the order in which a reader meets them."""

COPIED = (
    "description", "type", "format", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "maxItems", "minItems",
    "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
)  # fmt: skip


class SchemaError(TypeError):
    """A model uses something that a structural schema cannot say; names the place."""


def _resolve(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The node with its reference followed and its `| None` branch dropped; own keywords win over the target's."""
    own = {k: v for k, v in node.items() if k not in {"$ref", "anyOf", "allOf"}}
    if "$ref" in node:
        target = _resolve(definitions[node["$ref"].rsplit("/", 1)[1]], definitions)
        return {**target, **own}
    branches = [b for b in node.get("anyOf", node.get("allOf", [])) if b.get("type") != "null"]
    if not branches:
        return own
    if len(branches) > 1:
        raise SchemaError(f"{node.get('title')}: a union of {len(branches)} types has no structural schema")
    return {**_resolve(branches[0], definitions), **own}


def structural(node: dict[str, Any], definitions: dict[str, Any], *, defaults: bool) -> dict[str, Any]:
    """A JSON schema from pydantic as a structural schema: references inlined, types plain, integers of 64 bits.

    Args:
        node: the schema node.
        definitions: `$defs` of the document.
        defaults: render `default:`; off below status, where a default would look like something that was written.
    """
    node = _resolve(node, definitions)
    if "const" in node:
        node = {**node, "enum": [node["const"]]}
    schema: dict[str, Any] = {key: node[key] for key in COPIED if key in node}
    match schema.get("type"):
        case "integer":
            schema["format"] = "int64"
            for bound in ("Minimum", "Maximum"):  # exclusive bounds are booleans in this dialect
                if (limit := schema.pop("exclusive" + bound, None)) is not None:
                    schema[bound.lower()] = limit + (1 if bound == "Minimum" else -1)
        case "array":
            schema["items"] = structural(node["items"], definitions, defaults=defaults)
        case "object" if "properties" in node:
            properties = node["properties"].items()
            schema["properties"] = {k: structural(v, definitions, defaults=defaults) for k, v in properties}
            if required := [name for name in node.get("required", []) if name in schema["properties"]]:
                schema["required"] = required
        case "string" | "boolean":
            pass
        case other:
            raise SchemaError(f"{node.get('title')}: type {other} is not used in this API")
    if defaults and node.get("default") not in (None, [], {}):
        schema["default"] = node["default"]
    return schema


def schema_of(kind: type[Resource]) -> dict[str, Any]:
    """`openAPIV3Schema` of a kind."""
    document = kind.model_json_schema(by_alias=True, mode="validation")
    definitions = document.get("$defs", {})
    properties = document["properties"]
    spec = structural(properties["spec"], definitions, defaults=True)
    status = structural(properties["status"], definitions, defaults=False)
    schema: dict[str, Any] = {
        "description": " ".join((kind.__doc__ or "").split()),
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }
    if "spec" in document.get("required", []):
        schema["required"] = ["spec"]
    return schema


def _column(column: Column) -> dict[str, Any]:
    rendered: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.wide:
        rendered["priority"] = 1
    return rendered


def crd(kind: type[Resource]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": kind.KIND,
                "listKind": f"{kind.KIND}List",
                "plural": kind.PLURAL,
                "singular": kind.KIND.lower(),
                "shortNames": [kind.SHORT],
                "categories": ["hymcache"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(c) for c in kind.COLUMNS],
                    "schema": {"openAPIV3Schema": schema_of(kind)},
                }
            ],
        },
    }
