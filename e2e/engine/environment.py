#!/usr/bin/env python3
"""Install the vLLM environment outside the checkout, or find it, and print its Python.

    e2e/engine/environment.py                    # -> $HYMCACHE_CACHE/engine-HASH/bin/python
    e2e/engine/environment.py SCRIPT ARGUMENT... # runs a script in it

HASH is the sha256 of this project's lock, so checkouts with one lock share one environment of about 5 GB. It holds only
what comes from the package index; the workspace's distributions reach it by `PYTHONPATH` (`engine_environ`), so an
environment never refers to a checkout. Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMPILED = ".compiled"  # file in an environment whose modules are compiled
WORKSPACE = ("connector/vllm/src", "connector/region/python")  # what the engine imports from this checkout


def cache_root() -> Path:
    """The folder that outlives checkouts; `HYMCACHE_CACHE` overrides the default."""
    return Path(os.environ.get("HYMCACHE_CACHE") or Path.home() / ".cache" / "hymcache").expanduser()


def environment_path() -> Path:
    """Where the environment of the committed lock lives, installed or not."""
    digest = hashlib.sha256((HERE / "uv.lock").read_bytes()).hexdigest()
    return cache_root() / f"engine-{digest[:16]}"


def engine_environ(**more: str) -> dict[str, str]:
    """Environment variables for a process of the engine: no network, no compiler, this checkout's distributions."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "UV_"))},
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in WORKSPACE),
        "TORCHDYNAMO_DISABLE": "1",  # no C++ compiler is asked for at the first request
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(cache_root() / "vllm"),  # what vLLM learns about a model class costs a process of 15 s
        "TQDM_DISABLE": "1",
        "DO_NOT_TRACK": "1",
        **more,
    }


def compile_modules(target: Path) -> None:
    """Compile the environment's modules once: a server imports them in three processes, often from a read-only mount.

    Files that no process imports and that do not compile (templates, tests of syntax) are nobody's trouble.
    """
    sys.stderr.write("engine: compiling the environment's modules, once ...\n")
    words = ["-m", "compileall", "-qq", "-j0", "-x", "/tests?/", str(target / "lib")]
    subprocess.run([str(target / "bin" / "python"), *words], stdout=subprocess.DEVNULL, check=False)
    (target / COMPILED).touch()


def install() -> Path:
    """Make the environment equal to the lock (0.2 s when it already is) and return its Python."""
    target = environment_path()
    target.parent.mkdir(parents=True, exist_ok=True)
    uv = subprocess.run([ROOT / "tools" / "bootstrap.sh"], capture_output=True, text=True, check=True).stdout.strip()
    environ = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    with (target.parent / ".engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two installs into one folder would only race
        fresh = not target.exists()
        if fresh:
            sys.stderr.write("engine: installing vLLM 0.32.0 for the CPU, about 2.8 GB to download ...\n")
        started = time.monotonic()
        subprocess.run(
            [uv, "sync", "--locked", "--project", HERE, *([] if sys.stderr.isatty() else ["--quiet"])],
            env={**environ, "UV_PROJECT_ENVIRONMENT": str(target)},
            stdout=sys.stderr,
            check=True,
        )
        if not (target / COMPILED).exists():
            compile_modules(target)
        if fresh:
            sys.stderr.write(f"engine: installed in {time.monotonic() - started:.0f} s into {target}\n")
    return target / "bin" / "python"


if __name__ == "__main__":
    python = install()
    if len(sys.argv) == 1:
        print(python)
    else:
        os.execve(python, [str(python), *sys.argv[1:]], engine_environ())
