"""One lock per claim and per report, between threads and processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.keys import claim_uid
from hymcache.dra.locks import ClaimLocks

UID = claim_uid("one")


def test_one_thread_at_a_time_and_no_file_left(tmp_path: Path) -> None:
    locks, inside, seen = ClaimLocks(tmp_path), [], []

    def work() -> None:
        for _ in range(20):
            with locks.hold(UID, seconds=30):
                inside.append(1)
                seen.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 120
    assert list(tmp_path.iterdir()) == []


def test_busy_claim_is_given_up_after_its_time(tmp_path: Path) -> None:
    locks = ClaimLocks(tmp_path)
    with locks.hold(UID, seconds=0):
        with pytest.raises(ClaimError, match="another call for claim one") as caught, locks.hold(UID, seconds=0.1):
            pass
        with locks.hold(claim_uid("two"), seconds=0):
            pass
    assert caught.value.kind is Kind.BUSY


def test_waiting_ends_when_nobody_waits_for_it(tmp_path: Path) -> None:
    locks = ClaimLocks(tmp_path)

    def check() -> None:
        raise ClaimError(Kind.STOPPED, "gone")

    with (
        locks.hold(UID, seconds=0),
        pytest.raises(ClaimError, match="gone"),
        locks.hold(UID, seconds=30, check=check),
    ):
        pass


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from hymcache.dra.locks import ClaimLocks\n"
        "with ClaimLocks(Path(sys.argv[1])).hold('one', seconds=0): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        locks = ClaimLocks(tmp_path)
        with pytest.raises(ClaimError), locks.hold(UID, seconds=0):
            pass
        other.kill()
        other.wait()
    assert locks.claims() == {UID}
    with locks.hold(UID, seconds=5):
        pass
    assert list(tmp_path.iterdir()) == []
