"""No test waits for ever: one that hangs fails, with the stacks of all its tasks.

pytest-timeout says when. What not even that ends, such as a task that swallows every exception or
a loop of uvloop, which sees no signals, ends with its process. pytest-xdist goes on with another.
"""

import asyncio
import faulthandler
import io
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_timeout  # type: ignore[import-untyped]
from _pytest.faulthandler import fault_handler_stderr_fd_key

LAST_RESORT = 2
"""After so many times its time a test ends with its process."""


_SECONDS = pytest.StashKey[float]()


def _end_later(item: pytest.Item, seconds: float) -> None:
    stderr = item.config.stash[fault_handler_stderr_fd_key]  # beside what pytest captures
    faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """As pytest-timeout does it, but for what the failure says."""
    item.stash[_SECONDS] = settings.timeout
    _end_later(item, settings.timeout * LAST_RESORT)
    if settings.method != "signal" or threading.current_thread() is not threading.main_thread():
        return None

    def hang(*_: object) -> None:
        __tracebackhide__ = True
        if not pytest_timeout.is_debugging():
            pytest.fail(
                f"{item.nodeid} hangs: it is not done after {settings.timeout:g} s\n{stacks()}"
            )

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]
    signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: Any) -> None:
    """Fixtures of a test that failed have as long again: pytest has ended the last resort here."""
    if isinstance(node, pytest.Item) and _SECONDS in node.stash:
        _end_later(node, node.stash[_SECONDS])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """The last resort holds until the test's fixtures are gone, too."""
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def stacks() -> str:
    """Where each task of the loop that runs is."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return "no event loop runs"
    text = io.StringIO()
    for task in sorted(tasks, key=lambda task: task.get_name()):
        print(f"{task.get_name()}, {task.get_coro()}", file=text)
        task.print_stack(file=text)
    return text.getvalue()
