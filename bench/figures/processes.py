"""What other processes see: attach, and room after a death. And the build without SIMD, from the copy benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hymcache.region import Region

from figures.target import Figure
from figures.world import MIB, is_busy, medium, populated_region, wait_until_populated

ROOT = Path(__file__).resolve().parents[2]
WORKING_SET = 256 * MIB
SIMD = "sse4.2,pclmulqdq,avx,avx2,avx512f,vpclmulqdq"
CLI = "from hymcache.cli.main import main; main()"

HOLD = """
import sys
from hymcache.region import Region
space = Region.attach(sys.argv[1], populate=False).namespace(bytes(32))
refs, status = space.reserve([sys.argv[2].encode()], 1, unit_bytes=1 << 20)
print(status[0], flush=True)
sys.stdin.readline()
"""


def attach(folder: Path) -> Iterator[Figure]:
    """Attach to populated regions of two sizes: the time, and its slope."""
    sizes, best = (64 * MIB, 1024 * MIB), []
    for size in sizes:
        with medium(folder) as path:
            with path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            Region.format(path, size=size)
            with Region.attach(path) as region:
                wait_until_populated(region)
            times = []
            for _ in range(7):
                started = time.perf_counter()
                region = Region.attach(path)
                times.append(time.perf_counter() - started)
                region.close()
            best.append(min(times))
    milliseconds = 1e3 * best[1]
    floor = 20 + 1e-3 * (sizes[1] // (2 * MIB))
    slope = 1e6 * (best[1] - best[0]) / ((sizes[1] - sizes[0]) // (2 * MIB))
    yield Figure("attach to 1 GiB", milliseconds, "ms", floor, floor / 2, True, detail=f"{slope:.2f} us per 2 MiB")


def death(folder: Path) -> Iterator[Figure]:
    """From kill -9 of a process that has reserved a key until another one has stored under it."""
    slowest, wrong = 0.0, 0
    with medium(folder) as path:
        Region.format(path, size=64 * MIB)
        with Region.attach(path) as region:
            space = region.namespace(bytes(32))
            for number in range(5):
                key = b"key-%d" % number
                holder = subprocess.Popen(
                    [sys.executable, "-c", HOLD, path, key.decode()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
                assert holder.stdin is not None
                assert holder.stdout is not None
                wrong += holder.stdout.readline() != b"1\n"
                wrong += space.put(key, b"early")  # its writer lives
                holder.kill()
                holder.wait()
                holder.stdin.close()
                holder.stdout.close()
                started = time.perf_counter()
                while not space.put(key, b"late") and time.perf_counter() - started < 10:
                    time.sleep(0.001)
                slowest = max(slowest, time.perf_counter() - started)
                wrong += space.lookup([key]) != 1
    yield Figure("kill -9: its key and room usable again", slowest, "s", 2, 0.2, True, wrong)


def json_of(command: list[str], **settings: str) -> Any:
    """What a program prints, whatever its exit status."""
    environment = os.environ | settings
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    try:
        return json.loads(ran.stdout)
    except ValueError:
        raise RuntimeError(f"{command[0]}: expected JSON, found exit status {ran.returncode}: {ran.stderr!r}") from None


def portable(folder: Path) -> Iterator[Figure]:
    """Machines without SIMD: the kernel by the copy benchmark, and a region whose process may not use any."""
    command = ["cargo", "run", "--release", "--quiet", "-p", "hymcache-copy", "--example", "copybench", "--"]
    options = ["--only", "get portable,put portable", "--cpu-clock", "--floors", "--rounds", "11", "--json"]
    for row in json_of(command + options)["rows"]:
        ratio = row["chosen"].get("ratio", 0.0)
        yield Figure(f"{row['work']} kernel, 4 MiB", ratio, "x", 0.85, 0.95, wrong=int(row["failed"]))
    with medium(folder) as path, populated_region(path, WORKING_SET):
        options = ["--host", "one", "--sizes", "4Mi", "--working-set", str(WORKING_SET), "--rounds", "11", "--json"]
        found = json_of([sys.executable, "-c", CLI, "region", "bench", str(path), *options], HYMCACHE_CPU_WITHOUT=SIMD)
    for row in found["rows"]:
        name, wrong = f"{row['work']} 4 MiB, portable, own domain", row["failures"]
        ratio = 0.0 if wrong else 1 / row["cpu_to_memcpy"] if is_busy() else row["to_memcpy"]
        yield Figure(name, ratio, "x", 0.85, 0.95, wrong=wrong, detail=f"kernel {found['kernel']}")
