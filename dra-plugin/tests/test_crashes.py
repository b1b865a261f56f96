"""The plugin is killed at each write of a claim's life, one by one; the life ends the same, and nothing is left."""

from __future__ import annotations

import os
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from hymcache.region import Region

from controlplane.kubelet import ClaimKey, Container, Kubelet, NotPreparedError, Runtime
from controlplane.waiting import wait
from dra_world import crashing
from dra_world.api import MemoryApi, Object
from dra_world.appliance import Appliance, is_clean
from dra_world.nodes import DRIVER, settings
from dra_world.operator import PREFIX, Operator

WRITES_MAX = 200  # more than a life has; the test says how many it found
SHARDS = [*(pytest.param(n, 4, False, id=str(n)) for n in range(4)), pytest.param(0, 3, True, id="dirty memory")]
"""First write that kills, distance to the next one, whether the memory comes with another owner's bytes."""


class Life:
    """One node whose plugin dies on the way; every step is repeated, as the kubelet does, until it succeeds."""

    def __init__(self, folder: Path, api: MemoryApi, appliance: Appliance, crashes: list[int]) -> None:
        self.api = api
        self.crashes = crashes
        self.died = 0
        self.settings = settings(folder, "node-a", appliance.cable("node-a"), sync_seconds=0.05)
        self.kubelet = Kubelet(self.settings.registry_dir, driver=DRIVER)
        self.runtime = Runtime(self.settings.cdi_dir)
        self.api_path = folder / "api.sock"
        self.end_api = crashing.serve(api, self.api_path)
        self.process: BaseProcess | None = None

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join(10)
        self.kubelet.close()
        self.end_api()

    def keep_running(self) -> None:
        """What a DaemonSet does. The first plugins die as planned, the last one lives."""
        if self.process is not None and self.process.is_alive():
            return
        if self.process is not None:
            assert self.process.exitcode == -signal.SIGKILL, f"ended by itself with {self.process.exitcode}"
            self.died += 1
        after = self.crashes.pop(0) if self.crashes else 0
        self.process = crashing.start(self.settings, self.api_path, crash_after=after)

    def prepare(self, claim: Object) -> Container:
        def attempt() -> Container | None:
            self.keep_running()
            try:
                held = self.kubelet.prepare("pod-1", ClaimKey.of(claim), seconds=10)
                return self.runtime.container(held.cdi_ids)
            except NotPreparedError:
                return None

        return wait("Prepare", attempt, seconds=60)

    def unprepare(self) -> None:
        def attempt() -> bool:
            self.keep_running()
            try:
                self.kubelet.unprepare("pod-1", seconds=10)
            except NotPreparedError:
                return False
            return True

        wait("Unprepare", attempt, seconds=60)

    def opened(self, claim: Object) -> int:
        """The region's descriptor, as a new container of the pod gets it."""

        def attempt() -> int | None:
            self.keep_running()
            try:
                names = self.kubelet.claims[claim["metadata"]["uid"]].cdi_ids
                return self.runtime.container(names).region()[0]
            except Exception:  # the plugin is down, or is about to serve again
                return None

        return wait("the region", attempt, seconds=60)

    def left(self) -> list[str]:
        folders = [self.settings.plugin_dir / name for name in ("claims", "locks", "reports", "pods")]
        found = [path for folder in [*folders, self.settings.cdi_dir] if folder.is_dir() for path in folder.iterdir()]
        return [path.name for path in found]


def holds_key(memory: int) -> bool:
    with Region.attach(memory, read_only=True) as region:
        return region.namespace(bytes(32)).contains([b"key"]) == b"\1"


def live(life: Life, operator: Operator, appliance: Appliance, number: int) -> None:
    """Prepare, use, unprepare; then look at everything that could be wrong."""
    claim = life.api.add_claim(f"kv-{number}")
    region = operator.region_of(claim)
    first = life.prepare(claim)
    memory = appliance.regions[PREFIX + region]
    with Region.attach(memory, domain=0, host="node-a") as user:
        assert user.namespace(bytes(32)).put(b"key", b"value")
    descriptor = life.opened(claim)
    assert holds_key(descriptor)
    os.close(descriptor)
    life.kubelet.restart()
    assert life.prepare(claim) == first, "a second Prepare must give the same answer"
    life.unprepare()

    def settled() -> bool:
        life.keep_running()
        entry = life.api.host(region, "node-a")
        found = (entry.get("desired"), entry.get("state"), life.left(), appliance.connections)
        if found != ("Detached", "Released", [], set()):
            raise LookupError(found)
        return True

    wait("nothing to be left", settled, seconds=60)
    assert holds_key(memory), "the region was formatted again"
    assert is_clean(memory), "bytes of another owner are left"
    assert life.api.read("CXLRegion", region)["status"]["scrub"]
    appliance.release(PREFIX + region)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("shard", "stride", "dirty"), SHARDS)
def test_killed_at_any_write_the_claim_ends_the_same(
    shard: int, stride: int, dirty: bool, short_path: Path, api: MemoryApi, appliance: Appliance, operator: Operator
) -> None:
    appliance.dirty = operator.hosts_scrub = dirty
    for after in range(1 + shard, WRITES_MAX, stride):
        folder = short_path / str(after)
        folder.mkdir()
        # The second plugin dies as well, early in its recovery; the third one lives.
        life = Life(folder, api, appliance, [after, 1 + after % 11])
        try:
            live(life, operator, appliance, after)
            died = life.died
        finally:
            life.close()
            appliance.cut("node-a")
        if not died:
            assert after > 20, "a life has more writes than that: the countdown does not see them"
            return
    raise AssertionError(f"a life has more than {WRITES_MAX} writes")
