"""How a demo ends that is told to: in order, as with Ctrl-C."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind what is under way, and then the process exits with 128 + the
    signal's number, as shells have it. A signal that is ignored, as by nohup, stays so.
    """
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, _end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)
