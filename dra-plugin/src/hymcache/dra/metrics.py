"""Prometheus metrics of one plugin, in a registry of their own so that tests can run several in one process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 35, 45)


class Metrics:
    """What is measured. Names end in the unit; the label `kind` is `errors.Kind`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.calls = Histogram(
            "hymcache_dra_call_seconds",
            "Duration of a kubelet call for one claim, by call and result (ok or the kind of error)",
            ["call", "result"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.phases = Histogram(
            "hymcache_dra_prepare_phase_seconds",
            "Duration of one phase of a successful Prepare: claim, attach, open, verify, publish",
            ["phase"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.claims = Gauge("hymcache_dra_claims", "Claims on this node, by phase", ["phase"], registry=self.registry)
        self.unreadable = Gauge(
            "hymcache_dra_checkpoints_unreadable", "Claims whose checkpoint cannot be read", registry=self.registry
        )
        self.cable_up = Gauge(
            "hymcache_dra_cable_up", "1 if the appliance answers on this cable", ["blade"], registry=self.registry
        )
        self.formats = Counter(
            "hymcache_dra_regions_formatted", "Regions formatted by this host", registry=self.registry
        )
        self.repairs = Counter(
            "hymcache_dra_repairs",
            "Things found missing or stale on the node and put right: cdi, socket, region",
            ["what"],
            registry=self.registry,
        )
        self.api_errors = Counter(
            "hymcache_dra_api_errors", "Failed requests to the API server", ["verb"], registry=self.registry
        )
        self.heartbeat = Gauge(
            "hymcache_dra_heartbeat_timestamp_seconds",
            "When the CXLNode heartbeat was last written",
            registry=self.registry,
        )
        self.registered = Gauge(
            "hymcache_dra_registered", "1 once the kubelet has accepted the plugin", registry=self.registry
        )
