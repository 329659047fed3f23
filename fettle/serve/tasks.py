"""The tasks of the process: if any of them fails, the process ends."""

import asyncio
from collections.abc import Awaitable
from typing import NoReturn

from fettle.model import FettleError


class Tasks:
    """Make it on the event loop that runs the tasks."""

    def __init__(self) -> None:
        self._openings: list[asyncio.Task[None]] = []
        self._kept: list[asyncio.Task[None]] = []
        self._early: list[asyncio.Task[None]] = []
        self._failure: asyncio.Future[FettleError] = asyncio.get_running_loop().create_future()

    def open(self, name: str, opening: Awaitable[None]) -> None:
        """Run a task that may finish, and that may start other tasks before it does."""
        task = _begun(name, opening)
        self._openings.append(task)
        task.add_done_callback(lambda task: self._note(_failure(task)))

    def keep(self, name: str, work: Awaitable[None], *, early: bool = False) -> None:
        """Run a task that never finishes by itself.

        `early`: no answer needs it, so it is cancelled while the last answers are given.
        """
        task = _begun(name, work)
        (self._early if early else self._kept).append(task)
        task.add_done_callback(lambda task: self._note(_failure(task) or _end(task)))

    async def watch(self) -> NoReturn:
        """Raise FettleError as soon as a task fails, or ends though it should not."""
        raise await asyncio.shield(self._failure)

    async def end_openings(self) -> None:
        """Cancel the tasks that may start others."""
        await _cancelled(self._openings)

    async def end_early(self) -> None:
        """Cancel the tasks that no answer needs, and wait until they have cleaned up."""
        await _cancelled(self._early)

    async def end(self) -> None:
        """Cancel all tasks, and wait until they have cleaned up."""
        await _cancelled([*self._openings, *self._early, *self._kept])

    def _note(self, failure: FettleError | None) -> None:
        if failure is not None and not self._failure.done():
            self._failure.set_result(failure)


def _begun(name: str, work: Awaitable[None]) -> asyncio.Task[None]:
    task = asyncio.ensure_future(work)
    task.set_name(name)
    return task


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _failure(task: asyncio.Task[None]) -> FettleError | None:
    error = None if task.cancelled() else task.exception()
    if error is None or isinstance(error, FettleError):
        return error
    failure = FettleError(f"the {task.get_name()} failed: {error!r}")
    failure.__cause__ = error
    return failure


def _end(task: asyncio.Task[None]) -> FettleError:
    return FettleError(f"the {task.get_name()} stopped unexpectedly")
