"""The checkpoint's wire format: what it promises to older and newer releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hymcache.crds import Coherence
from hymcache.crds.config import Access
from hymcache.dra.checkpoint import v1
from hymcache.dra.checkpoint.model import ClaimRecord, Phase, ShareRecord
from hymcache.dra.keys import ShareKey, claim_uid
from hymcache.dra.plan import ClaimRef, Scrub, Share, Wanted
from hypothesis import given
from hypothesis import strategies as st

GOLDEN = Path(__file__).parent.parent / "data" / "checkpoint-v1.json"

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20)
uids = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9-]{0,40}\Z")
wanteds = st.builds(
    Wanted,
    blade=words,
    fabric_region=words,
    region_bytes=st.integers(1, 1 << 50),
    uuid=words,
    epoch=st.integers(1, 1 << 40),
    domains=st.integers(1, 256),
    domain=st.integers(0, 255),
    init=st.booleans(),
    coherence=st.sampled_from(Coherence),
    chunk_bytes=st.none() | st.integers(1 << 16, 1 << 26),
    writable=st.booleans(),
    scrub=st.sampled_from(Scrub),
)


@st.composite
def records(draw: st.DrawFn) -> ClaimRecord:
    ref = ClaimRef(draw(words), draw(words), claim_uid(draw(uids)))

    def share() -> ShareRecord:
        share_id = draw(st.none() | uids)
        pool, device = draw(words), draw(words)
        key = ShareKey.of(ref.uid, share_id, pool, device)
        made = Share(key, draw(words), pool, device, share_id, draw(words), draw(st.sampled_from(Access)))
        return ShareRecord(made, draw(st.sampled_from(Phase)), draw(st.none() | wanteds))

    return ClaimRecord(ref, draw(words), draw(words), tuple(share() for _ in range(draw(st.integers(0, 3)))))


@given(records())
def test_what_was_written_is_read(record: ClaimRecord) -> None:
    assert v1.decode(v1.encode(record)) == record


@given(records(), st.data())
def test_any_changed_byte_is_damage_or_the_same_record(record: ClaimRecord, data: st.DataObject) -> None:
    raw = bytearray(v1.encode(record))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    try:
        found = v1.decode(bytes(raw))
    except (v1.Damaged, v1.TooNew):
        return
    assert found == record  # white space


@given(records(), st.data())
def test_any_cut_is_damage(record: ClaimRecord, data: st.DataObject) -> None:
    raw = v1.encode(record).rstrip()
    with pytest.raises(v1.Damaged):
        v1.decode(raw[: data.draw(st.integers(0, len(raw) - 1))])


def test_file_of_the_first_release_is_still_read() -> None:
    record = v1.decode(GOLDEN.read_bytes())
    assert record.ref == ClaimRef("team", "kv", claim_uid("0d3a2f0e-6f0b-4f0a-9a55-6c6a7c1f1b11"))
    assert record.boot_id == "6d5f6a1e-3a86-4b77-9d0a-7d3b6a0c5e21"
    (entry,) = record.shares
    assert entry.phase is Phase.PREPARED
    assert entry.share.region == "r-9f0e2b6a-7d5a-4f0f-b5c7-1a9b3c6d8e10"
    assert entry.wanted is not None
    assert (entry.wanted.region_bytes, entry.wanted.epoch, entry.wanted.init) == (4294967296, 3, True)


def test_file_that_is_written_is_the_golden_one() -> None:
    assert v1.encode(v1.decode(GOLDEN.read_bytes())) == GOLDEN.read_bytes()


def newer(**envelope: Any) -> bytes:
    found = json.loads(GOLDEN.read_bytes())
    found["body"]["colour"] = "blue"
    found["body"]["shares"][0]["wanted"]["tier"] = {"near": True}
    found.update(version=2, **envelope)
    return json.dumps({**found, "sha256": v1.digest(found)}).encode()


def test_newer_file_with_additions_is_read_after_a_downgrade() -> None:
    assert v1.decode(newer(readableBy=1)) == v1.decode(GOLDEN.read_bytes())


def test_newer_file_with_other_meanings_is_left_alone() -> None:
    with pytest.raises(v1.TooNew, match="written as version 2, readable from 2, not 1"):
        v1.decode(newer(readableBy=2))
