"""What reconciles share: the doors to the outside, and the little that is remembered between two of them.

What is remembered may be lost at any time: it only spreads work over time (pauses, grace), it decides nothing alone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from hymcache.crds.names import blade_label, system_uuid_key
from hymcache.operator.clients.api import Api
from hymcache.operator.clients.events import Events
from hymcache.operator.clients.kinds import BLADE, CXLNODE, NODE
from hymcache.operator.clock import Clock, parse
from hymcache.operator.fabric.port import HostKey
from hymcache.operator.fabric.session import BladeFacts, Session, Sessions
from hymcache.operator.metrics import Metrics
from hymcache.operator.settings import Settings
from hymcache.operator.store import Store
from hymcache.operator.workqueue import Wake

ATTACH_TRIES = 3
"""Failed attaches of one host before the scheduler is told; each one has tried several times by itself."""


@dataclass
class Heartbeat:
    """A plugin's heartbeat as it was last seen to change, by our own clock."""

    value: str
    seen: float
    moved: bool
    """It has changed while we watched."""
    asked: str = ""
    """What a read of the API server gave when the watch had not shown a change."""


@dataclass
class Tries:
    """Failures in a row, and when the next try is due by the monotonic clock."""

    count: int = 0
    due: float = 0.0


@dataclass
class Memory:
    """Remembered between reconciles."""

    heartbeats: dict[str, Heartbeat] = field(default_factory=dict)
    attach: defaultdict[tuple[str, str], Tries] = field(default_factory=lambda: defaultdict(Tries))
    """By region and node."""
    link_trouble: dict[tuple[str, str], float] = field(default_factory=dict)
    """By node and blade: until when the node is not offered for the blade."""
    touched: dict[str, float] = field(default_factory=dict)
    orphans: dict[str, float] = field(default_factory=dict)
    """When a region on the fabric that nobody knows was first seen."""
    unusable_fabrics: set[str] = field(default_factory=set)
    """CXLFabrics whose spec or Secret cannot be used."""
    gone_blades: dict[str, int] = field(default_factory=dict)
    locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """Per blade: adoption and eviction of retained regions exclude one another."""


@dataclass
class Context:
    """Everything a reconcile may use."""

    settings: Settings
    api: Api
    store: Store
    sessions: Sessions
    events: Events
    metrics: Metrics
    clock: Clock
    wake: Wake
    api_healthy_since: Callable[[], float]
    """Since when the API server has answered every renewal of the Lease."""
    after_write: Callable[[str], None] = lambda _: None
    memory: Memory = field(default_factory=Memory)

    # --- blades ------------------------------------------------------------------------------------------------------
    def session_of(self, blade: str) -> Session | None:
        """The session of the fabric that the blade belongs to, by its CXLBlade, else by any inventory."""
        body = self.store.get(BLADE, blade)
        if body is not None:
            return self.sessions.get(body["spec"]["fabric"])
        return next((s for s in self.sessions.all() if s.blade(blade) is not None), None)

    def blade(self, name: str) -> BladeFacts | None:
        """Facts of a blade by the last good inventory."""
        session = self.session_of(name)
        return session.blade(name) if session else None

    # --- nodes -------------------------------------------------------------------------------------------------------
    def system_uuid(self, node: str) -> str:
        """System UUID of a node; empty when it is not known."""
        body = self.store.get(NODE, node)
        return body["systemUUID"] if body else ""

    def silent_seconds(self, node: str) -> float:
        """How long a plugin has been silent; time in which the API server was away does not count against it."""
        beat = self.memory.heartbeats.get(node)
        now = self.clock.monotonic()
        since = max(beat.seen if beat else 0.0, self.api_healthy_since())
        return now - since

    def plugin_alive(self, node: str, *, labelled: bool) -> bool:
        """Whether the node's plugin is registered and its heartbeat fresh.

        A node that has the label keeps it until the heartbeat has stood still for the whole limit while we watched; one
        that has not gets it only on evidence: a heartbeat that moved, or one that is recent by the clock.
        """
        body = self.store.get(CXLNODE, node)
        status = (body or {}).get("status") or {}
        if not status.get("heartbeat") or status.get("registered") is False:
            return False
        if self.silent_seconds(node) > self.settings.heartbeat_stale_seconds:
            return False
        beat = self.memory.heartbeats.get(node)
        if labelled or (beat is not None and beat.moved):
            return True
        written = parse(status["heartbeat"])
        age = (self.clock.utc() - written).total_seconds() if written else float("inf")
        return age <= self.settings.heartbeat_stale_seconds

    def cabled(self, node: str, blade: BladeFacts) -> bool:
        """Whether pods that need the blade may be put on the node."""
        host = HostKey(system_uuid_key(self.system_uuid(node)))
        if host not in blade.hosts or self.memory.link_trouble.get((node, blade.name), 0.0) > self.clock.monotonic():
            return False
        body = self.store.get(NODE, node)
        labelled = bool(body) and blade_label(blade.name) in body["metadata"]["labels"]
        return self.plugin_alive(node, labelled=labelled)
