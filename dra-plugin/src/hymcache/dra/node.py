"""The parts of one plugin on one node, wired together once by `main` and shared by everything that acts on claims."""

from __future__ import annotations

from dataclasses import dataclass

from hymcache.dra.cdi import CdiFolder
from hymcache.dra.checkpoint.store import Checkpoint
from hymcache.dra.clients import Api
from hymcache.dra.contents import Contents
from hymcache.dra.dax import Dax
from hymcache.dra.hosts import HostReports
from hymcache.dra.locks import ClaimLocks, ReportLocks
from hymcache.dra.metrics import Metrics
from hymcache.dra.settings import Settings


@dataclass(frozen=True)
class Node:
    """What a node has: settings, the identity of its boot, and one door to each outside thing."""

    settings: Settings
    boot_id: str
    api: Api
    dax: Dax
    contents: Contents
    checkpoint: Checkpoint
    locks: ClaimLocks
    reports: ReportLocks
    cdi: CdiFolder
    hosts: HostReports
    metrics: Metrics

    @property
    def name(self) -> str:
        """The Node's name."""
        return self.settings.node_name
