"""The file system, as far as the plugin needs it: whole files or none, and the boot the machine is in."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: bytes, *, temporary: str, durable: bool) -> None:
    """Make `path` hold exactly `data`, or leave it as it was: temporary file in the same folder, then rename.

    `temporary` is the name of that file; a fixed one, so that what a write that died has left is overwritten by the
    next instead of staying for ever. Callers for one `path` exclude one another. `durable` makes the change survive a
    loss of power (fsync of file and folder).
    """
    staged = path.parent / temporary
    try:
        with staged.open("wb") as handle:
            handle.write(data)
            if durable:
                handle.flush()
                os.fsync(handle.fileno())
        staged.rename(path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def temporary_name(path: Path) -> str:
    """Name of the temporary file for `path`, hidden."""
    return f".{path.name}.tmp"


def sync_folder(folder: Path) -> None:
    """Make renames and removals in `folder` survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id(path: Path) -> str:
    """The identity of this boot of the host, from the kernel's `random/boot_id` or a file that stands for it.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is empty or longer than 64 characters.
    """
    text = path.read_text().strip()
    if not 0 < len(text) <= 64:
        raise ValueError(f"{path}: expected a boot id of 1 to 64 characters, found {len(text)}")
    return text
