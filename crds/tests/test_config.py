"""The opaque parameters of a claim."""

from __future__ import annotations

from typing import Any

import pytest
from hymcache.crds import ConfigError, RegionConfig


def entry(
    parameters: dict[str, Any], *, source: str = "FromClaim", requests: list[str] | None = None
) -> dict[str, Any]:
    head = {"apiVersion": "hymcache.io/v1alpha1", "kind": "RegionConfig"}
    return {
        "source": source,
        "requests": requests or [],
        "opaque": {"driver": "hymcache.io", "parameters": {**head, **parameters}},
    }


def test_no_parameters_mean_the_defaults() -> None:
    config = RegionConfig.of_claim([], "region")
    assert (config.reclaim_policy, config.access, config.domains) == ("Delete", "ReadWrite", None)


def test_a_claim_wins_over_its_class() -> None:
    entries = [entry({"domains": 4}), entry({"domains": 8}, source="FromClass")]
    assert RegionConfig.of_claim(entries, "region").domains == 4


def test_parameters_of_another_request_or_driver_do_not_apply() -> None:
    other = {"opaque": {"driver": "gpu.example.com", "parameters": {"domains": 9}}}
    config = RegionConfig.of_claim([entry({"domains": 4}, requests=["other"]), other], "region")
    assert config.domains is None


def test_a_sub_request_is_named_by_its_base() -> None:
    assert RegionConfig.of_claim([entry({"domains": 4}, requests=["region/fast"])], "region").domains == 4


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"retain": "yes"}, "RegionConfig.retain"),
        ({"reclaimPolicy": "Keep"}, "RegionConfig.reclaimPolicy"),
        ({"domains": 0}, "RegionConfig.domains"),
        ({"chunkBytes": 100}, "RegionConfig.chunkBytes"),
        ({"kind": "Other"}, "RegionConfig.kind"),
        ({"reclaim_policy": "Retain"}, "RegionConfig.reclaim_policy"),
    ],
)
def test_a_mistake_is_named_with_what_was_found(parameters: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        RegionConfig.of_claim([entry(parameters)], "region")
