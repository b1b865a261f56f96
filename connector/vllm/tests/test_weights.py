"""Which weights an engine runs is told by their bytes, all of them, and by nothing else."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest
from hymcache.vllm import weights
from hymcache.vllm.weights import Adapters, content_identity


def model(folder: Path, weights: bytes = b"w" * 100_000, **files: bytes) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "tokenizer.json").write_bytes(b"{}")
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


def test_the_same_files_elsewhere_are_the_same_weights(tmp_path):
    assert content_identity([model(tmp_path / "a")]) == content_identity([model(tmp_path / "deep" / "b")])


def test_one_changed_byte_anywhere_makes_other_weights(tmp_path):
    whole = bytearray(b"w" * 100_000)
    before = content_identity([model(tmp_path / "a", bytes(whole))])
    for number, at in enumerate((0, 50_001, 99_999)):
        changed = bytearray(whole)
        changed[at] ^= 1
        assert content_identity([model(tmp_path / f"c{number}", bytes(changed))]) != before


def test_code_that_comes_with_the_weights_counts_and_a_tokenizer_does_not(tmp_path):
    plain = content_identity([model(tmp_path / "a")])
    assert content_identity([model(tmp_path / "b", modeling__py=b"x = 1")]) != plain
    assert content_identity([model(tmp_path / "c", vocab__txt=b"x")]) == plain


def test_a_folder_without_weights_has_no_identity(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert content_identity([tmp_path]) is None
    assert content_identity([model(tmp_path / "a"), tmp_path]) is None


def test_a_hub_cache_is_believed_about_names_that_are_content_hashes_and_nothing_else(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    content = b"w" * 100_000
    blob = blobs / hashlib.sha256(content).hexdigest()
    blob.write_bytes(content)
    (snapshot / "model.safetensors").symlink_to(os.path.relpath(blob, snapshot))
    assert content_identity([snapshot]) == content_identity([model(tmp_path / "plain", content)])


def adapter(folder: Path, weights: bytes = b"a" * 1000) -> str:
    return str(model(folder, weights, adapter_config__json=b'{"r": 8}'))


@pytest.fixture
def adapters():
    made = Adapters()
    yield made
    made.close()


def known(adapters, number, path):
    """The identity once the hash is done."""
    deadline = time.monotonic() + 60
    while (identity := adapters.identity(number, path)) is None and time.monotonic() < deadline:
        time.sleep(0.001)
    return identity


def test_one_adapter_at_two_paths_is_one_identity_and_two_adapters_are_two(tmp_path, adapters):
    one = known(adapters, 1, adapter(tmp_path / "a"))
    same = known(adapters, 7, adapter(tmp_path / "b"))
    other = known(adapters, 2, adapter(tmp_path / "c", b"b" * 1000))
    assert one == same != other
    assert one is not None
    assert len(one) == 32


def test_an_adapter_is_not_shared_before_its_files_are_hashed(tmp_path, adapters, monkeypatch):
    gate = threading.Event()
    content = weights.content_identity
    monkeypatch.setattr(weights, "content_identity", lambda folders: (gate.wait(10), content(folders))[1])
    path = adapter(tmp_path / "a")
    assert adapters.identity(1, path) is None
    gate.set()
    assert known(adapters, 1, path) is not None


def test_an_adapter_whose_files_changed_shares_nothing_any_more(tmp_path, adapters):
    path = adapter(tmp_path / "a")
    assert known(adapters, 1, path) is not None
    (Path(path) / "model.safetensors").write_bytes(b"c" * 1001)
    assert adapters.identity(1, path) is None
    (Path(path) / "model.safetensors").write_bytes(b"a" * 1000)
    assert adapters.identity(1, path) is None


def test_an_adapter_reloaded_in_place_shares_nothing(tmp_path, adapters):
    path = adapter(tmp_path / "a")
    assert known(adapters, 1, path) is not None
    assert adapters.identity(1, path, reloaded_in_place=True) is None
    assert adapters.identity(1, path) is None


def test_an_adapter_that_cannot_be_read_shares_nothing(tmp_path, adapters):
    assert adapters.identity(1, str(tmp_path / "nowhere")) is None
