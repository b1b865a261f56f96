"""Two real vLLM servers on one region: the same answers as without it, faster, and through kills and damage."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time

import pytest
import requests
from engine.client import RequestFailed
from engine.trio import ask, hits, text_of

CHUNK_TOKENS = 256
PAGE = 4096


def counted(server, prefix):
    return {name: value for name, value in server.client.metrics().items() if name.startswith(prefix)}


def store(server, text):
    """Ask and wait until every whole chunk is in the region."""
    name = 'hymcache:stores_total{outcome="stored"}'
    before = server.client.metrics().get(name, 0)
    answer = ask(server, text)
    for _ in range(1200):
        if server.client.metrics().get(name, 0) >= before + len(text) // CHUNK_TOKENS:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{server.name} did not store {len(text) // CHUNK_TOKENS} chunks within a minute")


@pytest.mark.parametrize("tokens", [300, 1000, 1024, 3000])
def test_the_other_server_loads_every_whole_chunk_and_answers_the_same(servers, tokens):
    text = text_of(tokens, tokens)
    right = servers.right_answer(text)
    cold = store(servers.first, text)
    before = hits(servers.other.client)
    warm = ask(servers.other, text)

    assert cold.token_ids == warm.token_ids == right
    assert hits(servers.other.client) - before == tokens // CHUNK_TOKENS * CHUNK_TOKENS


def test_the_same_server_loads_what_its_own_cache_has_forgotten(servers):
    text = text_of(1, 1000)
    first = store(servers.first, text)
    servers.first.client.reset_prefix_cache()
    before = hits(servers.first.client)

    assert ask(servers.first, text).token_ids == first.token_ids
    assert hits(servers.first.client) - before == 768


def test_a_server_with_exactly_the_documented_flags_shows_the_counters(servers):
    store(servers.first, text_of(2, 600))
    found = counted(servers.first, "hymcache:")

    assert found["hymcache:region_attached"] == 1
    assert found['hymcache:stores_total{outcome="stored"}'] >= 2
    assert found['hymcache:copy_bytes_total{direction="store"}'] > 0
    assert found['hymcache:lookups_total{result="miss"}'] >= 2
    assert any(name.startswith("hymcache:region_events_total") for name in found)


def test_a_server_whose_region_is_missing_answers_and_says_so(servers):
    assert ask(servers.bare, text_of(3, 600)).token_ids
    assert counted(servers.bare, "hymcache:")["hymcache:region_attached"] == 0
    assert "Running without the shared KV tier" in servers.bare.log.read_text()


def test_damaged_objects_of_the_other_domain_are_computed_once_and_not_tried_again(servers):
    text = text_of(4, 1500)
    right = servers.right_answer(text)
    before = servers.region.read_bytes()
    store(servers.first, text)
    assert flip_every_object(servers.region, before) >= 5
    tried = 'hymcache:loads_total{outcome="missing"}'

    assert ask(servers.other, text).token_ids == right
    failed = servers.other.client.metrics()[tried]
    assert failed > 0
    servers.other.client.reset_prefix_cache()
    assert ask(servers.other, text).token_ids == right
    assert servers.other.client.metrics()[tried] == failed


def flip_every_object(region, before):
    """Change one byte in the middle of every run of 256 KiB or more that differs from `before`; how many."""
    with region.open("r+b") as medium:
        after = medium.read()
        changed = [at for at in range(0, len(after), PAGE) if before[at : at + PAGE] != after[at : at + PAGE]]
        runs = [
            [page for _, page in run]
            for _, run in itertools.groupby(enumerate(changed), key=lambda item: item[1] - item[0] * PAGE)
        ]
        long = [run for run in runs if len(run) * PAGE >= 256 << 10]
        places = [run[at] for run in long for at in range(len(run) // 2 % 64, len(run), 64)]
        for place in places:
            medium.seek(place)
            medium.write(bytes([after[place] ^ 0x10]))
    return len(places)


def test_a_server_killed_in_mid_store_disturbs_nobody_and_hits_at_once_when_restarted(servers):
    kept = text_of(5, 2000)
    right = servers.right_answer(kept)
    store(servers.first, kept)
    fresh = [text_of(100 + number, 3000) for number in range(6)]
    kill_while(servers.first, fresh, 'hymcache:stores_total{outcome="stored"}')

    for text in (*fresh[:2], kept):  # whole, half-stored or absent: only right bytes count
        assert ask(servers.other, text).token_ids == servers.right_answer(text)
    servers.first.start()
    servers.first.wait_ready()
    assert ask(servers.first, kept).token_ids == right
    assert hits(servers.first.client) == 1792


def test_a_server_killed_in_mid_load_disturbs_nobody_and_hits_at_once_when_restarted(servers):
    texts = [text_of(200 + number, 3000) for number in range(4)]
    right = [servers.right_answer(text) for text in texts]
    for text in texts:
        store(servers.first, text)
    kill_while(servers.other, texts, 'hymcache:loads_total{outcome="loaded"}')

    servers.first.client.reset_prefix_cache()
    assert [ask(servers.first, text).token_ids for text in texts] == right
    servers.other.start()
    servers.other.wait_ready()
    assert ask(servers.other, texts[0]).token_ids == right[0]
    assert hits(servers.other.client) == 2816


def kill_while(server, texts, counter):
    """Send all texts at once and kill the server when its counter begins to move."""
    before = server.client.metrics().get(counter, 0)
    threads = [threading.Thread(target=_ask_and_lose, args=(server, text)) for text in texts]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 120
    while server.client.metrics().get(counter, 0) == before and time.monotonic() < deadline:
        time.sleep(0.005)
    server.kill()
    for thread in threads:
        thread.join()


def _ask_and_lose(server, text):
    with contextlib.suppress(requests.RequestException, RequestFailed, KeyError):  # the server is killed under it
        ask(server, text)
