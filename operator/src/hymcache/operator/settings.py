"""Settings of the operator: read once at start, from flags or from `HYMCACHE_OPERATOR_<NAME>` variables."""

from __future__ import annotations

import dataclasses
import socket
import uuid
from dataclasses import dataclass
from typing import Any

from hymcache.crds.names import FABRIC_PREFIX_DEFAULT

HOLDER_SEPARATOR = "_"


def setting(default: Any, text: str) -> Any:
    """A field with its meaning, unit and reason; the command line and the reference page are made from it."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Settings:
    """Everything that can be set. Times are in seconds."""

    namespace: str = setting("hymcache", "Namespace of the operator: its Lease and the fabrics' Secrets are there.")
    identity: str = setting(
        "", "Name of this pod in the Lease, its uid for example, never shared by two pods; empty: the host's name."
    )
    lease_name: str = setting("hymcache-operator", "Name of the Lease. Operators with one name: one of them acts.")
    lease_seconds: int = setting(15, "How long a leader that is silent is still believed.")
    renew_seconds: float = setting(3.0, "Pause between two renewals of the Lease; well below a third of its length.")
    renew_deadline_seconds: float = setting(
        10.0, "After so long without a renewal the leader ends its process; must be below lease-seconds."
    )
    fabric_prefix: str = setting(
        FABRIC_PREFIX_DEFAULT,
        "Prefix of region names on the fabric. What has it is ours and is removed when no CXLRegion knows it: "
        "clusters that share a fabric manager must have different ones.",
    )
    workers: int = setting(16, "Objects reconciled at the same time.")
    resync_seconds: float = setting(300.0, "Pause between two full lists that repair what a watch has missed.")
    watch_server_timeout_seconds: int = setting(300, "Length of one watch request; ends half-dead connections.")
    watch_lag_seconds: float = setting(
        10.0, "A watch that has not shown for so long what a full list has, twice, fails the liveness probe."
    )
    heartbeat_stale_seconds: float = setting(
        45.0, "A plugin whose heartbeat has not changed for so long is taken for dead: its node loses the blade labels."
    )
    fence_seconds: float = setting(
        120.0,
        "A dead plugin's host that still holds a region which it is to leave is cut off the fabric after so long.",
    )
    compose_budget_seconds: float = setting(
        300.0, "From allocation to a composed region; half of the scheduler's 600 s, so that a failure is still ours."
    )
    request_fault_seconds: float = setting(
        60.0, "Age of the allocation before a claim that cannot be served is failed: it comes back to the same blade."
    )
    blade_backoff_seconds: float = setting(
        30.0, "How long a blade that failed is not offered, at least; doubles with every failure in a row."
    )
    blade_backoff_max_seconds: float = setting(600.0, "Limit of that doubling.")
    orphan_grace_seconds: float = setting(
        120.0, "Age of a region on the fabric that has our prefix and no CXLRegion before it is removed."
    )
    touch_seconds: float = setting(1.0, "Pause between two touches of a slice, which make the scheduler try again.")
    retry_seconds: float = setting(1.0, "First pause after a failed reconcile; doubles up to retry-max-seconds.")
    retry_max_seconds: float = setting(60.0, "Limit of that doubling.")
    request_timeout_seconds: float = setting(15.0, "Limit of one request to the API server.")
    region_slots: int = setting(256, "Regions per blade where the fabric names no limit.")
    health_address: str = setting("0.0.0.0:8080", "Address of /healthz, /readyz and /metrics; port 0 picks one.")
    log_level: str = setting("info", "debug, info, warning or error.")
    log_format: str = setting("json", "json: one object a line; text: for a terminal.")

    def __post_init__(self) -> None:
        if self.renew_deadline_seconds >= self.lease_seconds:
            raise ValueError(
                f"renew-deadline-seconds: expected less than lease-seconds ({self.lease_seconds}), found "
                f"{self.renew_deadline_seconds:g}; two leaders could act at once"
            )
        if not self.fabric_prefix:
            raise ValueError("fabric-prefix: expected at least one character, found none; everything would be ours")

    def holder(self) -> str:
        """A holder name of this process alone, that begins with the pod's."""
        return f"{self.identity or socket.gethostname()}{HOLDER_SEPARATOR}{uuid.uuid4().hex[:8]}"
