"""CDI files: how a container runtime learns what a claim's device adds to a container.

One file per claim, named after its UID, in the runtime's dynamic folder. That folder is a tmpfs on most hosts: every
Prepare writes the file again and a starting plugin rebuilds it from the checkpoint. Only files with our prefix are
touched. (CDI specification 1.1.0, "CDI JSON Specification"; the lowest sufficient `cdiVersion` is written because a
runtime refuses a higher one than it knows.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hymcache.dra.files import write_whole
from hymcache.dra.keys import UID, ClaimUID, ShareKey, claim_uid
from hymcache.dra.plan import ClaimRef

CDI_VERSION = "0.6.0"  # annotations need it
CLASS = "region"


@dataclass(frozen=True)
class Edits:
    """What a share adds to a container: variables, and folders mounted read-only (host path -> container path)."""

    env: Mapping[str, str]
    mounts: Mapping[Path, str]


def device_id(driver: str, key: ShareKey) -> str:
    """Qualified CDI name of a share, the same on every node."""
    return f"{driver}/{CLASS}={key.name}"


def build(driver: str, ref: ClaimRef, shares: Mapping[ShareKey, tuple[str, Edits]]) -> dict[str, Any]:
    """The CDI document of a claim: for each share its CXLRegion's name and its edits. Deterministic."""
    return {
        "cdiVersion": CDI_VERSION,
        "kind": f"{driver}/{CLASS}",
        "annotations": {
            f"{driver}/claim-uid": ref.uid,
            f"{driver}/claim-namespace": ref.namespace,
            f"{driver}/claim-name": ref.name,
        },
        "devices": [
            {
                "name": key.name,
                "annotations": {f"{driver}/region": region},
                "containerEdits": {
                    "env": [f"{name}={value}" for name, value in sorted(edits.env.items())],
                    "mounts": [
                        {"hostPath": str(host), "containerPath": inside, "options": ["ro", "bind", "nosuid", "nodev"]}
                        for host, inside in sorted(edits.mounts.items())
                    ],
                },
            }
            for key, (region, edits) in sorted(shares.items())
        ],
    }


class CdiFolder:
    """The runtime's folder, as far as it is ours."""

    def __init__(self, folder: Path, driver: str) -> None:
        self.folder = folder
        self._driver = driver
        self._prefix = f"{driver}-{CLASS}_"

    def _temporary(self, uid: ClaimUID) -> str:
        return f"spec.{self._prefix}{uid}.tmp"

    def path(self, uid: ClaimUID) -> Path:
        """Where the claim's file is."""
        return self.folder / f"{self._prefix}{uid}.json"

    def write(self, uid: ClaimUID, document: Mapping[str, Any]) -> bool:
        """Write the claim's file, in one step for the runtime that watches the folder. False: it was there already.

        The temporary name is not one that runtimes read, and it lies in the same folder because they watch for renames
        inside it.
        """
        data = json.dumps(document, indent=1).encode() + b"\n"
        path = self.path(uid)
        if path.is_file() and path.read_bytes() == data:
            return False
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, data, temporary=self._temporary(uid), durable=False)
        return True

    def regions(self, uid: ClaimUID) -> dict[ShareKey, str]:
        """Shares and their CXLRegions as the claim's file names them: what is left when the checkpoint is damaged."""
        try:
            devices = json.loads(self.path(uid).read_bytes())["devices"]
            return {
                ShareKey(uid, device["name"].removeprefix(f"{uid}-")): device["annotations"][f"{self._driver}/region"]
                for device in devices
            }
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return {}

    def remove(self, uid: ClaimUID) -> bool:
        """Remove the claim's file; False if there was none."""
        found = self.path(uid).is_file()
        self.path(uid).unlink(missing_ok=True)
        (self.folder / self._temporary(uid)).unlink(missing_ok=True)
        return found

    def claims(self) -> set[ClaimUID]:
        """Claims that have a file of ours."""
        found = self.folder.glob(f"{self._prefix}*.json") if self.folder.is_dir() else []
        names = (path.name.removeprefix(self._prefix).removesuffix(".json") for path in found)
        return {claim_uid(name) for name in names if UID.fullmatch(name)}
