"""The guest's CXL memory as a device-dax node, by sysfs (Documentation/ABI/testing/sysfs-bus-{cxl,dax})."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

CXL = Path("/sys/bus/cxl")
DAX = Path("/sys/bus/dax")
T = TypeVar("T")


def compose(size: int) -> str:
    """Set up a region of volatile memory, a multiple of 256 MiB; returns its device, still without driver."""
    window = CXL / "devices/decoder0.0"
    name = (window / "create_ram_region").read_text().strip()
    (window / "create_ram_region").write_text(name)
    region = CXL / "devices" / name
    decoder = next(CXL.glob("devices/endpoint*/decoder*.0"))
    for path, value in (
        (region / "interleave_granularity", "256"),
        (region / "interleave_ways", "1"),
        (decoder / "mode", "ram"),
        (decoder / "dpa_size", str(size)),
        (region / "size", str(size)),
        (region / "target0", decoder.name),
        (region / "commit", "1"),
        (CXL / "drivers/cxl_region/bind", name),
    ):
        path.write_text(value)
    return _wait(lambda: next((path.name for path in (DAX / "devices").glob("dax*")), None))


def composed() -> str:
    """The device that is there, or else one of all the memory there is."""
    found = next((path.name for path in (DAX / "devices").glob("dax*")), None)
    return found or compose(int((CXL / "devices/mem0/ram/size").read_text(), 0))


def enable(device: str) -> Path:
    """Give a device its driver; returns its node once it is there."""
    driver = DAX / "drivers/device_dax"
    if (DAX / "devices" / device / "driver").exists():
        return Path("/dev") / device
    try:
        (driver / "new_id").write_text(device)
    except OSError:
        (driver / "bind").write_text(device)
    node = Path("/dev") / device
    _wait(lambda: node.is_char_device() and (DAX / "devices" / device / "driver").exists())
    return node


def disable(device: str) -> None:
    """Take a device's driver away, whoever has it mapped: they get SIGBUS. Never open the node again while one does."""
    (DAX / "drivers/device_dax/unbind").write_text(device)


def shape(device: str, *, size: int, align: int = 2 << 20) -> Path:
    """Give a device other bytes and another alignment, which takes its driver away for a moment; returns its node."""
    folder = DAX / "devices" / device
    if (folder / "driver").exists():
        disable(device)
    if align > int((folder / "align").read_text()):
        (folder / "size").write_text(str(size))
        (folder / "align").write_text(str(align))
    else:
        (folder / "align").write_text(str(align))
        (folder / "size").write_text(str(size))
    return enable(device)


def _wait(condition: Callable[[], T]) -> T:
    """What the condition gives once it holds."""
    deadline = time.monotonic() + 5
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("the kernel did not make the device within 5 s; see dmesg")
        time.sleep(0.02)
    return found
