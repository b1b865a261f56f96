"""Prompts: sentences of this repository's own documentation, shuffled by a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SENTENCE = re.compile(r"(?<=[.:?!])\s+")
FENCE = re.compile(r"```.*?```", re.DOTALL)


def sentences() -> list[str]:
    """Every sentence of README and docs, in a stable order."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found: list[str] = []
    for page in pages:
        text = FENCE.sub(" ", page.read_text()) if page.exists() else ""
        found += [" ".join(part.split()) for part in SENTENCE.split(text) if len(part.split()) > 3]
    return found


def prompt(seed: str, tokens: int, tokenize: Callable[[str], list[int]]) -> list[int]:
    """Exactly `tokens` token ids of a text that no other seed begins with."""
    rng = random.Random(seed)
    pool = sentences()
    ids: list[int] = []
    while len(ids) < tokens:
        rng.shuffle(pool)
        ids += tokenize((f"Notes {seed}. " if not ids else " ") + " ".join(pool))
    return ids[:tokens]
