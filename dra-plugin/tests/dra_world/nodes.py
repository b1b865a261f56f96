"""A node: folders, a cable, a plugin in this process, a kubelet and a container runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hymcache.dra.metrics import Metrics
from hymcache.dra.plugin import Plugin, assemble
from hymcache.dra.settings import Settings

from controlplane.kubelet import ClaimKey, Container, Kubelet, Runtime
from controlplane.waiting import wait
from dra_world.api import MemoryApi, Object
from dra_world.appliance import Appliance
from dra_world.contents import Contents

DRIVER = "hymcache.io"


def settings(folder: Path, node: str, cables: Path, **changes: Any) -> Settings:
    """Settings of a plugin under `folder`, with waits short enough for tests."""
    (folder / "boot-id").parent.mkdir(parents=True, exist_ok=True)
    if not (folder / "boot-id").exists():
        (folder / "boot-id").write_text(f"boot-of-{node}\n")
    values: dict[str, Any] = {
        "node_name": node,
        "plugin_dir": folder / "plugin",
        "registry_dir": folder / "registry",
        "cdi_dir": folder / "cdi",
        "cable_dir": cables,
        "boot_id_path": folder / "boot-id",
        "listen": "",
        "prepare_wait_seconds": 30.0,
        "sync_seconds": 0.1,
        "heartbeat_seconds": 0.2,
        "counters_seconds": 0.2,
        "cable_timeout_seconds": 5.0,
        "stop_grace_seconds": 1.0,
        **changes,
    }
    return Settings(_cli_parse_args=False, **values)  # type: ignore[call-arg]


class NodeUnderTest:
    """`plugin` is the running one; `restart` ends it and starts another on the same folders."""

    def __init__(self, folder: Path, name: str, api: MemoryApi, appliance: Appliance, **changes: Any) -> None:
        self.name = name
        self.api = api
        self.contents = Contents()
        self.cables = appliance.folder / name if (appliance.folder / name).exists() else appliance.cable(name)
        self.settings = settings(folder, name, self.cables, **changes)
        self.metrics = Metrics()
        self.kubelet = Kubelet(self.settings.registry_dir, driver=DRIVER)
        self.runtime = Runtime(self.settings.cdi_dir)
        self.plugin: Plugin | None = None

    def start(self) -> NodeUnderTest:
        self.plugin = self.another(self.settings)
        wait("the plugin to register", lambda: self.kubelet.watcher.plugin(DRIVER))
        return self

    def another(self, settings: Settings) -> Plugin:
        """A second plugin on this node's folders, started."""
        settings.registry_dir.mkdir(parents=True, exist_ok=True)
        plugin = Plugin(assemble(settings, self.api, self.contents, self.metrics))
        plugin.start()
        return plugin

    def stop(self) -> None:
        if self.plugin is not None:
            self.plugin.close()
            self.plugin = None

    def restart(self) -> None:
        self.stop()
        wait("the kubelet to notice", lambda: self.kubelet.watcher.plugin(DRIVER) is None)
        self.start()

    def close(self) -> None:
        self.kubelet.close()
        self.stop()

    def prepare(self, claim: Object, pod: str = "pod-1") -> Container:
        """Prepare the claim for a pod, and create its container."""
        return self.runtime.container(self.kubelet.prepare(pod, ClaimKey.of(claim)).cdi_ids)

    def left_behind(self) -> list[str]:
        """Everything of claims that is still on the node: checkpoint, sockets, CDI files.

        Lock files come and go with the keeper's turns; `lock_files` is for those who wait.
        """
        folders = [self.settings.plugin_dir / name for name in ("claims", "pods")]
        found = [path for folder in [*folders, self.settings.cdi_dir] if folder.is_dir() for path in folder.iterdir()]
        return sorted(str(path) for path in found)

    def lock_files(self) -> list[Path]:
        """Locks that are held now, or that a killed process has left."""
        return list((self.settings.plugin_dir / "locks").iterdir())
