"""Values: closed, documented, with a default each; a wrong one is refused before anything is rendered."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from .conftest import CHART, Helm

pytestmark = pytest.mark.controlplane

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


def objects(schema: dict[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    """Every object of the schema with named properties, by its path."""
    found = {path: schema} if "properties" in schema else {}
    for name, inner in schema.get("properties", {}).items():
        found |= objects(inner, f"{path}.{name}".lstrip("."))
    return found


def at(path: str) -> Any:
    value: Any = VALUES
    for name in path.split(".") if path else []:
        value = value[name]
    return value


def test_lint_finds_nothing(helm: Helm) -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", [p for p in objects(SCHEMA) if not p.endswith(("settings", "resources"))])
def test_every_value_has_a_default_and_every_default_a_schema(path: str) -> None:
    assert set(at(path)) | {"global"} == set(objects(SCHEMA)[path]["properties"]) | {"global"}


@pytest.mark.parametrize("path", list(objects(SCHEMA)))
def test_unknown_value_is_refused_by_name(path: str, helm: Helm) -> None:
    done = helm("template", "x", CHART, "--set", f"{path}.typo=1".lstrip("."))
    assert done.returncode != 0
    assert "'typo' not allowed" in done.stderr


@pytest.mark.parametrize(("path", "schema"), objects(SCHEMA).items())
def test_every_value_is_described(path: str, schema: dict[str, Any]) -> None:
    bare = [name for name, inner in schema["properties"].items() if not inner.get("description")]
    assert not bare, f"{path}: {bare}"


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("appliance.capacity=8GB", "appliance/capacity"),
        ("operator.replicas=0", "operator/replicas"),
        ("plugin.cdiDir=relative", "plugin/cdiDir"),
        ("images.pullPolicy=Sometimes", "images/pullPolicy"),
        ("appliance.hosts[0].name=a", "systemUUID"),
        ("uninstall.check=maybe", "uninstall/check"),
    ],
)
def test_wrong_value_is_refused_by_name(value: str, word: str, helm: Helm) -> None:
    done = helm("template", "x", CHART, "--set", value)
    assert done.returncode != 0
    assert word in done.stderr


def test_kubernetes_before_1_34_is_refused(helm: Helm) -> None:
    done = helm("template", "x", CHART, "--kube-version", "1.33.9")
    assert done.returncode != 0
    assert ">=1.34.0-0" in done.stderr
