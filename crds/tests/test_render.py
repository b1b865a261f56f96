"""CRDs: what the API server would refuse or silently not do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hymcache.crds.model import Resource
from hymcache.crds.render import KINDS, SchemaError, crd, schema_of, structural

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.PLURAL)


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


@each_kind
def test_every_node_has_a_type_and_no_reference_is_left(kind: type[Resource]) -> None:
    for path, node in nodes(schema_of(kind)):
        assert "type" in node, path
        assert not {"$ref", "anyOf", "allOf", "title", "const", "additionalProperties"} & set(node), path


@each_kind
def test_keys_of_merged_lists_are_required_strings(kind: type[Resource]) -> None:
    merged = [(p, n) for p, n in nodes(schema_of(kind)) if n.get("x-kubernetes-list-type") == "map"]
    for path, node in merged:
        for key in node["x-kubernetes-list-map-keys"]:
            assert node["items"]["properties"][key]["type"] == "string", path
            assert key in node["items"]["required"], path


@each_kind
def test_lists_are_bounded_so_that_rules_have_a_cost(kind: type[Resource]) -> None:
    assert [p for p, n in nodes(schema_of(kind)) if n["type"] == "array" and "maxItems" not in n] == []


@each_kind
def test_status_has_no_defaults_that_look_like_a_writer(kind: type[Resource]) -> None:
    status = schema_of(kind)["properties"]["status"]
    assert [p for p, n in nodes(status) if "default" in n] == []


@each_kind
def test_columns_point_at_fields_that_exist(kind: type[Resource]) -> None:
    paths = {path for path, _ in nodes(schema_of(kind))} | {".metadata.creationTimestamp"}
    version = crd(kind)["spec"]["versions"][0]
    assert [c["jsonPath"] for c in version["additionalPrinterColumns"] if c["jsonPath"] not in paths] == []


def test_regions_show_what_an_administrator_asks_first() -> None:
    region = next(kind for kind in KINDS if kind.KIND == "CXLRegion")
    shown = [c.name for c in region.COLUMNS if not c.wide]
    assert shown == ["Phase", "Size", "Used", "Blade", "Media", "Claim", "Hosts", "Hit rate", "Age"]


def test_integers_are_64_bits_and_exclusive_bounds_are_folded() -> None:
    schema = structural({"type": "integer", "minimum": 0, "exclusiveMaximum": 256}, {}, defaults=True)
    assert schema == {"type": "integer", "format": "int64", "minimum": 0, "maximum": 255}


def test_a_union_of_two_types_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="size: a union of 2 types"):
        structural({"title": "size", "anyOf": [{"type": "integer"}, {"type": "string"}]}, {}, defaults=True)
