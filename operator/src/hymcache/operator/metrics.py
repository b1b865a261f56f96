"""Prometheus metrics of the operator; `docs/reference/metrics.md` is made from the help texts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


class Metrics:
    """All metrics, on a registry of their own, so that two operators in one process do not clash."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.leader = Gauge("hymcache_operator_leader", "1 while this process leads.", registry=r)
        self.generation = Gauge("hymcache_operator_lease_generation", "Lease generation of this leader.", registry=r)
        self.reconciles = Counter(
            "hymcache_operator_reconciles", "Reconciles by kind and outcome.", ["kind", "outcome"], registry=r
        )
        self.reconcile_seconds = Histogram(
            "hymcache_operator_reconcile_seconds", "Duration of a reconcile.", ["kind"], buckets=SECONDS, registry=r
        )
        self.queued = Gauge("hymcache_operator_queued_keys", "Objects that wait for a worker.", registry=r)
        self.fabric_calls = Counter(
            "hymcache_fabric_calls", "Calls to fabric managers by outcome.", ["fabric", "call", "outcome"], registry=r
        )
        self.fabric_seconds = Histogram(
            "hymcache_fabric_call_seconds", "Duration of such a call.", ["fabric", "call"], buckets=SECONDS, registry=r
        )
        self.fabric_up = Gauge("hymcache_fabric_up", "1 after a good inventory.", ["fabric"], registry=r)
        self.regions = Gauge("hymcache_regions", "Regions by phase.", ["phase"], registry=r)
        self.leaked = Gauge(
            "hymcache_regions_unreleasable",
            "Regions that a host holds and cannot be cut off: alert on > 0.",
            registry=r,
        )
        self.lost = Counter("hymcache_regions_lost", "Regions whose bytes a blade lost.", ["blade"], registry=r)
        self.orphans = Counter("hymcache_orphans_removed", "Fabric regions removed that nobody knew.", registry=r)
        self.blade_bytes = Gauge("hymcache_blade_bytes", "Capacity of a blade.", ["blade"], registry=r)
        self.blade_free = Gauge("hymcache_blade_free_bytes", "Bytes in no region.", ["blade"], registry=r)
        self.blade_offered = Gauge(
            "hymcache_blade_offered_bytes", "Capacity in the ResourceSlice.", ["blade"], registry=r
        )
        self.touches = Counter("hymcache_slice_touches", "Slice touches for waiting pods.", ["blade"], registry=r)
        self.foreign_slices = Gauge(
            "hymcache_foreign_slices", "Slices of our pools under other names: alert on > 0.", registry=r
        )
        self.watch_lag = Gauge("hymcache_watch_lag_seconds", "How far the watch was behind the last list.", registry=r)
        self.claims_failed = Counter(
            "hymcache_claims_failed", "Allocations given up, by cause.", ["blade", "cause"], registry=r
        )
        self.claim_seconds = Histogram(
            "hymcache_claim_compose_seconds", "From allocation to RegionComposed.", buckets=SECONDS, registry=r
        )
