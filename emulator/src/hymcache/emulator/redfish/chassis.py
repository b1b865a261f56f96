"""Payloads below the chassis: the memory domain, its chunks, the logical devices that hosts see."""

from __future__ import annotations

import hashlib

from hymcache.emulator.model import MIB, Chunk, ChunkState
from hymcache.emulator.redfish import urls
from hymcache.emulator.redfish.urls import BladeUrls, Payload, link
from hymcache.emulator.settings import Settings
from hymcache.emulator.view import View

STATES = {
    ChunkState.ALLOCATING: "Starting",
    ChunkState.READY: "Enabled",
    ChunkState.RELEASING: "UnavailableOffline",
}
OK = {"State": "Enabled", "Health": "OK"}


def gcxlid(blade: str, logical_device: int) -> str:
    """The name that a logical device has everywhere: an EUI-64 made from the blade's name, and the device's number."""
    serial = bytearray(hashlib.sha256(f"hymcache blade {blade}".encode()).digest()[:8])
    serial[0] = serial[0] & 0xFC | 0x02  # locally administered, unicast
    return f"{'-'.join(f'{byte:02X}' for byte in serial)}:{logical_device:04X}"


def collection(kind: str, name: str, path: str, members: list[str]) -> Payload:
    """A resource collection."""
    return {
        "@odata.id": path,
        "@odata.type": f"#{kind}.{kind}",
        "Name": name,
        "Members@odata.count": len(members),
        "Members": [link(member) for member in members],
    }


def chassis(settings: Settings) -> Payload:
    """The blade."""
    at = BladeUrls(settings.blade)
    return {
        "@odata.id": at.chassis,
        "@odata.type": "#Chassis.v1_28_0.Chassis",
        "Id": settings.blade,
        "Name": f"Memory blade {settings.blade}",
        "ChassisType": "Blade",
        "Manufacturer": "HyMCache",
        "Model": "Emulated CXL memory appliance",
        "SerialNumber": gcxlid(settings.blade, 0).split(":")[0],
        "PowerState": "On",
        "Status": OK,
        "PCIeDevices": link(at.devices),
        "MemoryDomains": link(at.domains),
    }


def domain(settings: Settings, view: View) -> Payload:
    """The memory domain. Free bytes are its size less its chunks, as in every Redfish service; `Oem` says the rest."""
    at = BladeUrls(settings.blade)
    return {
        "@odata.id": at.domain,
        "@odata.type": "#MemoryDomain.v1_5_1.MemoryDomain",
        "Id": "1",
        "Name": f"Memory of {settings.blade}",
        "Description": "Memory that hosts reach through the CXL fabric",
        "Status": OK,
        "AllowsMemoryChunkCreation": True,
        "AllowsBlockProvisioning": False,
        "MinMemoryChunkSizeMiB": settings.granule_bytes // MIB,
        "MemoryChunkIncrementMiB": settings.granule_bytes // MIB,
        "MemorySizeMiB": settings.capacity_bytes // MIB,
        "MemoryChunks": link(at.chunks),
        "Links": {"CXLLogicalDevices": [link(at.logical_device(0))]},
        "Oem": {
            "HyMCache": {
                "@odata.type": "#HyMCacheMemoryDomain.v1_0_0.MemoryDomain",
                "Media": settings.media.value,
                "Coherence": settings.coherence.value,
                "MaxHostsPerChunk": settings.hosts_max,
                "MaxRegions": settings.regions_max,
                "FreeMiB": view.free_bytes // MIB,
                "PowerEpoch": view.power_epoch,
            }
        },
    }


def chunk(settings: Settings, found: Chunk) -> Payload:
    """One chunk: `Name` is what it was composed as, and what hosts ask their cable for."""
    at = BladeUrls(settings.blade)
    return {
        "@odata.id": at.chunk(found.id),
        "@odata.type": "#MemoryChunks.v1_6_2.MemoryChunks",
        "Id": found.id,
        "Name": found.name,
        "Status": {"State": STATES[found.state], "Health": "OK"},
        "MemoryChunkSizeMiB": found.bytes // MIB,
        "AddressRangeType": "Volatile",
        "AddressRangeOffsetMiB": 0,
        "MediaLocation": "Local",
        "RequestedOperationalState": "Online",
        "Links": {
            "CXLLogicalDevices": [link(at.logical_device(found.logical_device))],
            "Endpoints": [link(urls.target(found.id))],
        },
    }


def device(settings: Settings) -> Payload:
    """The CXL device of the blade."""
    at = BladeUrls(settings.blade)
    return {
        "@odata.id": at.device,
        "@odata.type": "#PCIeDevice.v1_21_0.PCIeDevice",
        "Id": "1",
        "Name": f"CXL device of {settings.blade}",
        "Status": OK,
        "CXLDevice": {"DeviceType": "Type3"},
        "CXLLogicalDevices": link(at.logical_devices),
        "Links": {"Chassis": [link(at.chassis)]},
    }


def logical_devices(settings: Settings, view: View) -> Payload:
    """The logical devices: the pool and one for each chunk."""
    at = BladeUrls(settings.blade)
    numbers = [0, *(found.logical_device for found in view.chunks.values())]
    members = [at.logical_device(number) for number in numbers]
    return collection("CXLLogicalDeviceCollection", "CXL logical devices", at.logical_devices, members)


def logical_device(settings: Settings, view: View, number: int) -> Payload | None:
    """A logical device: what a host's kernel would enumerate, known by its GCXLID."""
    at = BladeUrls(settings.blade)
    if number == 0:
        size, name = settings.capacity_bytes, f"Pool of {settings.blade}"
        links = {"MemoryDomains": [link(at.domain)]}
    else:
        found = next((one for one in view.chunks.values() if one.logical_device == number), None)
        if found is None:
            return None
        size, name = found.bytes, found.name
        links = {"MemoryChunks": [link(at.chunk(found.id))], "Endpoints": [link(urls.target(found.id))]}
    return {
        "@odata.id": at.logical_device(number),
        "@odata.type": "#CXLLogicalDevice.v1_3_0.CXLLogicalDevice",
        "Id": str(number),
        "Name": name,
        "Status": OK,
        "Identifiers": [{"DurableName": gcxlid(settings.blade, number), "DurableNameFormat": "GCXLID"}],
        "MemorySizeMiB": size // MIB,
        "SemanticsSupported": ["CXLmem"],
        "Links": links,
    }
