"""What is kept when a test on the cluster fails: objects, events, logs of all pods, and the nodes' side of it."""

from __future__ import annotations

from pathlib import Path

from cluster import kind
from cluster.command import CommandError
from controlplane import dump
from controlplane.api import POD, Api

NODE_FILES = """for path in /var/run/cdi /var/lib/kubelet/plugins/hymcache.io /var/lib/kubelet/plugins_registry \
/var/lib/hymcache; do
  echo "=== $path"; find "$path" -printf '%y %m %u %s %p\\n' 2>/dev/null
done
find /var/run/cdi /var/lib/kubelet/plugins/hymcache.io -type f -size -64k 2>/dev/null | while read -r file; do
  echo "=== $file"; cat "$file"; echo
done"""
JOURNAL = "journalctl --no-pager --lines 400 --unit kubelet --unit containerd --unit podnet"
LOG_LINES = "2000"


def _keep(path: Path, *command: str, node: str = "") -> None:
    """Output of a command in a file; a failure is written there instead."""
    try:
        text = kind.on_node(node, *command, seconds=60) if node else kind.kubectl(*command, seconds=60)
    except CommandError as error:
        text = f"not readable: {error}\n"
    path.write_text(text)


def write(api: Api, folder: Path) -> Path:
    """Write everything into `folder` and return it."""
    dump.write(api, folder)
    for pod in api.list(POD):
        meta = pod["metadata"]
        if meta["namespace"] == "kube-system":
            continue
        name = f"{meta['namespace']}.{meta['name']}"
        words = ["--namespace", meta["namespace"], "logs", meta["name"], "--all-containers", "--tail", LOG_LINES]
        _keep(folder / f"{name}.log", *words)
        if any(c.get("restartCount") for c in pod.get("status", {}).get("containerStatuses", [])):
            _keep(folder / f"{name}.previous.log", *words, "--previous")
    for node in kind.nodes():
        _keep(folder / f"{node}.files.txt", "bash", "-c", NODE_FILES, node=node)
        _keep(folder / f"{node}.journal.txt", "bash", "-c", JOURNAL, node=node)
    return folder
