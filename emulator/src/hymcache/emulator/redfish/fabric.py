"""Payloads of the fabric: endpoints of hosts and chunks, connections between them, the switch and its links."""

from __future__ import annotations

from hymcache.emulator.model import Access, Chunk, Connection, Host, Link
from hymcache.emulator.redfish import urls
from hymcache.emulator.redfish.chassis import OK, gcxlid
from hymcache.emulator.redfish.urls import BladeUrls, Payload, link
from hymcache.emulator.settings import Settings
from hymcache.emulator.view import View

CAPABILITIES = {Access.READ_ONLY: ["Read"], Access.READ_WRITE: ["Read", "Write"]}
DOWN = {"State": "UnavailableOffline", "Health": "Critical"}


def fabric() -> Payload:
    """The fabric."""
    return {
        "@odata.id": urls.FABRIC,
        "@odata.type": "#Fabric.v1_4_0.Fabric",
        "Id": "CXL",
        "Name": "CXL fabric",
        "FabricType": "CXL",
        "Status": OK,
        "Switches": link(urls.SWITCHES),
        "Connections": link(urls.CONNECTIONS),
        "Endpoints": link(urls.ENDPOINTS),
        "Zones": link(urls.ZONES),
    }


def endpoints(view: View) -> list[str]:
    """All endpoints: initiators, then targets."""
    return [*map(urls.initiator, view.hosts), *map(urls.target, view.chunks)]


def initiator(view: View, host: Host) -> Payload:
    """The endpoint of a host; its system UUID is what a node is recognised by."""
    identifiers = [{"DurableName": host.uuid, "DurableNameFormat": "UUID"}]
    connections = [one.id for one in view.connections.values() if host.name in one.hosts]
    return {
        "@odata.id": urls.initiator(host.name),
        "@odata.type": "#Endpoint.v1_8_2.Endpoint",
        "Id": f"I-{host.name}",
        "Name": host.name,
        "EndpointProtocol": "CXL",
        "Status": OK if host.link is Link.UP else DOWN,
        "Identifiers": identifiers,
        "ConnectedEntities": [
            {"EntityType": "RootComplex", "EntityRole": "Initiator", "Identifiers": identifiers},
        ],
        "Links": {
            "ConnectedPorts": [link(urls.port(host.name))],
            "Zones": [link(urls.ZONE)],
            "Connections": [link(urls.connection(one)) for one in connections],
        },
    }


def target(settings: Settings, view: View, chunk: Chunk) -> Payload:
    """The endpoint that hosts reach a chunk through."""
    at = BladeUrls(settings.blade)
    identifiers = [{"DurableName": gcxlid(settings.blade, chunk.logical_device), "DurableNameFormat": "GCXLID"}]
    return {
        "@odata.id": urls.target(chunk.id),
        "@odata.type": "#Endpoint.v1_8_2.Endpoint",
        "Id": f"T-{chunk.id}",
        "Name": chunk.name,
        "EndpointProtocol": "CXL",
        "Status": OK,
        "Identifiers": identifiers,
        "ConnectedEntities": [
            {
                "EntityType": "CXLDevice",
                "EntityRole": "Target",
                "Identifiers": identifiers,
                "EntityLink": link(at.logical_device(chunk.logical_device)),
            },
            {"EntityType": "MemoryChunk", "EntityRole": "Target", "EntityLink": link(at.chunk(chunk.id))},
        ],
        "Links": {
            "Zones": [link(urls.ZONE)],
            "Connections": [link(urls.connection(one.id)) for one in view.connections_of(chunk.id)],
        },
    }


def connection(settings: Settings, found: Connection) -> Payload:
    """One connection: a chunk, and the hosts that may use it."""
    at = BladeUrls(settings.blade)
    return {
        "@odata.id": urls.connection(found.id),
        "@odata.type": "#Connection.v1_4_0.Connection",
        "Id": found.id,
        "Name": found.name,
        "ConnectionType": "Memory",
        "Status": OK,
        "MemoryChunkInfo": [
            {"AccessCapabilities": CAPABILITIES[found.access], "MemoryChunk": link(at.chunk(found.chunk))},
        ],
        "Links": {
            "InitiatorEndpoints": [link(urls.initiator(host)) for host in found.hosts],
            "TargetEndpoints": [link(urls.target(found.chunk))],
        },
    }


def zone(view: View) -> Payload:
    """The one zone: every endpoint may be connected to every other one."""
    return {
        "@odata.id": urls.ZONE,
        "@odata.type": "#Zone.v1_6_3.Zone",
        "Id": "1",
        "Name": "Cabled hosts",
        "ZoneType": "ZoneOfEndpoints",
        "Status": OK,
        "Links": {"Endpoints": [link(path) for path in endpoints(view)]},
    }


def switch() -> Payload:
    """The appliance's switch: a port for every host."""
    return {
        "@odata.id": urls.SWITCH,
        "@odata.type": "#Switch.v1_11_0.Switch",
        "Id": "1",
        "Name": "CXL switch",
        "SwitchType": "CXL",
        "Enabled": True,
        "PowerState": "On",
        "Status": OK,
        "Ports": link(urls.PORTS),
    }


def port(host: Host) -> Payload:
    """A host's port: here a pulled cable shows."""
    up = host.link is Link.UP
    return {
        "@odata.id": urls.port(host.name),
        "@odata.type": "#Port.v1_18_0.Port",
        "Id": host.name,
        "PortId": host.name,
        "Name": f"Port of {host.name}",
        "PortProtocol": "CXL",
        "PortType": "UpstreamPort",
        "InterfaceEnabled": True,
        "LinkState": "Enabled",
        "LinkStatus": "LinkUp" if up else "LinkDown",
        "Status": OK if up else DOWN,
        "Links": {"AssociatedEndpoints": [link(urls.initiator(host.name))]},
    }
