"""Names, places and versions of the test cluster: one place for all of them."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("HYMCACHE_CACHE") or Path.home() / ".cache" / "hymcache").expanduser()

CLUSTER = "hymcache-e2e"
"""Name of the kind cluster and of its network; nothing of another name is ever deleted."""

RUN = Path("/run") / CLUSTER
"""State of a running cluster: container locks, kubeconfig. Gone after a reboot, as the containers are."""

APPLIANCE = RUN / "appliance"
"""Host folder that every node sees as APPLIANCE_ON_NODE: the appliance puts its sockets there, one folder per host."""
APPLIANCE_ON_NODE = "/var/lib/hymcache/appliance"
CABLES_ON_NODE = "/var/lib/hymcache/cables"
"""Where a node finds its own sockets and no other's: its folder of the above, mounted there."""
BOOT_ID_ON_NODE = "/run/hymcache/boot-id"
"""Nodes are containers of one machine and share its kernel's boot id: each gets one of its own."""
VLLM_ON_NODE = "/opt/vllm"
MODELS_ON_NODE = "/models"
"""vLLM's environment and models, mounted into every container of a node; elsewhere an image or a volume has them."""

NAMESPACE = "hymcache"
RELEASE = "hymcache"
CHART = ROOT / "charts" / "hymcache"

KUBECONFIG = RUN / "kubeconfig"
DUMPS = ROOT / "out" / "dumps"

NODE_IMAGE = os.environ.get("E2E_NODE_IMAGE", "")
"""Reference of a kind node image to use instead of the one that is built here."""

DEBIAN = "bookworm"
KUBERNETES = "v1.37.2"
ETCD_TAG = "3.7.0-0"
COREDNS_TAG = "v1.14.6"
PAUSE_TAG = "3.10.2"
"""Tags that kubeadm of this Kubernetes names (cmd/kubeadm/app/constants)."""

DISK_GIB = 25
"""Free disk that a cold start needs: Go's caches 6, file systems and images 6, the vLLM environment 7, containers 4."""
