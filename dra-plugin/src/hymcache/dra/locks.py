"""One lock per claim and one per region's report, between threads and between the two generations of a rolling update.

A lock is an flock on the thing's own file: each holder opens the file anew, so two threads of one process exclude each
other just as two processes do, and the kernel releases it when a holder dies. Claims never wait for one another.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.keys import UID, ClaimUID, claim_uid

POLL_SECONDS = 0.02
SUFFIX = ".lock"


class FileLocks:
    """The lock files of a folder. `busy` is what is said of one that another holds: `another call for claim`."""

    def __init__(self, folder: Path, busy: str) -> None:
        self.folder = folder
        self._busy = busy
        folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def hold(self, name: str, *, seconds: float, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock of `name`, safe in a file name; `check` is called while waiting and may raise to give up.

        Raises:
            ClaimError: BUSY, the lock was not free within `seconds`.
        """
        path = self.folder / f"{name}{SUFFIX}"
        deadline = time.monotonic() + seconds
        while (descriptor := self._try(path)) is None:
            check()
            if time.monotonic() >= deadline:
                raise ClaimError(
                    Kind.BUSY, f"{self._busy} {name} has been running for {seconds:.0f} s; retry when it ends"
                )
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # only its holder may; who waits for it notices, and makes a new one
            os.close(descriptor)

    def names(self) -> set[str]:
        """What has a lock file: held now, or left by a process that was killed. Holding it once removes it."""
        return {path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}")}

    @staticmethod
    def _try(path: Path) -> int | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass  # held by another, or removed between open and lock
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None


class ClaimLocks(FileLocks):
    """Held by whoever changes what a claim has on this node."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "another call for claim")

    def claims(self) -> set[ClaimUID]:
        """`names`, those that are UIDs."""
        return {claim_uid(name) for name in self.names() if UID.fullmatch(name)}


class ReportLocks(FileLocks):
    """Held by whoever writes this node's entry of a region, so that no older word lands after a newer one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "another report on region")
