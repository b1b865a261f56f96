"""Claims on a node: who uses them, whether they are prepared, and the calls that make it so."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from controlplane.kubelet.plugins import CLAIM_SERVICES, PluginWatcher

CALL_SECONDS = 45.0
QUALIFIED = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*=[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?")


class ClaimKey(NamedTuple):
    """A claim as the kubelet passes it."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, claim: Mapping[str, Any]) -> ClaimKey:
        """The key of a ResourceClaim object."""
        meta = claim["metadata"]
        return cls(meta["namespace"], meta["name"], meta["uid"])


class NotPreparedError(Exception):
    """The text of the event FailedPrepareDynamicResources, or why Unprepare failed."""


@dataclass
class Held:
    """One claim in the kubelet's cache. `prepared` does not survive a restart of the kubelet, the rest does."""

    key: ClaimKey
    pods: set[str] = field(default_factory=set)
    prepared: bool = False
    devices: list[Any] = field(default_factory=list)

    @property
    def cdi_ids(self) -> list[str]:
        """What the kubelet passes to the runtime for a container of this claim."""
        return [name for device in self.devices for name in device.cdi_device_ids]


class Kubelet:
    """One node's kubelet. Thread-safe; calls for different claims overlap as those of different pod workers do."""

    def __init__(self, registry: Path, *, driver: str, known: Sequence[str] | None = None) -> None:
        self.driver = driver
        self.watcher = PluginWatcher(registry) if known is None else PluginWatcher(registry, known=known)
        self.claims: dict[str, Held] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        self.watcher.close()

    def restart(self) -> None:
        """Forget what is prepared, keep who uses what, register all plugins again. No claim is prepared for it."""
        with self._lock:
            for held in self.claims.values():
                held.prepared = False
        self.watcher.forget()

    def prepare(self, pod: str, key: ClaimKey, *, seconds: float = CALL_SECONDS) -> Held:
        """What happens before a pod's containers are created.

        Raises:
            NotPreparedError: no plugin, a timeout, the plugin's own reason, or an answer that breaks the protocol.
        """
        with self._lock:
            held = self.claims.setdefault(key.uid, Held(key))
            held.pods.add(pod)
            if held.prepared:
                return held
        entry = self._call("NodePrepareResources", key, seconds)
        if entry.error:
            raise NotPreparedError(entry.error)
        for device in entry.devices:
            for name in device.cdi_device_ids:
                if not QUALIFIED.fullmatch(name):
                    raise NotPreparedError(f"{name!r} is no qualified CDI name")
        with self._lock:
            held.devices = list(entry.devices)
            held.prepared = True
        return held

    def unprepare(self, pod: str, *, seconds: float = CALL_SECONDS) -> None:
        """What happens after the pod's containers have ended: claims that no other pod here uses are unprepared.

        Raises:
            NotPreparedError: the plugin's reason; the pod stays Terminating and the kubelet comes again.
        """
        with self._lock:
            last = [held for held in self.claims.values() if held.pods == {pod}]
            for held in self.claims.values():
                if len(held.pods) > 1:
                    held.pods.discard(pod)
        for held in last:
            self.unprepare_claim(held.key, seconds=seconds)
            with self._lock:
                self.claims.pop(held.key.uid, None)

    def unprepare_claim(self, key: ClaimKey, *, seconds: float = CALL_SECONDS) -> None:
        """The call alone, whatever the cache says.

        Raises:
            NotPreparedError: the plugin's reason.
        """
        entry = self._call("NodeUnprepareResources", key, seconds)
        if entry.error:
            raise NotPreparedError(entry.error)

    def _call(self, method: str, key: ClaimKey, seconds: float) -> Any:
        plugin = self.watcher.plugin(self.driver)
        if plugin is None:
            raise NotPreparedError(f"DRA driver {self.driver} is not registered")
        messages, stub_class = CLAIM_SERVICES[plugin.claims]
        claim = messages.Claim(namespace=key.namespace, name=key.name, uid=key.uid)
        request = getattr(messages, f"{method}Request")(claims=[claim])
        try:
            reply = getattr(stub_class(plugin.channel), method)(request, timeout=seconds)
        except grpc.RpcError as error:
            raise NotPreparedError(f"{method}: {error.code().name}") from error
        if set(reply.claims) != {key.uid}:
            raise NotPreparedError(
                f"{method}: expected an entry for claim {key.uid} alone, found {sorted(reply.claims)}"
            )
        return reply.claims[key.uid]
