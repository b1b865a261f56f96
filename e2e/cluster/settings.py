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

CABLES = RUN / "cables"
"""Host folder that every node sees as CABLES_ON_NODE: the appliance puts its sockets there, one folder per host."""
CABLES_ON_NODE = Path("/var/lib/hymcache/cables")

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
