"""JSON log lines on standard error. Every line about a claim carries `claim`, and `region` once it is known."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict, WrappedLogger


def configure(level: str, **fixed: str) -> None:
    """Set logging up for this process; `fixed` fields (node, version) go into every line of every thread."""

    def add_fixed(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        return {**fixed, **event}

    structlog.configure(
        processors=[
            add_fixed,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
