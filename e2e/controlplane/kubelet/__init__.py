"""An emulated kubelet and container runtime: what the two do with a DRA plugin and its CDI files, over real sockets.

`Kubelet` registers plugins and prepares claims as the kubelet of 1.34-1.37 does, with its habits that hurt: a claim is
prepared once per node however many pods use it, a call is cut at 45 s while it still runs in the plugin, "prepared" is
forgotten at a restart, and a claim goes when its last pod on the node goes. `Runtime` reads CDI files by the rules of
containerd. `PodRunner` lives on a real API server and runs the pods that are bound to a node. Container processes are
the one thing that does not exist.
"""

from controlplane.kubelet.kubelet import ClaimKey, Kubelet, NotPreparedError
from controlplane.kubelet.plugins import HealthReport, PluginWatcher
from controlplane.kubelet.pods import PodRunner
from controlplane.kubelet.runtime import Container, CreateContainerError, Runtime

__all__ = [
    "ClaimKey",
    "Container",
    "CreateContainerError",
    "HealthReport",
    "Kubelet",
    "NotPreparedError",
    "PluginWatcher",
    "PodRunner",
    "Runtime",
]
