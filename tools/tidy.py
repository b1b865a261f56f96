#!/usr/bin/env python3
"""Budgets that are a test: file and function length, leftover markers, large files, machine paths, stray package files.

Exits 1 and names each place, what was expected and what was found.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
FILE_KIB_MAX = 1024
NO_INIT = ("operator", "dra-plugin", "crds", "connector", "e2e", "emulator", "bench", "cli", "charts", "examples")
MARKERS = re.compile(r"\b(TODO|FIXME|XXX)\b|unimplemented!|todo!\(|NotImplementedError")
MACHINE_PATHS = re.compile(r"/(root|work|home/\w+)/")
TEXT = {".py", ".rs", ".sh", ".yaml", ".toml", ".md"}
EXEMPT = ("uv.lock", "Cargo.lock", "go.sum", "third_party/", "_proto/")


def tracked() -> list[Path]:
    """Files git tracks, generated and vendored ones left out."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / n for n in names.split("\0") if n and not any(part in n for part in EXEMPT)]


def long_functions(path: Path, text: str) -> list[str]:
    """Python functions over the budget."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found.append(f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}")
    return found


def banned_text(name: Path, text: str) -> list[str]:
    """Leftover markers and paths of one machine."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if MARKERS.search(line):
            found.append(f"{name}:{number}: leftover marker; finish it or remove it")
        if MACHINE_PATHS.search(line):
            found.append(f"{name}:{number}: path of one machine; use a setting or a relative path")
    return found


def problems(path: Path) -> list[str]:
    """Every budget this file breaks, one sentence each."""
    name = path.relative_to(ROOT)
    if not path.is_file():
        return []
    found = []
    if path.stat().st_size > FILE_KIB_MAX * 1024:
        found.append(f"{name}: {path.stat().st_size >> 10} KiB, at most {FILE_KIB_MAX}; keep large files out of git")
    if path.suffix not in TEXT and path.name != "Makefile":
        return found
    text = path.read_text(errors="replace")
    lines = text.count("\n")
    if path.suffix in {".py", ".rs"} and lines > FILE_LINES_MAX:
        found.append(f"{name}: {lines} lines, at most {FILE_LINES_MAX}; split it by what it knows")
    if path.suffix == ".py":
        found += long_functions(name, text)
    return found if path == Path(__file__).resolve() else found + banned_text(name, text)


def main() -> int:
    """Check every tracked file."""
    found = [p for path in tracked() for p in problems(path)]
    found += [
        f"{folder}/__init__.py hides a top-level name; remove it"
        for folder in NO_INIT
        if (ROOT / folder / "__init__.py").exists()
    ]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
