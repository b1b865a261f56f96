"""The DRAResourceHealth service, once for both versions, which have the same shapes."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import grpc
from hymcache.dra._proto import health_v1_pb2, health_v1_pb2_grpc, health_v1alpha1_pb2, health_v1alpha1_pb2_grpc
from hymcache.dra.health import HealthBoard

LOOK_SECONDS = 1.0  # how soon a stream notices that its kubelet has gone


def add_to(server: grpc.Server, board: HealthBoard, *, timeout_seconds: int) -> None:
    """Offer v1 and v1alpha1 on `server`. Older than `timeout_seconds`, a device's health is unknown to the kubelet."""
    health_v1_pb2_grpc.add_DRAResourceHealthServicer_to_server(_Servicer(board, health_v1_pb2, timeout_seconds), server)
    health_v1alpha1_pb2_grpc.add_DRAResourceHealthServicer_to_server(
        _Servicer(board, health_v1alpha1_pb2, timeout_seconds), server
    )


class _Servicer:
    """One version: `messages` is its generated module."""

    def __init__(self, board: HealthBoard, messages: ModuleType, timeout_seconds: int) -> None:
        self._board = board
        self._messages: Any = messages
        self._timeout_seconds = timeout_seconds

    def NodeWatchResources(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """The whole list, now and at each post; ends when the kubelet goes or the plugin stops."""
        version = -1
        while context.is_active() and not self._board.closed:
            found = self._board.after(version, LOOK_SECONDS)
            if found is not None:
                version, devices = found
                yield self._messages.NodeWatchResourcesResponse(devices=[self._message(device) for device in devices])

    def _message(self, device: Any) -> Any:
        messages = self._messages
        return messages.DeviceHealth(
            device=messages.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
            health=messages.HEALTHY if device.healthy else messages.UNHEALTHY,
            last_updated_time=device.seen,
            health_check_timeout_seconds=self._timeout_seconds,
            message=device.message,
        )
