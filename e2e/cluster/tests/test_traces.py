"""What a cluster leaves on a machine is seen, and only what was not there before it is taken away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import traces


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folders of this test's own in place of the machine's; no firewall."""
    for name in ("RUN", "NETNS", "MODULES", "NETAVARK"):
        monkeypatch.setattr(traces, name, tmp_path / name.lower())
    monkeypatch.setattr(traces, "SHARED", (tmp_path / "shared",))
    monkeypatch.setattr(traces, "HOME", ())
    networks = tmp_path / "netavark"
    monkeypatch.setattr(traces, "STATE", (networks / "aardvark-dns", networks, tmp_path / "modules"))
    monkeypatch.setattr(traces, "_chains", list)
    (tmp_path / "shared").mkdir()
    return tmp_path


def fill(machine: Path) -> None:
    for name in ("run/appliance", "netavark/aardvark-dns", "modules"):
        (machine / name).mkdir(parents=True)
    for name in traces.NETAVARK_FILES:
        (machine / "netavark" / name).touch()


def test_all_that_is_new_is_taken_away(machine: Path) -> None:
    before = traces.seen()
    fill(machine)
    assert traces.seen() - before >= {f"path {machine / name}" for name in ("run", "netavark", "modules")}
    traces.restore(before)
    assert traces.seen() == before


def test_what_was_there_before_stays(machine: Path) -> None:
    fill(machine)
    traces.restore(traces.seen())
    assert sorted(path.name for path in machine.iterdir()) == ["modules", "netavark", "shared"]
    assert (machine / "netavark" / "ipam.db").exists()


def test_folder_that_somebody_uses_stays(machine: Path) -> None:
    before = traces.seen()
    fill(machine)
    (machine / "netavark/aardvark-dns/another-network").touch()
    traces.restore(before)
    assert (machine / "netavark" / "ipam.db").exists()


@pytest.mark.parametrize(("name", "counts"), [("hymcache-wheels-x", True), ("podman123", True), ("notes.txt", False)])
def test_files_of_our_tools_in_shared_folders_are_seen(machine: Path, name: str, counts: bool) -> None:
    (machine / "shared" / name).touch()
    assert (f"path {machine / 'shared' / name}" in traces.seen()) is counts


def test_process_of_the_container_engine_is_seen(machine: Path) -> None:
    before = traces.seen()
    words = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)", str(machine / "run")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # until then the kernel may not show its arguments
        try:
            assert traces.seen() - before == {f"process {sys.executable}"}
        finally:
            child.kill()
