"""kill -9 at any moment of a store or a load: no wrong byte, and the next process goes on at once."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from pathlib import Path

import pytest

KILLS = 200
CHUNKS_A_LIFE = 10_000  # each life numbers its chunks from here on


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_killed_workers_leave_no_wrong_byte_and_a_usable_domain(monkeypatch, region):
    from victim import Victim, live

    here = str(Path(__file__).parent)  # the fork server knows the path from its environment only
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])]))
    path = str(region(192 << 20, chunk_bytes=1 << 20))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["victim"])
    survivor, rng, stored, right, silent = Victim(path, 1), random.Random(1), [], 0, 0
    for life in range(KILLS):
        hear, tell = context.Pipe(duplex=False)
        child = context.Process(target=live, args=(path, 0, life * CHUNKS_A_LIFE, tell))
        child.start()
        tell.close()
        assert hear.recv() == "ready"
        time.sleep(rng.uniform(0.002, 0.03))
        child.kill()
        child.join()
        said = list(_drained(hear))
        assert all(isinstance(item, int) for item in said), said
        silent = silent + 1 if not said else 0
        assert silent < 20, "twenty workers in a row stored nothing: the domain is not usable any more"
        stored = (stored + said)[-8:]
        for number in [*stored, stored[-1] + 1 if stored else 0]:
            outcome = survivor.load(number)
            assert outcome != "wrong", f"chunk {number} after kill {life}"
            right += outcome == "right"
    survivor.worker.shutdown()
    assert right > KILLS


def _drained(connection):
    try:
        while True:
            yield connection.recv()
    except (EOFError, OSError):
        return
