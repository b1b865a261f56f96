"""Names that must fit where Kubernetes puts them."""

from __future__ import annotations

from hymcache.crds import names


def test_the_longest_blade_name_makes_a_valid_label_key() -> None:
    key = names.blade_label("b" * names.BLADE_NAME_LENGTH_MAX)
    assert len(key.split("/")[1]) == 63


def test_system_uuids_compare_without_case_and_dashes() -> None:
    machine_id = "86d53a7bd29a3287ba23ef43a27bc6b9"
    assert names.system_uuid_key("86D53A7B-D29A-3287-BA23-EF43A27BC6B9") == machine_id


def test_a_region_on_the_fabric_carries_our_prefix() -> None:
    assert names.fabric_region_name(names.region_name("9f0e")) == "hymcache-r-9f0e"
