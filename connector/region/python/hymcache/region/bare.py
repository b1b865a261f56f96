"""Copies without a checksum, to and from a reserved object: what benchmarks of a region compare with.

`region.window(reference)` gives a `Window` on the raw bytes of an object that was reserved (one section of one unit)
and not committed. It copies by one of `copies()`, `memcpy` first, so that a comparison is between the same two memories
in the same process.
"""

from __future__ import annotations

from hymcache.region._native import Window  # noqa: TID251 - re-exported from here
from hymcache.region._native import bare_copies as copies  # noqa: TID251 - re-exported from here

__all__ = ["Window", "copies"]
