"""Structured logs: one JSON object a line, with the region and the claim that the work is about in every one."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

_about: ContextVar[dict[str, str]] = ContextVar("about", default={})  # noqa: B039 - never changed in place


@contextmanager
def about(**what: str | None) -> Iterator[None]:
    """Every line logged inside carries these fields, for example `region=`, `claim=`, `blade=`."""
    token = _about.set({**_about.get(), **{key: value for key, value in what.items() if value}})
    try:
        yield
    finally:
        _about.reset(token)


def note(**what: str | None) -> None:
    """Add fields for the rest of the surrounding `about` block."""
    _about.set({**_about.get(), **{key: value for key, value in what.items() if value}})


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message, what it is about, and the traceback if there is one."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_about.get(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """The same for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Level, message, and what it is about in brackets."""
        fields = " ".join(f"{key}={value}" for key, value in _about.get().items())
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname:7} {record.getMessage()}"
        line += f" [{fields}]" if fields else ""
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(level: str, form: str) -> None:
    """Send all logs to stderr in the chosen form; kopf's own chatter about single events is left out."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("kopf", "kubernetes", "aiohttp.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
