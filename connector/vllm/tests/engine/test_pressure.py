"""Random traffic on too little memory: evictions, preemptions and two engines, every position compared."""

from __future__ import annotations

import random

import pytest
from harness import expected, prompt


def traffic(seed: int, count: int) -> list[tuple[list[int], int]]:
    """Prompts that share prefixes of any length, with the tokens to draw after each."""
    rng = random.Random(seed)
    stems = [prompt(100 + seed + n, 800) for n in range(5)]
    requests = []
    for number in range(count):
        stem = rng.choice(stems)
        text = stem[: rng.randrange(40, 760)] + prompt(1000 * seed + number, rng.randrange(1, 60))
        requests.append((text, rng.randrange(1, 50)))
    return requests


def check(engines, requests):
    for number, (text, tokens) in enumerate(requests):
        result = engines[number % len(engines)].results[f"r{number}"]
        assert result.tokens == expected(text, tokens), f"request {number}"


@pytest.mark.parametrize("chunk_blocks", [1, 4])
def test_a_storm_of_evictions_and_preemptions_draws_the_same_text(region, engine, chunk_blocks):
    path = region(6 << 20, domains=1)
    one = engine(path, blocks=44, chunk_blocks=chunk_blocks, extra={"offload_prompt_only": False})
    requests = traffic(chunk_blocks, 60)
    for number, (text, tokens) in enumerate(requests):
        one.add(f"r{number}", text, tokens)
        for _ in range(3):
            one.step()
    one.drain()

    check([one], requests)
    assert one.preemptions > 0
    assert one.stats["hymcache:loads:loaded"] > 0
    assert one.positions_checked > 100_000


def test_two_engines_on_two_domains_of_one_small_region_draw_the_same_text(region, engine):
    path = region(8 << 20)
    engines = [engine(path, blocks=44, chunk_blocks=2, domain=domain) for domain in (0, 1)]
    requests = traffic(7, 80)
    for number, (text, tokens) in enumerate(requests):
        engines[number % 2].add(f"r{number}", text, tokens)
        for one in engines * 2:
            one.step()
    for one in engines:
        one.drain()

    check(engines, requests)
    assert all(one.stats["hymcache:loads:loaded"] > 0 for one in engines)


def test_a_region_with_room_for_three_chunks_never_stops_an_engine(region, engine):
    path = region(2 << 20, domains=1)
    one = engine(path, chunk_blocks=4)
    requests = traffic(9, 30)
    for number, (text, tokens) in enumerate(requests):
        one.add(f"r{number}", text, tokens)
    one.drain()
    check([one], requests)


def test_nothing_is_left_open_at_the_end(region, engine):
    one = engine(region(), blocks=44)
    for number, (text, tokens) in enumerate(traffic(11, 20)):
        one.add(f"r{number}", text, tokens)
    one.drain()
    manager, worker = one.connector.connector_scheduler.manager, one.worker.connector_worker.worker

    assert not manager._requests
    assert not manager._storing
    assert not manager._unstored
    assert not worker._jobs
    assert one.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 43
