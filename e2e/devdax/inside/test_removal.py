"""A device that is taken away under a process: the region is lost, the process is not."""

from __future__ import annotations

import time
from collections.abc import Callable

import memory
import pytest
from hymcache.region import Region

from conftest import MIB, Node, Process


@pytest.mark.parametrize("read_only", [False, True])
def test_a_disabled_device_is_a_lost_region_and_a_living_process(
    node: Node, process: Callable[..., Process], read_only: bool
) -> None:
    Region.format(node.path, lock_file=node.lock_file, domains=2)
    writer = process(domain=0)
    for number in range(4):
        assert writer.ask("put", str(number), 2 * MIB)
    victim = process(domain=1, read_only=read_only)
    assert victim.ask("get", "0", 2 * MIB) == "same"
    memory.disable(node.name)
    for number in range(4):
        assert victim.ask("get", str(number), 2 * MIB) == "miss"
    assert not victim.ask("put", "new", MIB)
    assert not writer.ask("put", "new", MIB)
    time.sleep(1)  # janitors look
    for one in (writer, victim):
        assert one.ask("info")["lost"]
        print(one.ask("stats"))
        assert one.is_alive()
        one.close()
    memory.enable(node.name)
    with Region.attach(node.path, lock_file=node.lock_file) as region:
        assert not region.info().lost
