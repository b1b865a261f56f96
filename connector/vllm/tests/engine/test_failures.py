"""A region that fails costs time, never text: every failure ends in recomputation, once."""

from __future__ import annotations

import threading
import time

import pytest
from faults import Faults
from harness import expected, prompt
from vllm.v1.request import FinishReason


@pytest.fixture
def faults(monkeypatch):
    return Faults(monkeypatch)


@pytest.mark.parametrize("failing_chunk", [0, 1, 3])
def test_a_failed_load_is_recomputed_from_the_first_bad_chunk(region, engine, faults, failing_chunk):
    path, text = region(), prompt(1, 600)
    engine(path).run("cold", text)
    other = engine(path, domain=1)
    faults.lose_load(failing_chunk)
    warm = other.run("warm", text)

    assert warm.tokens == expected(text)
    assert warm.reason is FinishReason.LENGTH
    assert other.stats["hymcache:loads:missing"] == 4 - failing_chunk
    assert faults.loads == failing_chunk + 1  # not one copy after the failure, no second try


def test_a_failed_load_ends_the_request_under_the_policy_fail_and_the_next_one_works(region, engine, faults):
    path, text = region(), prompt(2, 600)
    engine(path).run("cold", text)
    other = engine(path, domain=1, policy="fail")
    faults.lose_load(0)

    assert other.run("warm", text).reason is FinishReason.ERROR
    assert other.run("next", text).tokens == expected(text)


def test_the_next_request_does_not_try_a_failed_chunk_again_until_it_is_stored_anew(region, engine, faults):
    path, text = region(), prompt(3, 600)
    engine(path).run("cold", text)
    other = engine(path, domain=1)
    faults.lose_load(0)
    other.run("warm", text)
    tried = faults.loads
    other.forget_prefixes()

    assert other.run("next", text).tokens == expected(text)
    assert faults.loads == tried


def test_a_defect_in_the_copy_is_a_failed_load_not_a_dead_engine(region, engine, faults):
    path, text = region(), prompt(4, 600)
    engine(path).run("cold", text)
    other = engine(path, domain=1)
    faults.raise_on_load(1)

    assert other.run("warm", text).tokens == expected(text)
    assert other.stats["hymcache:loads:error"] == 3


def test_a_store_that_fails_is_silent_and_the_next_request_stores_again(region, engine, faults):
    path, text = region(), prompt(5, 600)
    one = engine(path)
    faults.refuse_stores(4)
    assert one.run("cold", text).tokens == expected(text)
    assert one.stats["hymcache:stores:refused"] == 4
    one.forget_prefixes()
    assert one.run("again", text).tokens == expected(text)
    assert one.stats["hymcache:stores:stored"] == 4
    assert engine(path, domain=1).run("warm", text).external_tokens == 512


def test_a_full_region_is_left_alone_for_a_while_and_then_used_again(region, engine, faults):
    one = engine(region(), full_backoff_seconds=2)
    faults.refuse_stores(1, full=True)
    one.run("finds it full", prompt(40, 600))
    one.run("offers nothing", prompt(41, 600))
    assert one.stats["hymcache:stores:stored"] == 3  # the other chunks of the first request
    assert one.stats["vllm:kv_offload_allocation_failure"] > 0
    time.sleep(2.1)
    one.run("offers again", prompt(42, 600))
    assert one.stats["hymcache:stores:stored"] == 7


def test_a_load_that_takes_too_long_is_given_up_between_chunks(region, engine, faults):
    path, text = region(), prompt(6, 600)
    engine(path).run("cold", text)
    other = engine(path, domain=1, load_timeout_seconds=0.2)
    faults.slow_loads(0.15)
    warm = other.run("warm", text)

    assert warm.tokens == expected(text)
    assert other.stats["hymcache:loads:timeout"] >= 1


def test_a_load_that_waits_behind_a_stuck_one_is_given_up_without_touching_its_blocks(region, engine, faults):
    path, first, second = region(), prompt(7, 300), prompt(8, 300)
    one = engine(path)
    one.run("cold 1", first)
    one.run("cold 2", second)
    other = engine(path, domain=1, load_timeout_seconds=0.2)
    gate = faults.block_load(0)
    other.add("stuck", first)
    other.add("behind", second)
    for _ in range(20_000):
        if other.results["behind"].reason is not None:
            break
        other.step()
    assert other.results["behind"].tokens == expected(second)
    assert other.results["stuck"].reason is None  # its blocks stay reserved while a copy may write to them
    gate.set()
    other.drain()
    assert other.results["stuck"].tokens == expected(first)


def test_an_abort_while_loading_frees_the_request_and_the_engine_goes_on(region, engine, faults):
    path, text = region(), prompt(9, 600)
    engine(path).run("cold", text)
    other = engine(path, domain=1)
    gate = faults.block_load(0)
    other.add("gone", text)
    other.step()
    other.abort("gone")
    other.step()
    gate.set()
    other.drain()

    assert other.run("next", text).tokens == expected(text)
    assert other.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 79  # all but the null block


def test_the_engine_takes_blocks_back_from_a_slow_store_in_bounded_time(region, engine, faults):
    one = engine(region(), blocks=26, flush_seconds=0.05)
    faults.slow_stores(0.05)
    texts = {f"r{n}": prompt(20 + n, 380) for n in range(6)}
    for name, text in texts.items():
        one.add(name, text, max_tokens=40)
    one.drain()

    assert all(one.results[name].tokens == expected(text, 40) for name, text in texts.items())
    assert one.stats["hymcache:stores:withdrawn"] > 0


def test_a_store_under_way_keeps_its_blocks_until_the_copy_has_ended(region, engine, faults):
    one = engine(region(), blocks=26, flush_seconds=0.0)
    gate = faults.block_store(0)
    one.add("first", prompt(30, 380), max_tokens=1)
    one.step()
    opener = threading.Timer(0.3, gate.set)
    opener.start()
    second = one.run("second", prompt(31, 700))

    assert second.tokens == expected(prompt(31, 700))
    opener.join()
    one.forget_prefixes()
    assert one.run("first again", prompt(30, 380)).tokens == expected(prompt(30, 380))


def test_reset_of_the_connector_finds_nothing_old_and_leaves_other_engines_their_objects(region, engine):
    path, text = region(), prompt(10, 600)
    one, other = engine(path), engine(path, domain=1)
    one.run("cold", text)
    assert one.scheduler.reset_prefix_cache(reset_connector=True)
    assert one.run("after reset", text).external_tokens == 0
    assert other.run("elsewhere", text).external_tokens == 512
