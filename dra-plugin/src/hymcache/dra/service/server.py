"""Both gRPC servers: the services first, then the registration socket that makes the kubelet come."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import structlog
from hymcache.dra._proto import registration_pb2_grpc
from hymcache.dra.health import HealthBoard
from hymcache.dra.service import health
from hymcache.dra.service.claims import ClaimService
from hymcache.dra.service.registration import Registration
from hymcache.dra.service.sockets import Sockets, remove_stale

REGISTRATION_WORKERS = 4
ABORT_SECONDS = 2.0

log = structlog.get_logger()


class Servers:
    """Serves until `stop`. Registration has threads of its own: the kubelet's test of life never waits for a claim."""

    def __init__(
        self,
        sockets: Sockets,
        registration: Registration,
        claims: ClaimService,
        board: HealthBoard,
        *,
        driver: str,
        workers: int,
        health_timeout_seconds: int,
    ) -> None:
        self._sockets = sockets
        self._claims = claims
        self._board = board
        for path in remove_stale(sockets, driver=driver):
            log.info("stale socket removed", path=str(path))
        self._service = grpc.server(ThreadPoolExecutor(workers, thread_name_prefix="grpc"))
        claims.add_to(self._service)
        health.add_to(self._service, board, timeout_seconds=health_timeout_seconds)
        self._service.add_insecure_port(f"unix://{sockets.service}")
        self._registration = grpc.server(ThreadPoolExecutor(REGISTRATION_WORKERS, thread_name_prefix="registration"))
        registration_pb2_grpc.add_RegistrationServicer_to_server(registration, self._registration)

    def start(self) -> None:
        """Serve, then show the kubelet where."""
        self._service.start()
        self._registration.add_insecure_port(f"unix://{self._sockets.registration}")
        self._registration.start()
        log.info("serving", endpoint=str(self._sockets.service), registration=str(self._sockets.registration))

    def stop(self, grace_seconds: float) -> None:
        """Take the registration away, so that the kubelet turns to another generation, then let running calls finish.

        Health streams end at once. Calls that still wait after `grace_seconds` get a reason to answer with.
        """
        self._registration.stop(0).wait()
        self._sockets.registration.unlink(missing_ok=True)
        self._board.close()
        ended = self._service.stop(grace_seconds + ABORT_SECONDS)
        if not ended.wait(grace_seconds):
            self._claims.abort()
            ended.wait(ABORT_SECONDS)
        self._sockets.service.unlink(missing_ok=True)
