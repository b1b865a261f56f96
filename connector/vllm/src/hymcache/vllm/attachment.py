"""Finding the region, or saying why the engine runs without it."""

from __future__ import annotations

from collections.abc import Sequence

from hymcache.region import HandoverError, Namespace, Pages, Region, RegionError, RegionInfo
from hymcache.vllm.settings import Settings


class RegionUnavailable(RuntimeError):
    """There is no usable region; the message names what was expected, what was found and what to do."""


class Attachment:
    """The region as one process of one engine uses it."""

    def __init__(self, region: Region) -> None:
        self._region = region

    def namespace(self, fingerprint: bytes) -> Namespace:
        """The objects whose bytes mean the same as this engine's."""
        return self._region.namespace(fingerprint)

    def pages(self, tensors: Sequence[tuple[int, int, int, int]]) -> Pages:
        """Register paged tensors as (address, stride in bytes, page bytes, pages); they must outlive the attachment."""
        return self._region.pages(tensors)

    def events(self) -> dict[str, int]:
        """What the region has counted in this process, by name: misses by reason, verification failures, evictions."""
        return {name: value for name, value in self._region.stats().items() if isinstance(value, int)}

    def full_count(self) -> int:
        """How often the region had no room for an object of this process."""
        return int(self._region.stats()["put_full"])

    def close(self) -> None:
        """Unmap the region. No copy may be under way."""
        self._region.close()


def attach(settings: Settings) -> Attachment:
    """Attach to the region that the settings name and check that it is the one that was composed.

    Raises:
        RegionUnavailable: no region is named, it cannot be reached or mapped, or it is not the expected one.
    """
    if not settings.region:
        raise RegionUnavailable(
            "HYMCACHE_REGION is not set; claim a region for the pod, or set it to a region file or unix:/path.sock"
        )
    try:
        with Region.attach(settings.region, read_only=True, populate=False, uuid=settings.region_uuid) as seen:
            _check(settings, seen.info())  # before this host's name is written into its domain
        region = Region.attach(settings.region, domain=settings.domain, uuid=settings.region_uuid)
    except (RegionError, HandoverError, ValueError, OSError) as error:
        raise RegionUnavailable(f"HYMCACHE_REGION={settings.region}: {error}") from error
    return Attachment(region)


def _check(settings: Settings, found: RegionInfo) -> None:
    for name, expected, actual in (
        ("HYMCACHE_REGION_BYTES", settings.region_bytes, found.bytes),
        ("HYMCACHE_COHERENCE", settings.coherence, found.coherence),
    ):
        if expected is not None and expected != actual:
            raise ValueError(
                f"{name} says {expected}, the region says {actual}; it is another region or was formatted otherwise"
            )
