"""A container runtime's side of CDI: which files it reads, when it refuses them, what a container gets.

Source: the CDI specification 1.1.0 and the behaviour of its Go library that containerd and CRI-O use: an unknown field
or a too low version refuses the file, two files with one device make it unresolvable, a missing mount source is a
CreateContainerError.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hymcache.region import handover

FIELDS = {
    "file": {"cdiVersion", "kind", "annotations", "devices", "containerEdits"},
    "device": {"name", "annotations", "containerEdits"},
    "edits": {"env", "deviceNodes", "mounts", "hooks", "additionalGids", "intelRdt", "netDevices"},
    "mount": {"hostPath", "containerPath", "type", "options"},
}
VERSIONS = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"]
VENDOR = re.compile(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?")
CLASS = re.compile(r"[A-Za-z]([\w-]*[A-Za-z0-9])?")
NAME = re.compile(r"[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?")


class CreateContainerError(Exception):
    """Why a container could not be created."""


@dataclass
class Container:
    """What CDI has put into a container: variables, and mounts (path inside -> path on the host)."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, Path] = field(default_factory=dict)

    def host_path(self, inside: str) -> Path:
        """Where a path of the container is on the host."""
        for target, source in self.mounts.items():
            if inside == target or inside.startswith(target + "/"):
                return source / inside[len(target) :].lstrip("/")
        raise CreateContainerError(f"{inside} is in no mount")

    def region(self, *, timeout: float = 5.0) -> tuple[int, dict[str, Any]]:
        """What a process in the container does first: get the region's descriptor from its socket."""
        target = self.env["HYMCACHE_REGION"]
        scheme, _, path = target.partition(":")
        assert scheme == "unix", f"expected a socket, found {target}"
        return handover.receive(self.host_path(path), timeout=timeout)


class Runtime:
    """Reads one dynamic CDI folder anew for each container, as a runtime does after a change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def container(self, cdi_ids: list[str]) -> Container:
        """A container with these devices.

        Raises:
            CreateContainerError: a device is in no file or in two, or a mount's source is missing.
        """
        devices = self.devices()
        made = Container()
        for name in cdi_ids:
            found = devices.get(name, [])
            if len(found) != 1:
                raise CreateContainerError(f"unresolvable CDI devices {name}: found in {len(found)} files")
            edits = found[0]["containerEdits"]
            for variable in edits.get("env", []):
                key, _, value = variable.partition("=")
                made.env[key] = value
            for mount in edits.get("mounts", []):
                if not Path(mount["hostPath"]).exists():
                    raise CreateContainerError(f"mount source {mount['hostPath']} does not exist")
                made.mounts[mount["containerPath"]] = Path(mount["hostPath"])
        return made

    def devices(self) -> dict[str, list[dict[str, Any]]]:
        """Qualified name -> every device of that name in a file that a runtime would read."""
        found: dict[str, list[dict[str, Any]]] = {}
        for path in sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []:
            document = check(json.loads(path.read_text()), path)
            for device in document["devices"]:
                found.setdefault(f"{document['kind']}={device['name']}", []).append(device)
        return found


def check(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """The document, if a runtime would accept it.

    Raises:
        CreateContainerError: it would not; a runtime ignores such a file, a test should know.
    """
    _known("file", document, path)
    vendor, _, kind = document["kind"].partition("/")
    if not VENDOR.fullmatch(vendor) or not CLASS.fullmatch(kind):
        raise CreateContainerError(f"{path}: kind {document['kind']!r} is not vendor/class")
    if not document["devices"]:
        raise CreateContainerError(f"{path}: no device")
    needed = "0.6.0" if document.get("annotations") else "0.3.0"
    for device in document["devices"]:
        _known("device", device, path)
        if not NAME.fullmatch(device["name"]):
            raise CreateContainerError(f"{path}: device name {device['name']!r}")
        needed = max(needed, _needed(device, path), key=VERSIONS.index)
    if document["cdiVersion"] not in VERSIONS or VERSIONS.index(document["cdiVersion"]) < VERSIONS.index(needed):
        raise CreateContainerError(f"{path}: cdiVersion {document['cdiVersion']} where at least {needed} is needed")
    return document


def _needed(device: dict[str, Any], path: Path) -> str:
    edits = device["containerEdits"]
    _known("edits", edits, path)
    if not any(edits.values()):
        raise CreateContainerError(f"{path}: device {device['name']} without edits")
    for mount in edits.get("mounts", []):
        _known("mount", mount, path)
    if edits.get("netDevices"):
        return "1.1.0"
    if edits.get("intelRdt") or edits.get("additionalGids"):
        return "0.7.0"
    if device.get("annotations"):
        return "0.6.0"
    digit_first = device["name"][0].isdigit()
    host_path = any("hostPath" in node for node in edits.get("deviceNodes", []))
    return "0.5.0" if digit_first or host_path else "0.3.0"


def _known(what: str, found: dict[str, Any], path: Path) -> None:
    unknown = found.keys() - FIELDS[what]
    if unknown:
        raise CreateContainerError(f"{path}: unknown fields {sorted(unknown)} in {what}")
