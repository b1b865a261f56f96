"""Events: one sentence for people, on the object that they look at. Never a reason for a reconcile to fail."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import Literal

from hymcache.operator.clients.api import Api, ApiError, ConflictError
from hymcache.operator.clients.kinds import EVENT, Kind, Object
from hymcache.operator.clock import Clock

log = logging.getLogger(__name__)

REPEAT_SECONDS = 300.0
CONTROLLER = "hymcache.io/operator"


@dataclass(frozen=True)
class Reference:
    """The object that an event is about."""

    kind: Kind
    name: str
    uid: str
    namespace: str | None = None

    @classmethod
    def of(cls, kind: Kind, body: Object) -> Reference:
        """Reference to a live object."""
        meta = body["metadata"]
        return cls(kind, meta["name"], meta["uid"], meta.get("namespace"))


class Events:
    """Writes events, the same one at most once in five minutes."""

    def __init__(self, api: Api, clock: Clock, instance: str) -> None:
        self._api = api
        self._clock = clock
        self._instance = instance
        self._sent: dict[str, float] = {}

    async def emit(self, about: Reference, kind: Literal["Normal", "Warning"], reason: str, note: str) -> None:
        """Write one event; a refusal is logged and forgotten."""
        key = hashlib.sha256(f"{about.uid} {reason} {note}".encode()).hexdigest()[:16]
        now = self._clock.monotonic()
        if now - self._sent.get(key, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        self._sent = {k: t for k, t in self._sent.items() if now - t < REPEAT_SECONDS}
        self._sent[key] = now
        (log.warning if kind == "Warning" else log.info)("%s: %s", reason, note)
        moment = self._clock.utc().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body: Object = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            "metadata": {
                "name": f"{about.name[:200]}.{key}{int(now * 1000):x}",
                "namespace": about.namespace or "default",
            },
            "eventTime": moment,
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance[:128],
            "action": reason,
            "reason": reason,
            "type": kind,
            "note": note[:1024],
            "regarding": {
                "apiVersion": about.kind.api_version,
                "kind": about.kind.name,
                "name": about.name,
                "uid": about.uid,
                **({"namespace": about.namespace} if about.namespace else {}),
            },
        }
        try:
            await self._api.create(EVENT, body)
        except ConflictError:
            return
        except ApiError as error:
            log.warning("event %s was not written: %s", reason, error)
