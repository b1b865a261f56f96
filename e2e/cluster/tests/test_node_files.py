"""What is changed in kind's own files: only what this machine needs, whatever else the file says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster import node_image
from cluster.node_image import Parts, configure_containerd, configure_units, copy_tree

CONFIG = """\
version = 2

[proxy_plugins]
# fuse-overlayfs is used for rootless
[proxy_plugins."fuse-overlayfs"]
  type = "snapshot"
  address = "/run/containerd-fuse-overlayfs.sock"

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  tolerate_missing_hugepages_controller = true
  restrict_oom_score_adj = false
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("etc/containerd", "etc/systemd/system/multi-user.target.wants", "lib/systemd/system"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    (tmp_path / "root/etc/containerd/config.toml").write_text(CONFIG)
    return tmp_path / "root"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    made: list[list[str]] = []

    def record(argv: list[object], **_: object) -> str:
        made.append([str(word) for word in argv])
        return json.dumps({"process": {"rlimits": [{"type": "RLIMIT_NOFILE"}], "args": ["sh"]}, "mounts": []})

    monkeypatch.setattr(node_image, "run", record)
    return made


def test_containerd_gets_our_pause_image_and_no_missing_snapshotter(root: Path, calls: list[list[str]]) -> None:
    configure_containerd(root, Parts(Path("a"), Path("b"), Path("c"), Path("d")))
    text = (root / "etc/containerd/config.toml").read_text()
    assert "pause:3.10.2" in text
    assert "restrict_oom_score_adj = true" in text
    assert "fuse-overlayfs" not in text
    for kept in ('snapshotter = "overlayfs"', "tolerate_missing_hugepages_controller = true", "version = 2"):
        assert kept in text


def test_containers_keep_the_limits_they_are_started_with(root: Path, calls: list[list[str]]) -> None:
    configure_containerd(root, Parts(Path("a"), Path("b"), Path("c"), Path("d")))
    spec = json.loads((root / "etc/containerd/cri-base.json").read_text())
    assert spec["process"] == {"args": ["sh"]}


def test_only_wanted_units_stay_enabled(root: Path, calls: list[list[str]]) -> None:
    (root / "etc/systemd/journald.conf").write_text("[Journal]\n")
    stray = root / "etc/systemd/system/multi-user.target.wants/e2scrub.service"
    stray.touch()
    configure_units(root)
    assert not stray.exists()
    enabled = {words[-1] for words in calls if "enable" in words}
    assert enabled == {"kubelet.service", "containerd.service", "undo-mount-hacks.service", "podnet.service"}


def test_scripts_become_executable_and_data_does_not(tmp_path: Path, root: Path) -> None:
    source = tmp_path / "files"
    (source / "usr/local/bin").mkdir(parents=True)
    (source / "usr/local/bin/tool").write_text("#!/bin/sh\n")
    (source / "usr/local/data").write_text("data")
    copy_tree(source, root)
    assert (root / "usr/local/bin/tool").stat().st_mode & 0o777 == 0o755
    assert (root / "usr/local/data").stat().st_mode & 0o777 == 0o644
