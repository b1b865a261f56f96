"""Four processes use one region in every way (see `worker.py`), killed and frozen; prints what happened as JSON.

    churn.py MEDIUM SECONDS_MAX KILLS FREEZES SEED

Three are in one domain, so that a put can be split among them, one is in the other. Forks its workers, so that one
costs milliseconds. A worker that reads other bytes than those stored under a key exits with status 3. At the end every
chunk of both domains must be usable.
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
from worker import FINGERPRINT, KEYS, LEASE_SECONDS, WRONG, Counts, Mailboxes, Worker, name


def start(medium: str, domain: int, seed: int, boxes: Mailboxes, counts: memoryview) -> int:
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            Worker(medium, domain, seed, boxes, counts).run()
        os._exit(1)
    return pid


def fill(ns: Namespace, region: Region, domain: int, chunk_bytes: int) -> tuple[int, int]:
    """(chunks of the domain that hold an object of one chunk or can be had, chunks it has).

    After as many puts as there are chunks every one holds an object, but for a few whose keys met in a full set of the
    directory: the older object of those has left, and its chunk is free.
    """
    info = region.info()
    chunks = info.chunks // info.domains
    while ns.evict([name(key) for key in range(KEYS)]):
        pass  # else those that the other domain used last would outlive what follows
    names = [b"fill-%d-%d" % (domain, i) for i in range(chunks)]
    stored = sum(ns.put(name, bytes(chunk_bytes)) for name in names)
    use = region.chunk_use(domain)
    return min(stored, ns.contains(names).count(1) + use["free"] + use["retired"]), chunks


def main() -> None:
    medium, seconds, kills, freezes, seed = sys.argv[1], *map(int, sys.argv[2:])
    rng = random.Random(seed)
    lonely = seed % 2
    domains = [lonely, *[1 - lonely] * 3]
    boxes, counts = [Mailboxes(), Mailboxes()], Counts(len(domains))

    def begin(i: int) -> int:
        return start(medium, domains[i], rng.randrange(10**8), boxes[domains[i]], counts.rows[i])

    workers = {begin(i): i for i in range(len(domains))}
    deadline = time.monotonic() + seconds
    done = {"kills": 0, "freezes": 0, "wrong": 0, "failed": 0}

    def reap(pid: int) -> None:
        i = workers.pop(pid)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            done["wrong" if os.WEXITSTATUS(status) == WRONG else "failed"] += 1
        workers[begin(i)] = i

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
    swept, left = [], 0
    usable, filled = [], []
    for domain in range(2):
        began = time.monotonic()
        with Region.attach(medium, domain=domain, host="one") as region:
            while region.sweep():
                pass
            swept.append(time.monotonic() - began)
            use = region.chunk_use(domain)
            left += use["writing"] + use["leaving"] + use["orphaned"]
    time.sleep(LEASE_SECONDS)  # those of the dead end by themselves
    for domain in range(2):
        began = time.monotonic()
        with Region.attach(medium, domain=domain, host="one") as region:
            usable.append(fill(region.namespace(FINGERPRINT), region, domain, region.info().chunk_bytes))
        filled.append(time.monotonic() - began)
    seconds = {"seconds_until_swept": max(swept), "seconds_until_usable": sum(swept) + sum(filled)}
    json.dump({**done, "splits": counts.total(), "left_by_the_dead": left, "usable": usable, **seconds}, sys.stdout)


if __name__ == "__main__":
    main()
