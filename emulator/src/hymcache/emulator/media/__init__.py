"""What regions are made of: one Protocol, one file per medium."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Protocol

Progress = Callable[[int], None]


class OutOfMemory(Exception):
    """The medium cannot give so many bytes now, although the blade's accounting would; the text says what is short."""


class Cancelled(Exception):
    """An allocation was given up because its caller asked for it; nothing stays behind."""


class Memory(Protocol):
    """The memory of one region, never used for another one: what a region gives back is gone for everybody."""

    @property
    def bytes(self) -> int:
        """Size in bytes, fixed at allocation."""
        ...

    @property
    def resident_bytes(self) -> int:
        """Bytes of it that exist at the moment; 0 after `destroy`."""
        ...

    def open(self, *, writable: bool) -> int:
        """A new descriptor, close-on-exec, with an open file description (hence locks) of its own; the caller's.

        The caller holds off `destroy` meanwhile. Raises OSError when the process has no descriptor left.
        """
        ...

    def destroy(self) -> None:
        """Scrub: afterwards no byte of it can be read, not even by a host that still maps it. May take seconds."""
        ...


class Medium(Protocol):
    """Makes the memory of regions; called from worker threads, one allocation at a time."""

    def allocate(self, name: str, size: int, progress: Progress, cancel: Event) -> Memory:
        """Zeroed memory of `size` bytes. Blocks, seconds for large sizes; `progress` hears of bytes done so far.

        Raises:
            OutOfMemory: there is not so much memory now.
            Cancelled: `cancel` was set meanwhile.
        """
        ...
