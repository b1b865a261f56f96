"""What an uninstall says when it is refused, and what it does about an API server that waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hymcache.operator import lifecycle
from hymcache.operator.clients.api import Api
from hymcache.operator.lifecycle import DRIVER, clean, describe_claim

KINDS = {f"{plural}.hymcache.io" for plural in ("cxlfabrics", "cxlblades", "cxlregions", "cxlnodes")}


class ForgetfulServer:
    """An API server that removes a deleted kind only once it changes, and refuses the first change as a conflict."""

    def __init__(self) -> None:
        self.kinds = {name: {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}} for name in KINDS}
        self.refused: set[str] = set()

    async def request(self, method: str, path: str, body: Any, content_type: str) -> tuple[int, dict[str, Any]]:
        del body, content_type
        where = path.split("?")[0]
        name = where.rpartition("/")[2]
        if where.endswith("/customresourcedefinitions"):
            return 200, {"items": list(self.kinds.values()), "metadata": {"resourceVersion": "1"}}
        if name not in KINDS:
            return 404, {"message": "not found"}
        if method == "PATCH":
            if name not in self.refused:
                self.refused.add(name)
                return 409, {"message": "the object has been modified"}
            return 200, self.kinds.pop(name)
        return 200, self.kinds[name]

    async def close(self) -> None:
        """Nothing is open."""


def test_a_kind_that_the_server_forgot_to_remove_is_changed_until_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(lifecycle, "REMIND_SECONDS", 0.002)
    server = ForgetfulServer()
    assert asyncio.run(clean(Api(server), "hymcache", "hymcache-operator", crds=True)) == []
    assert not server.kinds
    assert server.refused == KINDS


def test_a_claim_is_named_with_its_pods_in_order() -> None:
    body = {
        "metadata": {"namespace": "default", "name": "region"},
        "status": {
            "allocation": {"devices": {"results": [{"driver": DRIVER}]}},
            "reservedFor": [{"name": "region-1"}, {"name": "region-0"}],
        },
    }
    assert describe_claim(body) == "claim default/region is allocated, used by region-0, region-1"
