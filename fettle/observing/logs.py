"""Logs: one line of JSON per event on standard error; readable text if that is a terminal."""

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog


class _Unfailing:
    """A stream that loses what cannot be written: a full disk, or a reader that has ended, must
    end nothing that only wanted to say something."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def configure(level: str = "info") -> None:
    """Set up structlog for the whole process."""
    terminal = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Unfailing(sys.stderr))),
        cache_logger_on_first_use=True,
    )
