"""What an uninstall says when it is refused."""

from __future__ import annotations

from hymcache.operator.lifecycle import DRIVER, describe_claim


def test_a_claim_is_named_with_its_pods_in_order() -> None:
    body = {
        "metadata": {"namespace": "default", "name": "region"},
        "status": {
            "allocation": {"devices": {"results": [{"driver": DRIVER}]}},
            "reservedFor": [{"name": "region-1"}, {"name": "region-0"}],
        },
    }
    assert describe_claim(body) == "claim default/region is allocated, used by region-0, region-1"
