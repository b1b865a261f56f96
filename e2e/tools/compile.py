#!/usr/bin/env python3
"""Compile packages of one Go module into `$OUT`: the build step behind `build.py`, run by the artefact cache.

    compile.py MODULE_FOLDER [--ldflags TEXT] [--tags TEXT] [--copy MODULE=FOLDER=NAME] PACKAGE...

`--copy` puts a folder of a required module into `$OUT/NAME`: files that a tool reads at run time and that are never
committed here. Progress goes to standard error, one line a step. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

PROGRESS_SECONDS = 15.0


def go(folder: Path, *arguments: str) -> str:
    """Standard output of one `go` command run in a module's folder."""
    return subprocess.run(["go", *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def compile_packages(folder: Path, flags: list[str], packages: list[str], out: Path) -> int:
    """`go build -v`, whose line per compiled package becomes a counter. Returns its exit status."""
    name = folder.name
    sys.stderr.write(f"{name}: reading modules ...\n")
    total = len(set(go(folder, "list", "-deps", *packages).split()))
    build = subprocess.Popen(
        ["nice", "-n", "10", "go", "build", "-v", *flags, "-o", f"{out}/", *packages],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert build.stderr is not None
    done, shown = 0, time.monotonic()
    for line in build.stderr:
        word = line.strip()
        if " " in word or word.startswith("#") or ":" in word:
            sys.stderr.write(f"{name}: {word}\n")
            continue
        done += 1
        if time.monotonic() - shown > PROGRESS_SECONDS:
            shown = time.monotonic()
            sys.stderr.write(f"{name}: compiled {done} of at most {total} packages\n")
    return build.wait()


def main() -> int:
    """Compile, then copy what was asked for; exit status of the compiler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--ldflags", default="-s -w")
    parser.add_argument("--tags", default="")
    parser.add_argument("--copy", action="append", default=[])
    options = parser.parse_args()
    out = Path(os.environ["OUT"])
    flags = ["-trimpath", "-ldflags", options.ldflags, "-tags", options.tags]
    code = compile_packages(options.folder.resolve(), flags, options.packages, out)
    for spec in options.copy if code == 0 else []:
        module, inner, name = spec.split("=")
        source = Path(go(options.folder, "list", "-m", "-f", "{{.Dir}}", module).strip()) / inner
        shutil.copytree(source, out / name, symlinks=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
