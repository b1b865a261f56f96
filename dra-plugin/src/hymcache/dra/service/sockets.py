"""Names and left-overs of the two sockets that the kubelet knows.

During a rolling update the old and the new plugin pod serve side by side, hence the pod's UID in the names; the kubelet
talks to the one that registered last. A killed plugin leaves its sockets behind.
"""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass
from pathlib import Path

ADDRESS_BYTES_MAX = 107  # sun_path holds 108 with its final zero


@dataclass(frozen=True)
class Sockets:
    """Paths of one plugin generation."""

    registration: Path
    service: Path


def paths(*, driver: str, registry_dir: Path, plugin_dir: Path, pod_uid: str) -> Sockets:
    """Where this generation listens; a name that would not fit has its pod UID hashed.

    Raises:
        ValueError: the folder alone is too long for a socket address.
    """
    own = f"-{pod_uid}" if pod_uid else ""
    return Sockets(
        registration=_fitting(registry_dir, f"{driver}{own}-reg.sock", f"{driver}-{_short(pod_uid)}-reg.sock"),
        service=_fitting(plugin_dir, f"dra{own}.sock", f"dra-{_short(pod_uid)}.sock"),
    )


def remove_stale(own: Sockets, *, driver: str) -> list[Path]:
    """Unlink own sockets of an earlier life, and those of other generations that nobody serves; which ones."""
    candidates = [*own.registration.parent.glob(f"{driver}*-reg.sock"), *own.service.parent.glob("dra*.sock")]
    stale = [path for path in candidates if path in {own.registration, own.service} or not is_served(path)]
    for path in stale:
        path.unlink(missing_ok=True)
    return stale


def is_served(path: Path) -> bool:
    """Whether anybody accepts connections on the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # busy, or not ours to judge
    return True


def _fitting(folder: Path, name: str, short: str) -> Path:
    for candidate in (folder / name, folder / short):
        if len(str(candidate).encode()) <= ADDRESS_BYTES_MAX:
            return candidate
    raise ValueError(
        f"{folder / short}: a socket address has at most {ADDRESS_BYTES_MAX} bytes, this one "
        f"{len(str(folder / short).encode())}; choose a shorter folder"
    )


def _short(pod_uid: str) -> str:
    return hashlib.sha256(pod_uid.encode()).hexdigest()[:8]
