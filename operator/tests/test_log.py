"""Log lines."""

from __future__ import annotations

import json
import logging

from hymcache.operator.log import JsonFormatter, TextFormatter, about, note


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "f", 1, message, None, None)


def test_every_line_names_the_region_and_the_claim_that_it_is_about() -> None:
    with about(region="r-1"):
        note(claim="ns/kv", blade=None)
        line = json.loads(JsonFormatter().format(record("composed")))
        text = TextFormatter().format(record("composed"))
    assert (line["region"], line["claim"], line["message"], line["level"]) == ("r-1", "ns/kv", "composed", "info")
    assert "blade" not in line
    assert text.endswith("composed [region=r-1 claim=ns/kv]")


def test_what_a_line_is_about_ends_with_the_block() -> None:
    with about(region="r-1"):
        pass
    assert "region" not in json.loads(JsonFormatter().format(record("later")))
