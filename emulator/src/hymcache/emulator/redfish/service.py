"""Payloads of the service itself: its root, sessions and tasks, and the two documents that OData asks for."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5
from xml.sax.saxutils import quoteattr

from hymcache.emulator.redfish import urls
from hymcache.emulator.redfish.chassis import OK
from hymcache.emulator.redfish.urls import Payload, link
from hymcache.emulator.settings import Settings

REDFISH_VERSION = "1.20.0"
SCHEMAS = {
    "ServiceRoot": "v1_20_0",
    "ChassisCollection": None,
    "Chassis": "v1_28_0",
    "MemoryDomainCollection": None,
    "MemoryDomain": "v1_5_1",
    "MemoryChunksCollection": None,
    "MemoryChunks": "v1_6_2",
    "PCIeDeviceCollection": None,
    "PCIeDevice": "v1_21_0",
    "CXLLogicalDeviceCollection": None,
    "CXLLogicalDevice": "v1_3_0",
    "FabricCollection": None,
    "Fabric": "v1_4_0",
    "EndpointCollection": None,
    "Endpoint": "v1_8_2",
    "ConnectionCollection": None,
    "Connection": "v1_4_0",
    "ZoneCollection": None,
    "Zone": "v1_6_3",
    "SwitchCollection": None,
    "Switch": "v1_11_0",
    "PortCollection": None,
    "Port": "v1_18_0",
    "SessionService": "v1_2_0",
    "SessionCollection": None,
    "Session": "v1_8_0",
    "TaskService": "v1_3_0",
    "TaskCollection": None,
    "Task": "v1_7_4",
    "Message": "v1_3_0",
}


def root(settings: Settings) -> Payload:
    """The service root."""
    return {
        "@odata.id": f"{urls.ROOT}/",
        "@odata.type": "#ServiceRoot.v1_20_0.ServiceRoot",
        "Id": "RootService",
        "Name": f"Memory appliance {settings.blade}",
        "Vendor": "HyMCache",
        "Product": "HyMCache appliance emulator",
        "RedfishVersion": REDFISH_VERSION,
        "UUID": str(uuid5(NAMESPACE_URL, f"hymcache:blade:{settings.blade}")),
        "ProtocolFeaturesSupported": {
            "FilterQuery": False,
            "SelectQuery": False,
            "ExcerptQuery": False,
            "OnlyMemberQuery": False,
            "ExpandQuery": {"Links": False, "NoLinks": True, "ExpandAll": False, "Levels": True, "MaxLevels": 1},
        },
        "Chassis": link(urls.CHASSIS),
        "Fabrics": link(urls.FABRICS),
        "SessionService": link(urls.SESSION_SERVICE),
        "Tasks": link(urls.TASK_SERVICE),
        "Links": {"Sessions": link(urls.SESSIONS)},
    }


def session_service(timeout_seconds: int) -> Payload:
    """The session service."""
    return {
        "@odata.id": urls.SESSION_SERVICE,
        "@odata.type": "#SessionService.v1_2_0.SessionService",
        "Id": "SessionService",
        "Name": "Sessions",
        "Status": OK,
        "ServiceEnabled": True,
        "SessionTimeout": timeout_seconds,
        "Sessions": link(urls.SESSIONS),
    }


def task_service(now: str) -> Payload:
    """The task service."""
    return {
        "@odata.id": urls.TASK_SERVICE,
        "@odata.type": "#TaskService.v1_3_0.TaskService",
        "Id": "TaskService",
        "Name": "Tasks",
        "Status": OK,
        "ServiceEnabled": True,
        "DateTime": now,
        "CompletedTaskOverWritePolicy": "Oldest",
        "Tasks": link(urls.TASKS),
    }


def odata() -> Payload:
    """The OData service document."""
    entries = {"Service": f"{urls.ROOT}/", "Chassis": urls.CHASSIS, "Fabrics": urls.FABRICS}
    return {
        "@odata.context": f"{urls.ROOT}/$metadata",
        "value": [{"name": name, "kind": "Singleton", "url": path} for name, path in entries.items()],
    }


def metadata() -> str:
    """The OData metadata document: which schemas the payloads follow."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">',
    ]
    for name, version in SCHEMAS.items():
        address = quoteattr(f"http://redfish.dmtf.org/schemas/v1/{name}_v1.xml")
        included = [name] if version is None else [name, f"{name}.{version}"]
        lines.append(f"<edmx:Reference Uri={address}>")
        lines += [f"<edmx:Include Namespace={quoteattr(namespace)}/>" for namespace in included]
        lines.append("</edmx:Reference>")
    lines += [
        "<edmx:DataServices>",
        '<Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">',
        '<EntityContainer Name="Service" Extends="ServiceRoot.v1_20_0.ServiceContainer"/>',
        "</Schema>",
        "</edmx:DataServices>",
        "</edmx:Edmx>",
    ]
    return "\n".join(lines) + "\n"
