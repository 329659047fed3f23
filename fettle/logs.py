"""Logs: one line of JSON per event on standard error; readable text if that is a terminal.

structlog brings a fifth of a second of imports with it. Commands that log nothing do not load it.
"""

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO, cast

_LIBRARY = "structlog"


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


class Logger:
    """structlog's logger of this name, which the first line loads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._logger: Any = None

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if self._logger is None:
            _configure_as_asked()
            import structlog

            self._logger = structlog.get_logger(self._name)
        found: Callable[..., Any] = getattr(self._logger, method)
        return found


_asked: list[str] = []


def configure(level: str = "info") -> None:
    """Set up the logs of the whole process: at once if structlog is loaded, else once it is."""
    _asked[:] = [level]
    if _LIBRARY in sys.modules:
        _configure_as_asked()


def _configure_as_asked() -> None:
    if not _asked:
        return
    import structlog

    level = _asked.pop()
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
    )
