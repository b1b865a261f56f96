"""Regions that are not there, not the expected one, or not regions: the engine runs without the tier and says why."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid

import pytest
from harness import expected, prompt
from hymcache.region import Region
from hymcache.region.handover import Server
from hymcache.vllm.attachment import RegionUnavailable
from hymcache.vllm.startup import ConfigurationError


@pytest.fixture
def said(monkeypatch):
    """What the connector logs as a warning."""
    lines = []
    monkeypatch.setattr(
        logging.getLogger("vllm.hymcache.vllm.spec"), "warning", lambda text, *a: lines.append(text % a)
    )
    return lines


def formatted(path, **options):
    return Region.format(path, size=16 << 20, chunk_bytes=64 << 10, **options)


def missing(tmp_path):
    return {"region": str(tmp_path / "nowhere")}, ["HYMCACHE_REGION", "nowhere"]


def not_set(_):
    return {}, ["HYMCACHE_REGION is not set"]


def foreign(tmp_path):
    path = tmp_path / "region"
    path.write_bytes(b"someone else's data\n" * 1_000_000)
    return {"region": str(path)}, ["region"]


def unformatted(tmp_path):
    path = tmp_path / "region"
    path.write_bytes(bytes(16 << 20))
    return {"region": str(path)}, ["region"]


def truncated(tmp_path):
    path = tmp_path / "region"
    formatted(path)
    os.truncate(path, 8 << 20)
    return {"region": str(path)}, ["region"]


def another_uuid(tmp_path):
    formatted(tmp_path / "region")
    other = str(uuid.uuid4())
    return {"region": str(tmp_path / "region"), "region_uuid": other}, [other]


def another_size(tmp_path):
    formatted(tmp_path / "region")
    return {"region": str(tmp_path / "region"), "region_bytes": 1 << 30}, ["HYMCACHE_REGION_BYTES", str(1 << 30)]


def another_coherence(tmp_path):
    formatted(tmp_path / "region")
    return {"region": str(tmp_path / "region"), "coherence": "hardware"}, ["HYMCACHE_COHERENCE", "software"]


def no_such_domain(tmp_path):
    formatted(tmp_path / "region", domains=2)
    return {"region": str(tmp_path / "region"), "domain": 5}, ["domain"]


def dead_socket(tmp_path):
    return {"region": f"unix:{tmp_path}/gone.sock?region=r"}, ["gone.sock"]


WRONG = [
    missing,
    not_set,
    foreign,
    unformatted,
    truncated,
    another_uuid,
    another_size,
    another_coherence,
    no_such_domain,
    dead_socket,
]


@pytest.mark.parametrize("wrong", WRONG)
def test_the_engine_runs_without_the_tier_says_why_and_touches_nothing(tmp_path, engine, said, wrong):
    section, words = wrong(tmp_path)
    path = tmp_path / "region"
    before = path.read_bytes() if path.exists() else None
    one, text = engine(None, **section), prompt(1, 400)

    assert one.run("cold", text).tokens == expected(text)
    one.forget_prefixes()
    again = one.run("again", text)
    assert again.tokens == expected(text)
    assert again.external_tokens == 0
    assert one.stats["hymcache:region_attached"] == 0
    assert all(line.startswith("Running without the shared KV tier: ") for line in said)
    assert any(all(word in line for word in words) for line in said), said
    assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.parametrize("wrong", WRONG)
def test_a_required_region_that_is_not_usable_stops_the_start(tmp_path, engine, wrong):
    section, words = wrong(tmp_path)
    with pytest.raises(RegionUnavailable) as caught:
        engine(None, required=True, **section)
    assert any(word in str(caught.value) for word in words)


@pytest.mark.parametrize("algorithm", ["sha256", "xxhash_cbor"])
def test_an_engine_with_other_hashes_does_not_start(monkeypatch, config, engine, region, algorithm):
    monkeypatch.setattr(config.cache_config, "prefix_caching_hash_algo", algorithm)
    with pytest.raises(ConfigurationError, match="--prefix-caching-hash-algo sha256_cbor"):
        engine(region())


def test_an_engine_keeps_its_region_when_the_socket_that_gave_it_is_gone(tmp_path, engine):
    descriptor = os.memfd_create("region")
    os.truncate(descriptor, 16 << 20)
    Region.format(descriptor, chunk_bytes=64 << 10)
    reply = {"ok": True, "region": "r", "bytes": 16 << 20, "access": "rw", "coherence": "software", "media": "dram"}
    server = Server(tmp_path / "blade.sock", lambda _: (reply, os.dup(descriptor)))
    target = f"unix:{tmp_path}/blade.sock?region=r"
    with contextlib.closing(server):
        one, text = engine(None, region=target), prompt(2, 400)
    os.close(descriptor)

    one.run("cold", text)
    one.forget_prefixes()
    assert one.run("again", text).external_tokens == 384
    assert engine(None, region=target).run("later", text).external_tokens == 0
