"""Settings come from the environment that the node plugin injects and from vLLM's JSON, which wins."""

from __future__ import annotations

import pytest
from hymcache.vllm.settings import Settings, SettingsError, load


def test_nothing_set_means_no_region_and_the_documented_defaults():
    assert load({}, {}) == Settings()
    assert Settings().region is None
    assert Settings().chunk_tokens == 256


def test_a_pod_gets_its_region_from_the_environment_alone():
    settings = load(
        {},
        {
            "HYMCACHE_REGION": "unix:/run/hymcache/region.sock",
            "HYMCACHE_REGION_UUID": "0d9f2d0e-1111-4222-8333-444455556666",
            "HYMCACHE_REGION_BYTES": str(64 << 30),
            "HYMCACHE_DOMAIN": "3",
            "HYMCACHE_COHERENCE": "hardware",
            "HYMCACHE_CACHE": "/elsewhere",
        },
    )
    assert settings.region == "unix:/run/hymcache/region.sock"
    assert settings.region_bytes == 64 << 30
    assert settings.domain == 3
    assert settings.coherence == "hardware"


def test_the_json_of_the_flag_wins_over_the_environment():
    settings = load({"hymcache": {"chunk_tokens": 128, "required": True}}, {"HYMCACHE_CHUNK_TOKENS": "512"})
    assert settings.chunk_tokens == 128
    assert settings.required


def test_an_empty_variable_is_as_good_as_none():
    assert load({}, {"HYMCACHE_REGION": ""}).region is None


@pytest.mark.parametrize(
    ("extra", "environ", "words"),
    [
        ({"hymcache": {"chunks": 1}}, {}, ["unknown chunks", "chunk_tokens"]),
        ({"hymcache": "x"}, {}, ["expected an object", "'x'"]),
        ({}, {"HYMCACHE_DOMAIN": "first"}, ["HYMCACHE_DOMAIN", "expected int", "'first'"]),
        ({}, {"HYMCACHE_DOMAIN": "-1"}, ["domain", "at least 0", "-1"]),
        ({}, {"HYMCACHE_REQUIRED": "perhaps"}, ["HYMCACHE_REQUIRED", "expected bool", "'perhaps'"]),
        ({}, {"HYMCACHE_COHERENCE": "snooped"}, ["software or hardware", "'snooped'"]),
        ({}, {"HYMCACHE_CHUNK_TOKENS": "0"}, ["chunk_tokens", "above 0", "0"]),
        ({"hymcache": {"load_timeout_seconds": "soon"}}, {}, ["load_timeout_seconds", "expected float", "'soon'"]),
    ],
)
def test_a_wrong_value_is_named_with_what_is_accepted(extra, environ, words):
    with pytest.raises(SettingsError) as caught:
        load(extra, environ)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("text", ["1", "true", "YES", "True"])
def test_switches_read_the_usual_words(text):
    assert load({}, {"HYMCACHE_REQUIRED": text}).required
