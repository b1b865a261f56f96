"""Three servers for tests: two on the domains of one region, one without a region; a model whose answers tell."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hymcache.region import Region

from engine.client import Client, Completion
from engine.models import Model, prepare
from engine.server import Server

REGION_BYTES = 192 << 20
ARGUMENTS = ("--skip-tokenizer-init", "--max-model-len", "4096")
VOCABULARY = range(10, 1000)
OUTPUT_TOKENS = 12


@dataclass
class Servers:
    """`first` and `other` share a region of two domains; `bare` has the documented flags and a region that is not
    there. All run the same model with random weights, so its answers are what the others must say too."""

    first: Server
    other: Server
    bare: Server
    region: Path

    def right_answer(self, text: list[int]) -> list[int]:
        """What a server without the tier answers, computed each time."""
        self.bare.client.reset_prefix_cache()
        return ask(self.bare, text).token_ids


def ask(server: Server, text: list[int], max_tokens: int = OUTPUT_TOKENS) -> Completion:
    return server.client.complete(text, max_tokens=max_tokens)


def hits(client: Client) -> float:
    """Prompt tokens that were loaded instead of computed, so far."""
    return client.metrics().get("vllm:external_prefix_cache_hits_total", 0)


def text_of(seed: int, tokens: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.choice(VOCABULARY) for _ in range(tokens)]


@contextlib.contextmanager
def trio() -> Iterator[Servers]:
    """The three, started at once; they and the region are gone afterwards."""
    model, folder = prepare(Model.RANDOM), Path(tempfile.mkdtemp(prefix="hymcache-engine-"))
    region = folder / "region"
    Region.format(region, size=REGION_BYTES, domains=2, chunk_bytes=1 << 20)
    environs = {
        "first": {"HYMCACHE_REGION": str(region), "HYMCACHE_DOMAIN": "0", "HYMCACHE_REQUIRED": "1"},
        "other": {"HYMCACHE_REGION": str(region), "HYMCACHE_DOMAIN": "1", "HYMCACHE_REQUIRED": "1"},
        "bare": {"HYMCACHE_REGION": str(folder / "nowhere")},
    }
    made = {
        name: Server(name, model, folder, environ=environ, arguments=ARGUMENTS, cache_bytes=96 << 20)
        for name, environ in environs.items()
    }
    try:
        for server in made.values():
            server.start()
        for server in made.values():
            server.wait_ready()
        yield Servers(**made, region=region)
    finally:
        for server in made.values():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
