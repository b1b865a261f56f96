"""The HyMCache Kubernetes API: one pydantic model per kind, and what is generated from them."""

from hymcache.crds.blade import CXLBlade
from hymcache.crds.config import ConfigError, RegionConfig
from hymcache.crds.fabric import CXLFabric
from hymcache.crds.model import Coherence, Media, ReclaimPolicy
from hymcache.crds.node import CXLNode
from hymcache.crds.region import CXLRegion

__all__ = [
    "CXLBlade",
    "CXLFabric",
    "CXLNode",
    "CXLRegion",
    "Coherence",
    "ConfigError",
    "Media",
    "ReclaimPolicy",
    "RegionConfig",
]
