"""Run the region on a real device-dax node: `inside/test_*.py` in one guest, then two guests that share one memory.

    python -m devdax PACKAGES [alone | shared] [PYTEST ARGUMENTS]

PACKAGES is what `packages.py` made. Exit status 0 when everything passed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from devdax import image
from devdax.guest import Guest

SIZE_MIB = 1024
"""Bytes of the emulated device: sparse, only what is stored takes memory."""

CHURN_SECONDS = 20
TESTS_SECONDS = 1800
PYTEST = "cd / && python3.11 -m pytest -p no:cacheprovider -v -s --tb=short --timeout 300"


def main() -> None:
    packages, *rest = sys.argv[1:]
    parts = {"alone": _alone, "shared": _shared}
    wanted = [rest.pop(0)] if rest and rest[0] in parts else list(parts)
    with tempfile.TemporaryDirectory(prefix="hymcache-devdax-", dir="/dev/shm") as folder:
        work = Path(folder)
        image.build(Path(packages), work)
        passed = [parts[name](Path(packages), work, rest) for name in wanted]
    sys.exit(0 if all(passed) else 1)


def _alone(packages: Path, work: Path, arguments: list[str]) -> bool:
    begin = time.monotonic()
    with Guest("alone", work, packages, memory=work / "alone.raw", size_mib=SIZE_MIB) as guest:
        print(f"guest up after {time.monotonic() - begin:.0f} s, {guest.run('uname -sr')[1].strip()}", flush=True)
        status, _ = guest.run(" ".join([PYTEST, *(arguments or ["test_*.py"]), "2>&1"]), TESTS_SECONDS, echo=True)
        if status:
            print(guest.run("dmesg | tail -20")[1])
    (work / "alone.raw").unlink()
    return status == 0


def _shared(packages: Path, work: Path, _: list[str]) -> bool:
    memory = work / "shared.raw"

    def ask(guest: Guest, arguments: str) -> Any:
        status, output = guest.run(f"python3.11 /exchange.py {arguments} 2>&1", 300)
        print(f"guest {guest.name}: {arguments}: {output.strip()}", flush=True)
        return json.loads(output.splitlines()[-1]) if status == 0 else None

    with (
        Guest("one", work, packages, memory=memory, size_mib=SIZE_MIB) as one,
        Guest("other", work, packages, memory=memory, size_mib=SIZE_MIB) as other,
        ThreadPoolExecutor() as pool,
    ):
        ask(one, "format")
        answers = [ask(one, "put 0"), ask(other, "get 1 0"), ask(other, "put 1"), ask(one, "get 0 1")]
        churn = [
            pool.submit(ask, guest, f"churn {own} {1 - own} {CHURN_SECONDS}") for own, guest in enumerate((one, other))
        ]
        counts = [(answer.result() or {}).get("counts", {"WRONG": 1}) for answer in churn]
    passed = answers == [[True] * 3, ["same"] * 3] * 2
    return passed and all(count["WRONG"] == 0 and count["same"] > 0 for count in counts)


main()
