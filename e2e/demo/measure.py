"""The measurement: the same text cold, again on the same host, and on the other host."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from engine.client import Client, Completion

from demo.settings import MIB, Settings
from demo.texts import prompt

CHUNK_TOKENS = 256  # HYMCACHE_CHUNK_TOKENS' default
STORE_SECONDS = 120.0
WARM_TOKENS = 700
WAKE_TOKENS = 60  # less than a chunk: neither stored nor found
LOADS = 3

HITS = "vllm:external_prefix_cache_hits_total"
LOADED_BYTES = 'hymcache:copy_bytes_total{direction="load"}'
LOAD_SECONDS = 'hymcache:copy_seconds_total{direction="load"}'
STORED = 'hymcache:stores_total{outcome="stored"}'


@dataclass(frozen=True)
class Round:
    """One text: computed, loaded on its host, loaded on the other. Seconds are times to the first token, of loads the
    median; hits are the worst load's; bytes and copy time are the other host's."""

    tokens: int
    cold_seconds: float
    same_seconds: float
    cross_seconds: float
    same_hit_tokens: int
    cross_hit_tokens: int
    cross_bytes: int
    cross_copy_seconds: float
    text_equal: bool


@dataclass(frozen=True)
class Load:
    """A request of a text that is in the region: its answer, tokens found there, bytes and seconds of the copy."""

    completion: Completion
    hit_tokens: int
    moved: int
    copy_seconds: float


@dataclass(frozen=True)
class Row:
    """Medians of the rounds of one length."""

    tokens: int
    cold_seconds: float
    same_seconds: float
    cross_seconds: float
    speedup: float
    cross_over_same: float
    hit_tokens: int
    expected_hit_tokens: int
    mib: float
    gb_per_second: float
    text_equal: bool

    @property
    def correct(self) -> bool:
        """Every whole chunk was found and the text is the same, in every round."""
        return self.text_equal and self.hit_tokens == self.expected_hit_tokens


class Wrong(RuntimeError):
    """The tier did not do what the demo shows; the message says what was expected and found."""


def measure(first: Client, other: Client, settings: Settings, step: Callable[[str], None]) -> list[Round]:
    """All rounds, lengths inside repeats; `step` is called before each."""
    step("warming both servers")
    warm_up(first, other, settings)
    rounds = []
    for repeat in range(settings.repeats):
        for length in settings.tokens:
            step(f"round {repeat + 1} of {settings.repeats}, {length} tokens")
            text = prompt(f"{settings.seed}-{repeat}-{length}", length, first.tokens)
            wake = prompt(f"wake {settings.seed}-{repeat}-{length}", WAKE_TOKENS, first.tokens)
            rounds.append(_round(first, other, text, wake, settings.output_tokens))
    return rounds


def warm_up(first: Client, other: Client, settings: Settings) -> None:
    """One pass of everything that is timed later, so that no request pays for what a server does once."""
    for number, (storing, loading) in enumerate(((first, other), (other, first))):
        text = prompt(f"warm {settings.seed} {number}", WARM_TOKENS, first.tokens)
        _cold(storing, text, 2)
        loading.complete(text, max_tokens=2)
        storing.reset_prefix_cache()
        storing.complete(text, max_tokens=2)


def _round(first: Client, other: Client, text: list[int], wake: list[int], output_tokens: int) -> Round:
    """Cold once, then loaded by the same and by the other server in turns, `LOADS` times each; the first turn draws all
    of the answer, the others time its first token."""
    first.complete(wake, max_tokens=1)
    cold = _cold(first, text, output_tokens)
    same: list[Load] = []
    cross: list[Load] = []
    for turn in range(LOADS):
        pair = [(first, same), (other, cross)]
        for client, found in reversed(pair) if turn % 2 else pair:
            found.append(_load(client, text, wake, 1 if turn else output_tokens))
    return Round(
        tokens=len(text),
        cold_seconds=cold.first_token_seconds,
        same_seconds=median(one.completion.first_token_seconds for one in same),
        cross_seconds=median(one.completion.first_token_seconds for one in cross),
        same_hit_tokens=min(one.hit_tokens for one in same),
        cross_hit_tokens=min(one.hit_tokens for one in cross),
        cross_bytes=int(median(one.moved for one in cross)),
        cross_copy_seconds=median(one.copy_seconds for one in cross),
        text_equal=all(_begins_with(cold, one.completion) for one in same + cross),
    )


def _begins_with(cold: Completion, loaded: Completion) -> bool:
    """Whether all that was drawn after a load is what was drawn after the computation."""
    drawn = len(loaded.token_ids)
    return drawn > 0 and cold.token_ids[:drawn] == loaded.token_ids and cold.text.startswith(loaded.text)


def _load(client: Client, text: list[int], wake: list[int], output_tokens: int) -> Load:
    """A request whose text the server's own prefix cache does not have.

    It follows a short one of another text: after a pause a server's first request pays for cores, caches and pages that
    others have used in the meantime, and that is not what is measured.
    """
    client.reset_prefix_cache()
    client.complete(wake, max_tokens=1)
    before = client.metrics()
    completion = client.complete(text, max_tokens=output_tokens)
    after = client.metrics()
    hits, moved, seconds = (after.get(name, 0) - before.get(name, 0) for name in (HITS, LOADED_BYTES, LOAD_SECONDS))
    return Load(completion, int(hits), int(moved), seconds)


def _cold(client: Client, text: list[int], output_tokens: int) -> Completion:
    """A request whose text nobody has, finished only when its chunks are in the region."""
    before = client.metrics().get(STORED, 0)
    completion = client.complete(text, max_tokens=output_tokens)
    expected = before + len(text) // CHUNK_TOKENS
    deadline = time.monotonic() + STORE_SECONDS
    while (stored := client.metrics().get(STORED, 0)) < expected:
        if time.monotonic() > deadline:
            raise Wrong(
                f"expected {len(text) // CHUNK_TOKENS} chunks of {len(text)} tokens in the region, found "
                f"{stored - before:.0f} after {STORE_SECONDS:.0f} s; see the server's log (DEMO_KEEP=1)"
            )
        time.sleep(0.05)
    return completion


def rows(rounds: list[Round]) -> list[Row]:
    """One row a length."""
    found = []
    for length in sorted({one.tokens for one in rounds}):
        same_length = [one for one in rounds if one.tokens == length]
        cold, same, cross = (
            median(getattr(one, name) for one in same_length)
            for name in ("cold_seconds", "same_seconds", "cross_seconds")
        )
        found.append(
            Row(
                tokens=length,
                cold_seconds=cold,
                same_seconds=same,
                cross_seconds=cross,
                speedup=cold / cross,
                cross_over_same=cross / same,
                hit_tokens=min(one.cross_hit_tokens for one in same_length),
                expected_hit_tokens=length // CHUNK_TOKENS * CHUNK_TOKENS,
                mib=median(one.cross_bytes for one in same_length) / MIB,
                gb_per_second=median(one.cross_bytes / max(one.cross_copy_seconds, 1e-9) for one in same_length) / 1e9,
                text_equal=all(one.text_equal for one in same_length),
            )
        )
    return found
