"""The registration socket: the kubelet finds it, asks who we are, and says whether we are accepted.

It calls GetInfo again and again as a test of life.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import structlog
from hymcache.dra._proto import registration_pb2 as pb
from hymcache.dra._proto import registration_pb2_grpc as pb_grpc

PLUGIN_TYPE = "DRAPlugin"
SUPPORTED = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""Newest first: the kubelet takes the first of each service that it knows."""

log = structlog.get_logger()


class Registration(pb_grpc.RegistrationServicer):
    """`refused` is called with the kubelet's reason when it does not accept the plugin."""

    def __init__(self, driver: str, endpoint: Path, refused: Callable[[str], None]) -> None:
        self._driver = driver
        self._endpoint = endpoint
        self._refused = refused
        self._accepted = threading.Event()

    def accepted(self) -> bool:
        """Whether the kubelet has accepted the plugin."""
        return self._accepted.is_set()

    def GetInfo(self, request: pb.InfoRequest, context: grpc.ServicerContext) -> pb.PluginInfo:
        """Who we are, where the services are, and which."""
        return pb.PluginInfo(
            type=PLUGIN_TYPE, name=self._driver, endpoint=str(self._endpoint), supported_versions=SUPPORTED
        )

    def NotifyRegistrationStatus(
        self, request: pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        """Accepted, or why not."""
        if request.plugin_registered:
            log.info("accepted by the kubelet")
            self._accepted.set()
        else:
            log.error("refused by the kubelet", reason=request.error)
            self._accepted.clear()
            self._refused(request.error)
        return pb.RegistrationStatusResponse()
