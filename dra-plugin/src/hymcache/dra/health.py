"""Health of the devices that this node has prepared, for the kubelet's stream and for the metrics.

The kubelet keys health by pool and device, so all shares of a device look alike: what is told here is the blade and its
cable. How one region is, its CXLRegion's conditions say.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hymcache.dra.checkpoint.model import ClaimRecord, Phase
from hymcache.dra.dax import Port

MESSAGE_LENGTH_MAX = 1024


@dataclass(frozen=True, order=True)
class DeviceHealth:
    """One device, seen at `seen` (seconds since the epoch). `message` is empty while it is healthy."""

    pool: str
    device: str
    healthy: bool
    message: str
    seen: int


def of_devices(records: Iterable[ClaimRecord], ports: Mapping[str, Port], *, now: int) -> tuple[DeviceHealth, ...]:
    """Health of every device that a prepared share belongs to, sorted; pure."""
    blades = {
        (entry.share.pool, entry.share.device): entry.wanted.blade
        for record in records
        for entry in record.of_phase(Phase.PREPARED)
        if entry.wanted is not None
    }
    return tuple(_one(pool, device, blade, ports.get(blade), now) for (pool, device), blade in sorted(blades.items()))


def _one(pool: str, device: str, blade: str, port: Port | None, now: int) -> DeviceHealth:
    if port is None:
        return DeviceHealth(pool, device, False, f"no cable to blade {blade} on this node", now)
    message = "" if port.up else f"blade {blade} does not answer on its cable: {port.message}"
    return DeviceHealth(pool, device, port.up, message[:MESSAGE_LENGTH_MAX], now)


class HealthBoard:
    """The last known health, and a bell for those who pass it on. Thread-safe."""

    def __init__(self) -> None:
        self._devices: tuple[DeviceHealth, ...] = ()
        self._version = 0
        self._closed = False
        self._bell = threading.Condition()

    def post(self, devices: tuple[DeviceHealth, ...]) -> None:
        """Replace what is known. The kubelet takes silence for unknown, so every post is passed on."""
        with self._bell:
            self._devices = devices
            self._version += 1
            self._bell.notify_all()

    def close(self) -> None:
        """End every wait; the plugin is stopping."""
        with self._bell:
            self._closed = True
            self._bell.notify_all()

    def after(self, version: int, seconds: float) -> tuple[int, tuple[DeviceHealth, ...]] | None:
        """The board's version and devices once the version is above `version`; None when closed or after `seconds`."""
        deadline = time.monotonic() + seconds
        with self._bell:
            while not self._closed and self._version <= version:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._bell.wait(left)
            return None if self._closed else (self._version, self._devices)

    @property
    def closed(self) -> bool:
        """Whether the plugin is stopping."""
        return self._closed
