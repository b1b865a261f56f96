"""DMTF Redfish for CXL: MemoryDomains, MemoryChunks, Endpoints and Connections (DSP8010, DSP2043 `public-cxl`)."""

from hymcache.operator.fabric.redfish.backend import RedfishFabric
from hymcache.operator.fabric.redfish.http import RedfishSettings

__all__ = ["RedfishFabric", "RedfishSettings"]
