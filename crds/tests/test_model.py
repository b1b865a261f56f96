"""Reading and writing objects as models."""

from __future__ import annotations

from typing import Any

import pytest
from hymcache.crds import CXLFabric, CXLRegion
from hymcache.crds.model import camel
from pydantic import ValidationError

REGION: dict[str, Any] = {
    "apiVersion": "hymcache.io/v1alpha1",
    "kind": "CXLRegion",
    "metadata": {"name": "r-1", "uid": "u", "resourceVersion": "7", "annotations": {"a": "b"}},
    "spec": {
        "blade": "b1",
        "bytes": 4 << 30,
        "shareID": "s",
        "hosts": [{"node": "n1", "systemUUID": "U", "domain": 0, "init": True, "wanted": True}],
    },
    "status": {"phase": "Ready", "hosts": [{"node": "n1", "state": "Ready", "bootID": "x", "fromTheFuture": 1}]},
}


@pytest.mark.parametrize(
    ("python", "kubernetes"),
    [
        ("share_id", "shareID"),
        ("system_uuid", "systemUUID"),
        ("uuid", "uuid"),
        ("used_bytes", "usedBytes"),
        ("boot_id", "bootID"),
    ],
)
def test_fields_have_kubernetes_spelling(python: str, kubernetes: str) -> None:
    assert camel(python) == kubernetes


def test_a_region_reads_with_fields_of_a_newer_release() -> None:
    region = CXLRegion.read(REGION)
    assert region.spec.share_id == "s"
    assert region.spec.hosts[0].system_uuid == "U"
    assert region.status is not None
    assert region.status.hosts[0].boot_id == "x"


def test_what_is_written_has_only_what_was_set() -> None:
    spec = CXLRegion.read(REGION).spec.dump()
    assert spec["hosts"] == REGION["spec"]["hosts"]
    assert "uuid" not in spec


def test_an_impossible_value_is_refused() -> None:
    with pytest.raises(ValidationError):
        CXLRegion.read({**REGION, "spec": {"blade": "B_1", "bytes": 5}})


def test_a_fabric_is_careful_by_default() -> None:
    fabric = CXLFabric.read({"metadata": {"name": "f"}, "spec": {"endpoint": "https://f"}})
    assert fabric.spec.coherence == "software"
    assert fabric.spec.scrub == "Host"
    assert fabric.spec.tls.insecure_skip_verify is False
