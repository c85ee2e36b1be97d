"""Structured logs, the same in every process: one JSON object a line on standard error.

Prompt text and secrets never reach a log: fields are what the code names, bodies are never among them, and anything
that looks like one of our secrets is cut out of every value on the way.
"""

import logging
import re
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

SECRET = re.compile(r"\b(sk|oper|enrol)_meridian_[A-Za-z0-9]+_[A-Za-z0-9]{8,}")


def configure(process: str, level: int = logging.INFO) -> None:
    """Sets logging up for this process, for our own code and for what libraries say with `logging`; called once, by its
    entry point."""

    def named(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    first: list[Processor] = [
        structlog.contextvars.merge_contextvars, named, structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True)]
    last: list[Processor] = [structlog.processors.format_exc_info, redact, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*first, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*first, structlog.stdlib.add_logger_name],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.captureWarnings(True)


def redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replaces whatever looks like a secret in a value."""
    return {key: SECRET.sub(r"\1_meridian_[redacted]", value) if isinstance(value, str) else value
            for key, value in event.items()}
