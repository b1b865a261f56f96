"""A node with the real plugin as a process, a kubelet, a runtime, and the pods that the scheduler binds to it."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path

from controlplane.kubelet import Container, Kubelet, PodRunner, Runtime
from controlplane.plane import ControlPlane
from controlplane.process import Process
from controlplane.waiting import wait

DRIVER = "hymcache.io"
QUICK = {
    "prepare-wait-seconds": "20",
    "sync-seconds": "0.5",
    "heartbeat-seconds": "1",
    "counters-seconds": "1",
    "stop-grace-seconds": "2",
    "listen": "",
}
"""Settings of a test: times that a test can wait for."""


class PluginNode:
    """One node. The plugin has the rights of its service account, bound to this node; the kubelet is the admin.

    Args:
        account: (namespace, service account) of the plugin.
        cables: this host's folder of each appliance, with its socket in it.
        entry: the plugin's program, module and function.
    """

    def __init__(
        self,
        plane: ControlPlane,
        node: str,
        *,
        account: tuple[str, str],
        cables: list[Path],
        logs: Path,
        settings: dict[str, str] | None = None,
        entry: str = "hymcache.dra.main:main",
    ) -> None:
        self.node = node
        self.folder = Path(tempfile.mkdtemp(prefix="hym-", dir="/tmp"))  # short: socket addresses are
        self.boot_id_path = self.folder / "boot-id"
        self.reboot()
        self._lay(cables)
        kubeconfig = plane.kubeconfig(f"plugin-{node}", plane.token(*account, node=node))
        flags = {
            "node-name": node,
            "kubeconfig": str(kubeconfig),
            "boot-id-path": str(self.boot_id_path),
            "plugin-dir": str(self.folder / "plugin"),
            "registry-dir": str(self.folder / "registry"),
            "cdi-dir": str(self.folder / "cdi"),
            "cable-dir": str(self.folder / "cables"),
            **QUICK,
            **(settings or {}),
        }
        argv = [f"--{name}={value}" for name, value in flags.items()]
        self.plugin = Process(f"plugin-{node}", argv, logs / f"plugin-{node}.log", entry=entry)
        self.kubelet = Kubelet(self.folder / "registry", driver=DRIVER)
        self.runtime = Runtime(self.folder / "cdi")
        self.pods = PodRunner(plane.api, node, self.kubelet, self.runtime)

    def _lay(self, cables: list[Path]) -> None:
        target = self.folder / "cables"
        target.mkdir()
        for folder in cables:
            for socket in folder.glob("*.sock"):
                (target / socket.name).symlink_to(socket)

    def start(self) -> None:
        """Start the plugin, or start it again, and wait until the kubelet has accepted it."""
        self.plugin.start()

        def registered() -> bool:
            self.plugin.require_running()
            return self.kubelet.watcher.plugin(DRIVER) is not None

        wait(f"the plugin of {self.node} to register", registered)

    def close(self) -> None:
        """End everything; pods of the node are not told."""
        self.pods.close()
        self.kubelet.close()
        self.plugin.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def reboot(self) -> None:
        """Another boot of the host, as far as files tell: the CDI folder is a tmpfs."""
        self.boot_id_path.write_text(f"{uuid.uuid4()}\n")
        shutil.rmtree(self.folder / "cdi", ignore_errors=True)

    @property
    def errors(self) -> list[str]:
        """What went wrong with any pod of the node."""
        return [event for running in list(self.pods.pods.values()) for event in running.events]

    def container(self, pod: str) -> Container | None:
        """What the pod's container has got, None before it was created."""
        running = self.pods.find(pod)
        return running.container if running else None

    def events(self, pod: str) -> list[str]:
        """What the kubelet would have said in events on the pod."""
        running = self.pods.find(pod)
        return running.events if running else []

    def left_behind(self) -> list[str]:
        """Everything of claims that is still on the node: checkpoint, locks, sockets, CDI files."""
        folders = [self.folder / "plugin" / name for name in ("claims", "locks", "reports", "pods")]
        found = [path for folder in [*folders, self.folder / "cdi"] if folder.is_dir() for path in folder.iterdir()]
        return sorted(str(path.relative_to(self.folder)) for path in found)
