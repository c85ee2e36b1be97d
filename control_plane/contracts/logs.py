"""Structured logs, the same in every process: one JSON object a line on standard error.

Prompt text and secrets never reach a log: fields are what the code names, bodies are never among them, and anything
that looks like one of our secrets is cut out of every value on the way.
"""

import logging
import re
import sys

import structlog
from structlog.typing import EventDict, WrappedLogger

SECRET = re.compile(r"\b(sk|oper|enrol)_meridian_[A-Za-z0-9]+_[A-Za-z0-9]{8,}")


def configure(process: str, level: int = logging.INFO) -> None:
    """Sets logging up for this process; called once, by its entry point."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")


def redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replaces whatever looks like a secret in a value."""
    return {key: SECRET.sub(r"\1_meridian_[redacted]", value) if isinstance(value, str) else value
            for key, value in event.items()}
