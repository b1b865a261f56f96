"""The oracle itself: a connector that is wrong in a known way must be caught, or the other tests prove nothing.

A mistake that is made alike in both directions cancels out in a round trip; the load that begins inside a chunk is
what tells. So each mutant is run against both, and at least one must see wrong bytes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness import BLOCK_TOKENS, WrongBytes, expected, prompt
from hymcache.vllm import worker as worker_module
from hymcache.vllm.attachment import Attachment


def offset_zero(monkeypatch):
    """Every layer of a block is copied to and from the place of the first one."""
    register = Attachment.pages
    monkeypatch.setattr(Attachment, "pages", lambda self, tensors: register(self, [tensors[0]] * len(tensors)))


def skip_zero(monkeypatch):
    """A load that begins inside a chunk takes the chunk's first units."""
    plan = worker_module.plan
    monkeypatch.setattr(worker_module, "plan", lambda *a: [replace(copy, first=0) for copy in plan(*a)])


def reversed_order(monkeypatch):
    """The blocks of an object are listed backwards, in both directions."""
    plan = worker_module.plan

    def backwards(*arguments):
        return [replace(copy, blocks=copy.blocks[::-1]) for copy in plan(*arguments)]

    monkeypatch.setattr(worker_module, "plan", backwards)


def round_trip(region, engine):
    path, text = region(name="round"), prompt(1, 700)
    engine(path).run("cold", text)
    assert engine(path, domain=1).run("warm", text).tokens == expected(text)


def inside_a_chunk(region, engine):
    path, text = region(name="inside"), prompt(2, 900)
    engine(path).run("cold", text)
    other = engine(path, domain=1)
    other.run("short", text[: 2 * BLOCK_TOKENS + 1], max_tokens=1)
    assert other.run("long", text).tokens == expected(text)


@pytest.mark.parametrize("case", [round_trip, inside_a_chunk])
def test_the_shipped_code_passes_both_cases(region, engine, case):
    case(region, engine)


@pytest.mark.parametrize("mutant", [offset_zero, skip_zero, reversed_order])
def test_a_known_mistake_is_caught(monkeypatch, region, engine, mutant):
    mutant(monkeypatch)
    caught = 0
    for case in (round_trip, inside_a_chunk):
        try:
            case(region, engine)
        except WrongBytes:
            caught += 1
    assert caught, f"{mutant.__name__} goes unseen"
