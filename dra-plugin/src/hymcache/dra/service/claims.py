"""The DRAPlugin service, once for both versions: v1beta1 has the same shapes, but no share_id."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import grpc
import structlog
from hymcache.dra._proto import dra_v1_pb2, dra_v1_pb2_grpc, dra_v1beta1_pb2, dra_v1beta1_pb2_grpc
from hymcache.dra.calls import Call
from hymcache.dra.claims import Claims, PreparedDevice
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.keys import UID, claim_uid
from hymcache.dra.metrics import Metrics
from hymcache.dra.plan import ClaimRef

ANSWER_SECONDS = 2.0  # left before the kubelet's own deadline, so that our reason and not a timeout reaches the pod

log = structlog.get_logger()


class ClaimService:
    """Both versions of the service over one `Claims`. A call's claims are served at once, each with its own answer."""

    def __init__(self, claims: Claims, metrics: Metrics, *, wait_seconds: float, workers: int) -> None:
        self._claims = claims
        self._metrics = metrics
        self._wait_seconds = wait_seconds
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="claim")
        self._stopping = threading.Event()

    def add_to(self, server: grpc.Server) -> None:
        """Offer v1 and v1beta1 on `server`."""
        dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(_Servicer(self, dra_v1_pb2), server)
        dra_v1beta1_pb2_grpc.add_DRAPluginServicer_to_server(_Servicer(self, dra_v1beta1_pb2), server)

    def abort(self) -> None:
        """Make calls that still wait give up."""
        self._stopping.set()

    def prepare_all(
        self, claims: Iterable[Any], context: grpc.ServicerContext
    ) -> dict[str, list[PreparedDevice] | ClaimError]:
        """Prepare each claim of a request; by UID, devices or the reason why not."""
        left = context.time_remaining()
        wait = self._wait_seconds if left is None else min(self._wait_seconds, max(0.0, left - ANSWER_SECONDS))
        call = Call(time.monotonic() + wait, lambda: self._given_up(context))
        return self._each(claims, "prepare", lambda claim: self._claims.prepare(_ref(claim), call))

    def unprepare_all(self, claims: Iterable[Any]) -> dict[str, list[PreparedDevice] | ClaimError]:
        """Unprepare each claim of a request; by UID, nothing or the reason why not."""

        def unprepare(claim: Any) -> list[PreparedDevice]:
            if UID.fullmatch(claim.uid):  # any other was never prepared
                self._claims.unprepare(_ref(claim))
            return []

        return self._each(claims, "unprepare", unprepare)

    def _given_up(self, context: grpc.ServicerContext) -> str | None:
        if self._stopping.is_set():
            return "the plugin is stopping"
        return None if context.is_active() else "the kubelet stopped waiting"

    def _each(
        self, claims: Iterable[Any], name: str, act: Callable[[Any], list[PreparedDevice]]
    ) -> dict[str, list[PreparedDevice] | ClaimError]:
        futures = {claim.uid: self._pool.submit(self._one, claim, name, act) for claim in claims}
        return {uid: future.result() for uid, future in futures.items()}

    def _one(
        self, claim: Any, name: str, act: Callable[[Any], list[PreparedDevice]]
    ) -> list[PreparedDevice] | ClaimError:
        """One claim, with its log context and its measurement. Whatever goes wrong is this claim's alone."""
        started = time.monotonic()
        outcome: list[PreparedDevice] | ClaimError
        with structlog.contextvars.bound_contextvars(claim=f"{claim.namespace}/{claim.name}", claim_uid=claim.uid):
            try:
                outcome = act(claim)
            except ClaimError as error:
                log.warning("call failed", call=name, kind=error.kind, error=str(error))
                outcome = error
            except Exception as error:
                log.exception("call failed by a defect", call=name)
                outcome = ClaimError(
                    Kind.INTERNAL, f"{name} failed by a defect ({type(error).__name__}); the plugin's log has more"
                )
            seconds = time.monotonic() - started
            result = outcome.kind.value if isinstance(outcome, ClaimError) else "ok"
            self._metrics.calls.labels(name, result).observe(seconds)
            log.info("call answered", call=name, result=result, seconds=round(seconds, 3))
        return outcome


def _ref(claim: Any) -> ClaimRef:
    try:
        return ClaimRef(claim.namespace, claim.name, claim_uid(claim.uid))
    except ValueError as error:
        raise ClaimError(Kind.FOREIGN, str(error)) from error


class _Servicer:
    """One version: `messages` is its generated module."""

    def __init__(self, service: ClaimService, messages: ModuleType) -> None:
        self._service = service
        self._messages: Any = messages
        self._has_share_id = "share_id" in self._messages.Device.DESCRIPTOR.fields_by_name

    def NodePrepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:
        """An entry for each claim: devices, or an error. A missing entry would fail the whole pod."""
        reply = self._messages.NodePrepareResourcesResponse()
        for uid, outcome in self._service.prepare_all(request.claims, context).items():
            entry = reply.claims[uid]
            if isinstance(outcome, ClaimError):
                entry.error = str(outcome)
                continue
            for device in outcome:
                added = entry.devices.add(
                    request_names=[device.request],
                    pool_name=device.pool,
                    device_name=device.device,
                    cdi_device_ids=[device.cdi_id],
                )
                if self._has_share_id and device.share_id is not None:
                    added.share_id = device.share_id
            entry.SetInParent()
        return reply

    def NodeUnprepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:
        """An entry for each claim, empty for success."""
        reply = self._messages.NodeUnprepareResourcesResponse()
        for uid, outcome in self._service.unprepare_all(request.claims).items():
            entry = reply.claims[uid]
            entry.SetInParent()  # an empty entry is an answer; without it the map would have none
            if isinstance(outcome, ClaimError):
                entry.error = str(outcome)
        return reply
