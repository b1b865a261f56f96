#!/usr/bin/env python3
"""Build a thing once, keep it outside the checkout, verify it before reuse.

    tools/artefact.py NAME --input PATH [--input PATH ...] [--key TEXT] -- COMMAND...

An artefact is a folder `$HYMCACHE_CACHE/artefacts/NAME-HASH` (default `~/.cache/hymcache`), HASH being the sha256 of
the inputs' contents, the key and the command line. COMMAND runs with `$OUT` set to an empty folder; when it exits 0
the folder gets a manifest of its files (size, sha256) and is renamed into place, so an interrupted build leaves
nothing half done. A later call verifies the manifest and prints the path; a damaged artefact is rebuilt. Older hashes
of the same name are removed once the new one stands. Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MANIFEST = ".manifest.json"


def cache_root() -> Path:
    """The folder that outlives checkouts; `HYMCACHE_CACHE` overrides the default."""
    return Path(os.environ.get("HYMCACHE_CACHE") or Path.home() / ".cache" / "hymcache").expanduser()


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for child in sorted(path.iterdir()):
            if child.name not in {"__pycache__", MANIFEST}:
                yield from _files(child)
    elif path.is_symlink() or path.is_file():
        yield path


def _digest(path: Path) -> str:
    if path.is_symlink():
        return "link:" + str(path.readlink())
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def inputs_hash(inputs: list[Path], key: str, command: list[str]) -> str:
    """First 16 hex digits of the sha256 over input contents, key and command; the checkout's place does not matter."""
    digest = hashlib.sha256(repr((key, command)).encode())
    for root in inputs:
        if not root.exists():
            sys.exit(f"artefact: input {root} does not exist; check the --input arguments")
        for file in _files(root):
            digest.update(f"{file.relative_to(root.parent)} {_digest(file)}\n".encode())
    return digest.hexdigest()[:16]


def write_manifest(folder: Path) -> None:
    """Record size and sha256 of every file, so that reuse can tell damage from truth."""
    entries = {str(f.relative_to(folder)): _digest(f) for f in _files(folder)}
    (folder / MANIFEST).write_text(json.dumps(entries, indent=0))


def problem(folder: Path) -> str | None:
    """What is wrong with a stored artefact, or None: the caller rebuilds."""
    try:
        entries: dict[str, str] = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        return f"manifest unreadable: {error}"
    for name, expected in entries.items():
        try:
            found = _digest(folder / name)
        except OSError as error:
            return f"{name}: {error}"
        if found != expected:
            return f"{name} differs from what was built"
    return None


def build(name: str, target: Path, command: list[str]) -> None:
    """Run the command into a temporary sibling of `target` and rename it in when it succeeded."""
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    started = time.monotonic()
    sys.stderr.write(f"artefact: building {name} ...\n")
    try:
        code = subprocess.run(command, env={**os.environ, "OUT": str(work)}, stdout=sys.stderr, check=False).returncode
        if code:
            sys.exit(f"artefact: building {name} failed with exit status {code}; its output is above")
        write_manifest(work)
        work.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.stderr.write(f"artefact: {name} built in {time.monotonic() - started:.0f} s\n")


def main() -> None:
    """Parse the command line, reuse or build, print the artefact's path on standard output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--input", action="append", type=Path, default=[])
    parser.add_argument("--key", default="", help="whatever else decides the result: versions, flags")
    parser.add_argument("--path-only", action="store_true", help="print the path if it is built and valid, else exit 1")
    own, _, command = sys.argv[1:], None, []
    if "--" in own:
        cut = own.index("--")
        own, command = own[:cut], own[cut + 1 :]
    options = parser.parse_args(own)
    root = cache_root() / "artefacts"
    root.mkdir(parents=True, exist_ok=True)
    target = root / f"{options.name}-{inputs_hash([p.resolve() for p in options.input], options.key, command)}"
    with (root / f".{options.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two builds of one thing would only race
        why = problem(target) if target.exists() else "not built yet"
        if why and options.path_only:
            sys.exit(1)
        if why:
            if target.exists():
                sys.stderr.write(f"artefact: {options.name} is damaged ({why}); building it again\n")
            build(options.name, target, command)
        for old in root.glob(f"{options.name}-" + "[0-9a-f]" * 16):
            if old != target:
                with contextlib.suppress(OSError):
                    shutil.rmtree(old)
    print(target)


if __name__ == "__main__":
    main()
