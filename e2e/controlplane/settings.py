"""What a control plane is started with."""

from __future__ import annotations

from dataclasses import dataclass, field

CONTROLLERS = (
    "resourceclaim-controller",
    "device-taint-eviction-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
    "pod-garbage-collector-controller",
    "validatingadmissionpolicy-status-controller",
    "deployment-controller",
    "replicaset-controller",
    "daemonset-controller",
    "job-controller",
)


@dataclass(frozen=True)
class Settings:
    """Choices a test may make; the defaults are those of a kubeadm cluster.

    Attributes:
        binding_timeout_seconds: how long the scheduler waits for a device's binding conditions (None: its default,
            600). Short values show what a timeout does.
        controllers: what kube-controller-manager runs. Node lifecycle is left out: nobody sends heartbeats for a fake
            node, and its Ready condition has to stay as the test set it.
        feature_gates: gates that differ from the version's defaults, for all components.
        ready_seconds: how long a start may take on a loaded machine before it is a failure.
    """

    binding_timeout_seconds: int | None = None
    controllers: tuple[str, ...] = CONTROLLERS
    feature_gates: dict[str, bool] = field(default_factory=dict)
    ready_seconds: float = 90.0
