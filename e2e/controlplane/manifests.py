"""Applying manifests: the chart's CRDs, RBAC and policies, as they stand in files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from controlplane.api import CRD, Api, Object, documents
from controlplane.waiting import wait

FIRST = ("Namespace", "CustomResourceDefinition")


def apply_all(api: Api, source: Path | str | Iterable[Object], *, manager: str = "e2e") -> list[Object]:
    """Server-side apply of every object of a file, a folder of `*.yaml`, a YAML text or an iterable.

    Namespaces and CRDs go first, and the CRDs are served when this returns.
    """
    bodies = sorted(documents(source), key=lambda body: body["kind"] not in FIRST)
    made = []
    for body in bodies:
        made.append(api.apply(body, manager=manager))
        if body["kind"] == CRD.name:
            _wait_established(api, body["metadata"]["name"])
    return made


def _wait_established(api: Api, name: str) -> None:
    def established() -> bool:
        conditions = api.get(CRD, name).get("status", {}).get("conditions") or []
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    wait(f"CRD {name} to be established", established)
