"""CDI files: what a runtime accepts, and how they come and go."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
from hymcache.dra import cdi
from hymcache.dra.cdi import CdiFolder, Edits
from hymcache.dra.keys import ShareKey, claim_uid
from hymcache.dra.plan import ClaimRef
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kubelet.runtime import check

SCHEMA = json.loads((Path(__file__).parent / "data" / "cdi-schema.json").read_text())
UID = claim_uid("0d3a2f0e-6f0b-4f0a-9a55-6c6a7c1f1b11")
REF = ClaimRef("team", "kv", UID)

labels = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?\Z")
share_keys = st.builds(
    ShareKey.of, st.just(UID), st.none() | st.uuids().map(str), st.lists(labels, min_size=1).map("/".join), labels
)
values = st.text(st.characters(min_codepoint=32, max_codepoint=126))
edits = st.builds(
    Edits,
    env=st.dictionaries(st.from_regex(r"\A[A-Z][A-Z_]{0,9}\Z"), values, min_size=1),
    mounts=st.dictionaries(labels.map(lambda name: Path("/var/lib") / name), st.just("/run/hymcache"), max_size=2),
)


@given(st.dictionaries(share_keys, st.tuples(labels, edits), min_size=1, max_size=4))
def test_every_document_is_valid_and_the_same_twice(shares: dict[ShareKey, tuple[str, Edits]]) -> None:
    document = cdi.build("hymcache.io", REF, shares)
    jsonschema.validate(document, SCHEMA)
    check(document, Path("generated"))
    assert document == cdi.build("hymcache.io", REF, dict(reversed(shares.items())))
    names = [f"{document['kind']}={device['name']}" for device in document["devices"]]
    assert set(names) == {cdi.device_id("hymcache.io", key) for key in shares}


def test_two_shares_of_one_device_in_one_claim_do_not_collide() -> None:
    one, other = (ShareKey.of(UID, share, "blade-1", "dram-shared") for share in ("a" * 36, "b" * 36))
    assert cdi.device_id("hymcache.io", one) != cdi.device_id("hymcache.io", other)
    assert one.folder != other.folder


def document(value: str = "1") -> dict[str, object]:
    key = ShareKey.of(UID, "9f0e2b6a-7d5a-4f0f-b5c7-1a9b3c6d8e10", "blade-1", "dram-shared")
    return cdi.build("hymcache.io", REF, {key: ("r-9f0e", Edits({"HYMCACHE_DOMAIN": value}, {}))})


def test_file_appears_whole_under_a_name_that_runtimes_read(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path / "cdi", "hymcache.io")
    assert folder.write(UID, document())
    (path,) = (tmp_path / "cdi").iterdir()
    assert path.name == f"hymcache.io-region_{UID}.json"
    assert json.loads(path.read_text()) == document()
    assert folder.claims() == {UID}
    assert folder.regions(UID) == {ShareKey(UID, "9f0e2b6a-7d5a-4f0f-b5c7-1a9b3c6d8e10"): "r-9f0e"}
    folder.remove(UID)
    folder.remove(UID)
    assert folder.claims() == set()


def test_same_content_is_not_written_again(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path, "hymcache.io")
    folder.write(UID, document())
    before = folder.path(UID).stat().st_ino
    assert not folder.write(UID, document())
    assert folder.path(UID).stat().st_ino == before
    assert folder.write(UID, document("2"))
    assert folder.path(UID).stat().st_ino != before, "a runtime may be reading the old file"


def test_damaged_file_names_nothing(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path, "hymcache.io")
    for text in ("", "{", "[]", '{"devices": [{}]}', '{"devices": 3}'):
        folder.path(UID).write_text(text)
        assert folder.regions(UID) == {}


def test_files_of_others_are_not_ours(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path, "hymcache.io")
    for name in ("gpu.example.com-gpu_1.json", "hymcache.io-region_.json", "hymcache.io-region_a b.json", "spec.tmp"):
        (tmp_path / name).write_text("{}")
    assert folder.claims() == set()


def test_folder_that_does_not_exist_is_made(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path / "var" / "run" / "cdi", "hymcache.io")
    assert folder.claims() == set()
    folder.write(UID, document())
    assert list((tmp_path / "var" / "run" / "cdi").iterdir()) == [folder.path(UID)]
