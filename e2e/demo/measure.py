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
STORE_SECONDS = 30.0
WARM_TOKENS = 700
WAKE_TOKENS = 200  # less than a chunk: neither stored nor found

HITS = "vllm:external_prefix_cache_hits_total"
LOADED_BYTES = 'hymcache:copy_bytes_total{direction="load"}'
LOAD_SECONDS = 'hymcache:copy_seconds_total{direction="load"}'
STORED = 'hymcache:stores_total{outcome="stored"}'


@dataclass(frozen=True)
class Round:
    """One text through all three requests. Seconds are times to the first token; bytes and copy time are the other
    host's."""

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
    """Each timed request follows a short one of another text on its server: after a pause a server's first request pays
    for cores, caches and pages that others have used in the meantime, and only one of the two has had that pause."""
    first.complete(wake, max_tokens=2)
    cold = _cold(first, text, output_tokens)
    first.reset_prefix_cache()
    first.complete(wake, max_tokens=2)
    before = first.metrics()
    same = first.complete(text, max_tokens=output_tokens)
    same_hits = first.metrics().get(HITS, 0) - before.get(HITS, 0)
    other.complete(wake, max_tokens=2)
    before = other.metrics()
    cross = other.complete(text, max_tokens=output_tokens)
    after = other.metrics()
    return Round(
        tokens=len(text),
        cold_seconds=cold.first_token_seconds,
        same_seconds=same.first_token_seconds,
        cross_seconds=cross.first_token_seconds,
        same_hit_tokens=int(same_hits),
        cross_hit_tokens=int(after.get(HITS, 0) - before.get(HITS, 0)),
        cross_bytes=int(after.get(LOADED_BYTES, 0) - before.get(LOADED_BYTES, 0)),
        cross_copy_seconds=after.get(LOAD_SECONDS, 0) - before.get(LOAD_SECONDS, 0),
        text_equal=len({(c.text, tuple(c.token_ids)) for c in (cold, same, cross)}) == 1,
    )


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
