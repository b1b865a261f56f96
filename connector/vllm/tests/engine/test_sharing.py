"""What one engine stores another one uses, to the byte, wherever chunks and hits begin and end."""

from __future__ import annotations

import pytest
from harness import BLOCK_TOKENS, UNIT_BYTES, expected, prompt


@pytest.mark.parametrize("chunk_blocks", [1, 4, 8])
def test_another_host_loads_every_whole_chunk_of_a_prompt(region, engine, chunk_blocks):
    path, text = region(), prompt(1, 700)
    first = engine(path, chunk_blocks=chunk_blocks).run("cold", text)
    other = engine(path, domain=1, chunk_blocks=chunk_blocks)
    second = other.run("warm", text)

    chunk_tokens = chunk_blocks * BLOCK_TOKENS
    assert first.external_tokens == 0
    assert second.external_tokens == 700 // chunk_tokens * chunk_tokens
    assert first.tokens == second.tokens == expected(text)
    assert other.stats["hymcache:copy_bytes:load"] == second.external_tokens // BLOCK_TOKENS * UNIT_BYTES


@pytest.mark.parametrize("chunk_blocks", [1, 4, 8])
def test_the_same_engine_loads_again_after_its_own_prefixes_are_gone(region, engine, chunk_blocks):
    one, text = engine(region(), chunk_blocks=chunk_blocks), prompt(2, 700)
    one.run("cold", text)
    one.forget_prefixes()
    again = one.run("again", text)

    assert again.external_tokens == 700 // (chunk_blocks * BLOCK_TOKENS) * chunk_blocks * BLOCK_TOKENS
    assert again.tokens == expected(text)


def test_a_prompt_of_exactly_whole_chunks_computes_its_last_token(region, engine):
    path, text = region(), prompt(3, 512)
    engine(path).run("cold", text)
    warm = engine(path, domain=1).run("warm", text)

    assert warm.external_tokens == 512
    assert warm.tokens == expected(text)


@pytest.mark.parametrize("kept_blocks", [1, 2, 3, 5, 6, 7, 9])
def test_a_load_begins_inside_a_chunk_when_the_engine_holds_the_blocks_before(region, engine, kept_blocks):
    path, text = region(), prompt(4, 900)
    engine(path, chunk_blocks=4).run("cold", text)
    other = engine(path, domain=1, chunk_blocks=4)
    other.run("short", text[: kept_blocks * BLOCK_TOKENS + 1], max_tokens=1)  # too short to load: computes its own
    own = other.results["short"].external_tokens
    warm = other.run("long", text)

    assert warm.cached_tokens == 896
    assert warm.external_tokens == 896 - kept_blocks * BLOCK_TOKENS
    assert own in (0, kept_blocks // 4 * 4 * BLOCK_TOKENS)
    assert warm.tokens == expected(text)


def test_a_prefix_is_shared_up_to_where_two_prompts_part(region, engine):
    path, text = region(), prompt(5, 800)
    engine(path).run("cold", text)
    forked = text[:500] + prompt(6, 300)
    warm = engine(path, domain=1).run("fork", forked)

    assert warm.external_tokens == 384  # three whole chunks of 128 tokens
    assert warm.tokens == expected(forked)


def test_decoded_blocks_are_stored_when_asked_for(region, engine):
    path, text = region(), prompt(7, 100)
    first = engine(path, chunk_blocks=1, extra={"offload_prompt_only": False}).run("chat", text, max_tokens=60)
    turn = text + first.tokens
    warm = engine(path, domain=1, chunk_blocks=1).run("next turn", turn)

    assert warm.external_tokens == 128  # the fifth block lacks the KV of the last token drawn
    assert warm.tokens == expected(turn)


def test_a_salted_request_shares_nothing_with_others(region, engine, config):
    path, text = region(), prompt(8, 600)
    one = engine(path)
    one.run("cold", text)
    other = engine(path, domain=1, chunk_blocks=8)  # other chunks are other objects
    assert other.run("other chunk size", text).external_tokens == 0
    assert engine(path, domain=1, weights_epoch="2").run("other weights", text).external_tokens == 0


def test_requests_that_arrive_together_share_one_load(region, engine):
    path, text = region(), prompt(9, 600)
    engine(path).run("cold", text)
    other = engine(path, domain=1)
    for number in range(4):
        other.add(f"r{number}", text)
    other.drain()

    assert {tuple(result.tokens) for result in other.results.values()} == {tuple(expected(text))}
    assert other.stats["hymcache:loads:loaded"] == 4  # 512 tokens in chunks of 128, once


def test_long_probes_run_beside_the_scheduler(region, engine):
    path, text = region(), prompt(10, 700)
    engine(path).run("cold", text)
    warm = engine(path, domain=1, probe_inline_keys=0).run("warm", text)

    assert warm.external_tokens == 640
    assert warm.tokens == expected(text)
