"""Registration: the folder the kubelet watches, who is in it, and what it says to them.

Source: kubelet pkg/kubelet/pluginmanager and pkg/kubelet/cm/dra/plugin, by behaviour.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from hymcache.dra._proto import (
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    health_v1_pb2,
    health_v1_pb2_grpc,
    health_v1alpha1_pb2,
    health_v1alpha1_pb2_grpc,
    registration_pb2,
    registration_pb2_grpc,
)

POLL_SECONDS = 0.05
INFO_SECONDS = 5.0
CLAIM_SERVICES: dict[str, tuple[Any, Any]] = {
    "v1.DRAPlugin": (dra_v1_pb2, dra_v1_pb2_grpc.DRAPluginStub),
    "v1beta1.DRAPlugin": (dra_v1beta1_pb2, dra_v1beta1_pb2_grpc.DRAPluginStub),
}
HEALTH_SERVICES: dict[str, tuple[Any, Any]] = {
    "v1.DRAResourceHealth": (health_v1_pb2, health_v1_pb2_grpc.DRAResourceHealthStub),
    "v1alpha1.DRAResourceHealth": (health_v1alpha1_pb2, health_v1alpha1_pb2_grpc.DRAResourceHealthStub),
}


CHANNEL = (
    # One connection per channel, tried again at once: gRPC shares connections by address and backs off up to two
    # minutes, which would outlast the plugin that comes back on the same path.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
)


@dataclass(frozen=True)
class HealthReport:
    """One device in one message of a health stream."""

    pool: str
    device: str
    health: str
    message: str


@dataclass
class Plugin:
    """One registered plugin generation."""

    socket: Path
    driver: str
    endpoint: str
    claims: str
    health: str | None
    channel: grpc.Channel = field(repr=False)

    def close(self) -> None:
        self.channel.close()


Identity = tuple[Path, int, int]
"""Path, inode and birth of a socket: a file system gives the inode of a removed socket to the next one."""


class PluginWatcher:
    """Looks at a `plugins_registry` folder until closed; `known` are the services that this kubelet's version has."""

    def __init__(self, registry: Path, *, known: Sequence[str] = (*CLAIM_SERVICES, *HEALTH_SERVICES)) -> None:
        self.registry = registry
        self.refusals: list[str] = []
        self._known = known
        self._plugins: dict[Identity, Plugin] = {}
        self._retired: list[Plugin] = []
        self._failed: dict[Identity, float] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        registry.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._watch, name="plugin watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        with self._lock:
            for plugin in (*self._plugins.values(), *self._retired):
                plugin.close()
            self._plugins.clear()

    def plugin(self, driver: str) -> Plugin | None:
        """The generation that registered last and whose socket is still there."""
        with self._lock:
            found = [plugin for plugin in self._plugins.values() if plugin.driver == driver]
        return found[-1] if found else None

    def generations(self, driver: str) -> list[Path]:
        """Registration sockets of a driver, in the order they registered."""
        with self._lock:
            return [plugin.socket for plugin in self._plugins.values() if plugin.driver == driver]

    def forget(self) -> None:
        """What a restart of the kubelet does: everybody is asked and told again."""
        with self._lock:
            self._retired += self._plugins.values()
            self._plugins.clear()
            self._failed.clear()

    def _watch(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            self._look()

    def _look(self) -> None:
        present = list(self._sockets())
        with self._lock:
            for key in [key for key in self._plugins if key not in present]:
                self._retired.append(self._plugins.pop(key))  # calls on it may still be answered
            new = [key for key in present if key not in self._plugins and self._failed.get(key, 0) < time.monotonic()]
        for key in new:
            try:
                plugin = self._register(key[0])
            except grpc.RpcError:
                self._failed[key] = time.monotonic() + 0.5  # a stale socket, or one that is about to serve
                continue
            with self._lock:
                if plugin is None:
                    self._failed[key] = time.monotonic() + 3600  # refused: the plugin has to come again
                else:
                    self._plugins[key] = plugin

    def _sockets(self) -> Iterator[Identity]:
        for path in sorted(self.registry.glob("*.sock")):
            if not path.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    found = path.stat()
                    yield path, found.st_ino, found.st_mtime_ns

    def _register(self, path: Path) -> Plugin | None:
        with grpc.insecure_channel(f"unix://{path}", options=CHANNEL) as channel:
            stub: Any = registration_pb2_grpc.RegistrationStub(channel)
            info = stub.GetInfo(registration_pb2.InfoRequest(), timeout=INFO_SECONDS)
            offered = list(info.supported_versions)
            claims = next((name for name in offered if name in CLAIM_SERVICES and name in self._known), None)
            health = next((name for name in offered if name in HEALTH_SERVICES and name in self._known), None)
            refusal = ""
            if info.type != "DRAPlugin":
                refusal = f"expected plugin type DRAPlugin, found {info.type}"
            elif claims is None:
                refusal = f"none of the services {offered} is supported"
            elif not Path(info.endpoint).is_absolute():
                refusal = f"the endpoint {info.endpoint!r} is no absolute path"
            if refusal:
                self.refusals.append(refusal)  # before the plugin hears it, and ends
            status = registration_pb2.RegistrationStatus(plugin_registered=not refusal, error=refusal)
            stub.NotifyRegistrationStatus(status, timeout=INFO_SECONDS)
        if refusal or claims is None:
            return None
        channel = grpc.insecure_channel(f"unix://{info.endpoint}", options=CHANNEL)
        return Plugin(path, info.name, info.endpoint, claims, health, channel)


def watch_health(plugin: Plugin, *, seconds: float) -> Iterator[list[HealthReport]]:
    """Messages of the plugin's health stream, until it ends or `seconds` have passed."""
    assert plugin.health is not None, "the plugin offers no health service that this kubelet knows"
    messages, stub_class = HEALTH_SERVICES[plugin.health]
    stream = stub_class(plugin.channel).NodeWatchResources(messages.NodeWatchResourcesRequest(), timeout=seconds)
    try:
        for message in stream:
            yield [
                HealthReport(
                    device.device.pool_name,
                    device.device.device_name,
                    messages.HealthStatus.Name(device.health),
                    device.message,
                )
                for device in message.devices
            ]
    except grpc.RpcError as error:
        if error.code() not in {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}:
            raise
    finally:
        stream.cancel()
