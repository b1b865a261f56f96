"""Log lines."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging

from hymcache.operator.clients.kinds import REGION
from hymcache.operator.log import JsonFormatter, TextFormatter, about, note
from hymcache.operator.operator import Operator
from hymcache.operator.settings import Settings
from hymcache.operator.workqueue import Key, WorkQueue


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


def test_a_failure_is_logged_with_the_region_and_its_claim() -> None:
    """The queue logs it, after the work that knew them has ended."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logged = asyncio.Event()
    handler.addFilter(lambda _: not logged.set())  # who waits runs after the line is written
    queue_log = logging.getLogger("hymcache.operator.workqueue")
    queue_log.addHandler(handler)
    operator = Operator(Settings())
    spec = {"blade": "b1", "claimRef": {"namespace": "ns", "name": "kv"}}
    operator.store.observe(REGION, {"metadata": {"name": "r-1", "resourceVersion": "1"}, "spec": spec})

    async def fail(key: Key) -> float | None:
        operator._note(key)
        raise LookupError("broken")

    async def run() -> None:
        queue.wake(Key("region", "r-1"))
        task = asyncio.create_task(queue.run())
        await asyncio.wait_for(logged.wait(), 60)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    queue = WorkQueue(fail, workers=1, retry_seconds=60, retry_max_seconds=60)
    try:
        asyncio.run(run())
    finally:
        queue_log.removeHandler(handler)
    line = json.loads(stream.getvalue().splitlines()[0])
    assert (line["region"], line["claim"]) == ("r-1", "ns/kv")
    assert "broken" in line["message"]
