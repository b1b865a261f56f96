"""Several processes put, get and evict in one region while they are killed and frozen; prints what happened as JSON.

    churn.py MEDIUM SECONDS_MAX KILLS FREEZES SEED

Forks its workers, so that one costs milliseconds. A worker that reads other bytes than those stored under a key exits
with status 3. At the end every chunk of both domains must be usable.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time

from hymcache.region import Namespace, Region

FINGERPRINT = bytes(32)
UNITS = 5
UNIT_BYTES = 40_000
KEYS = 60
WRONG = 3


def content(key: int, version: int) -> bytes:
    """Five units; every 16 bytes of each name key, version and unit."""
    unit = [b"%04d%08d%04d" % (key, version, u) for u in range(UNITS)]
    return b"".join(stamp * (UNIT_BYTES // 16) for stamp in unit)


def is_content(key: int, data: bytes) -> bool:
    return data[:4] == b"%04d" % key and data == content(key, int(data[4:12]))


def work(medium: str, domain: int, seed: int) -> None:
    rng = random.Random(seed)
    ns = Region.attach(medium, domain=domain, host="one").namespace(FINGERPRINT)
    out = bytearray(UNITS * UNIT_BYTES)
    version = seed % 10**8
    while True:
        key = rng.randrange(KEYS)
        name = b"key-%d" % key
        action = rng.random()
        if action < 0.1:
            ns.evict([name])
        elif action < 0.5:
            version = (version + 1) % 10**8
            ns.put(name, content(key, version), units=UNITS)
        elif ns.get_into(name, out) and not is_content(key, bytes(out)):
            os._exit(WRONG)
        elif action > 0.95:
            ns.lookup([b"key-%d" % k for k in range(KEYS)])


def start(medium: str, domain: int, seed: int) -> int:
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            work(medium, domain, seed)
        os._exit(1)
    return pid


def fill(ns: Namespace, region: Region, domain: int, chunk_bytes: int) -> tuple[int, int]:
    """(chunks of the domain that hold an object of one chunk or can be had, chunks it has).

    After as many puts as there are chunks every one holds an object, but for a few whose keys met in a full set of the
    directory: the older object of those has left, and its chunk is free.
    """
    info = region.info()
    chunks = info.chunks // info.domains
    while ns.evict([b"key-%d" % key for key in range(KEYS)]):
        pass  # else those that the other domain used last would outlive what follows
    names = [b"fill-%d-%d" % (domain, i) for i in range(chunks)]
    stored = sum(ns.put(name, bytes(chunk_bytes)) for name in names)
    use = region.chunk_use(domain)
    return min(stored, ns.contains(names).count(1) + use["free"] + use["retired"]), chunks


def main() -> None:
    medium, seconds, kills, freezes, seed = sys.argv[1], *map(int, sys.argv[2:])
    rng = random.Random(seed)
    workers = {start(medium, i % 2, rng.randrange(10**8)): i % 2 for i in range(4)}
    deadline = time.monotonic() + seconds
    done = {"kills": 0, "freezes": 0, "wrong": 0, "failed": 0}

    def reap(pid: int) -> None:
        domain = workers.pop(pid)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            done["wrong" if os.WEXITSTATUS(status) == WRONG else "failed"] += 1
        workers[start(medium, domain, rng.randrange(10**8))] = domain

    while (done["kills"] < kills or done["freezes"] < freezes) and time.monotonic() < deadline and not done["wrong"]:
        time.sleep(rng.uniform(0.005, 0.04))
        victim = rng.choice(list(workers))
        if done["freezes"] < freezes and rng.random() < freezes / (kills + freezes):
            os.kill(victim, signal.SIGSTOP)
            time.sleep(0.1)
            os.kill(victim, signal.SIGCONT)
            done["freezes"] += 1
        else:
            os.kill(victim, signal.SIGKILL)
            done["kills"] += 1
            reap(victim)
        for pid in list(workers):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                reap(pid)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    started = time.monotonic()
    usable, swept = [], []
    for domain in range(2):
        began = time.monotonic()
        with Region.attach(medium, domain=domain, host="one") as region:
            while region.sweep():
                pass
            swept.append(time.monotonic() - began)
            usable.append(fill(region.namespace(FINGERPRINT), region, domain, region.info().chunk_bytes))
    seconds = {"seconds_until_swept": max(swept), "seconds_until_usable": time.monotonic() - started}
    json.dump({**done, "usable": usable, **seconds}, sys.stdout)


if __name__ == "__main__":
    main()
