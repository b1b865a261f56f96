#!/usr/bin/env python3
"""Python stubs of the kubelet's protocol, generated from `hymcache/dra/_proto/*.proto` beside them.

tools/gen_kubelet_stubs.py            # write them
tools/gen_kubelet_stubs.py --check    # exit 1 and name each stub that differs from what would be written
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent / "dra-plugin" / "src"
PROTOS = ROOT / "hymcache" / "dra" / "_proto"


def generate(target: Path) -> None:
    """Write the stubs of every .proto under `target`, a folder that stands for `dra-plugin/src`."""
    arguments = [f"-I{ROOT}", f"--python_out={target}", f"--pyi_out={target}", f"--grpc_python_out={target}"]
    if protoc.main(["protoc", *arguments, *map(str, sorted(PROTOS.glob("*.proto")))]):
        sys.exit("gen_kubelet_stubs: protoc refused a .proto; its message is above")


def stale(fresh: Path) -> list[str]:
    """Names of the stubs that are missing, superfluous or different from those generated into `fresh`."""
    wanted = {path.name: path.read_bytes() for path in (fresh / PROTOS.relative_to(ROOT)).iterdir()}
    found = {path.name: path.read_bytes() for path in PROTOS.glob("*_pb2*.py*")}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def main() -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        names = stale(Path(folder))
    for name in names:
        print(f"{PROTOS.relative_to(ROOT.parent.parent) / name}: not what its .proto generates; run `make gen`")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
