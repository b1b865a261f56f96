"""The folder of checkpoint files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hymcache.dra.checkpoint import v1
from hymcache.dra.checkpoint.model import ClaimRecord
from hymcache.dra.checkpoint.store import Checkpoint, Unreadable
from hymcache.dra.keys import claim_uid

GOLDEN = Path(__file__).parent.parent / "data" / "checkpoint-v1.json"


@pytest.fixture
def record() -> ClaimRecord:
    return v1.decode(GOLDEN.read_bytes())


@pytest.fixture
def store(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "claims")


def test_claim_is_found_by_its_uid_alone(store: Checkpoint, record: ClaimRecord) -> None:
    store.put(record)
    assert store.get(record.ref.uid) == record
    assert store.get(claim_uid("another")) is None
    store.remove(record.ref.uid)
    assert store.get(record.ref.uid) is None
    assert list(store.folder.iterdir()) == []


def test_damaged_file_is_set_aside_and_still_known(store: Checkpoint, record: ClaimRecord) -> None:
    store.put(record)
    path = store.folder / f"{record.ref.uid}.json"
    path.write_bytes(path.read_bytes()[:-40])
    first = store.get(record.ref.uid)
    assert isinstance(first, Unreadable)
    assert "set aside as" in first.reason
    assert isinstance(store.get(record.ref.uid), Unreadable), "a second look must not forget it"
    assert [path.suffix for path in store.folder.iterdir()] == [".damaged"]
    records, unreadable = store.all()
    assert (records, [entry.uid for entry in unreadable]) == ([], [record.ref.uid])
    store.put(record)
    assert store.all() == ([record], [])


def test_file_under_the_name_of_another_claim_is_damage(store: Checkpoint, record: ClaimRecord) -> None:
    store.put(record)
    (store.folder / f"{record.ref.uid}.json").rename(store.folder / "another.json")
    assert isinstance(store.get(claim_uid("another")), Unreadable)


def test_file_of_a_newer_release_is_not_touched(store: Checkpoint, record: ClaimRecord) -> None:
    envelope = json.loads(v1.encode(record))
    path = store.folder / f"{record.ref.uid}.json"
    envelope.update(version=9, readableBy=9)
    path.write_text(json.dumps({**envelope, "sha256": v1.digest(envelope)}))
    before = path.read_bytes()
    assert isinstance(store.get(record.ref.uid), Unreadable)
    assert path.read_bytes() == before


def test_write_that_dies_half_way_leaves_the_old_file(
    store: Checkpoint, record: ClaimRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(record)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        store.put(replace(record, boot_id="another"))
    assert store.get(record.ref.uid) == record
    assert [path.suffix for path in store.folder.iterdir()] == [".json"]
