"""The tasks of one process: the failure of any of them is noticed, however late it started."""

import asyncio
from collections.abc import Awaitable
from typing import NoReturn

from fettle.model import FettleError


class Tasks:
    """To be made on the loop that runs them."""

    def __init__(self) -> None:
        self._openings: list[asyncio.Task[None]] = []
        self._kept: list[asyncio.Task[None]] = []
        self._early: list[asyncio.Task[None]] = []
        self._failure: asyncio.Future[FettleError] = asyncio.get_running_loop().create_future()

    def open(self, name: str, opening: Awaitable[None]) -> None:
        """Run a task that may finish, and that may start further ones before it does."""
        task = _begun(name, opening)
        self._openings.append(task)
        task.add_done_callback(lambda task: self._note(_failure(task)))

    def keep(self, name: str, work: Awaitable[None], *, early: bool = False) -> None:
        """Run a task that never finishes by itself. `early`: no answer needs it, so it need not be
        kept until the last one is given.
        """
        task = _begun(name, work)
        (self._early if early else self._kept).append(task)
        task.add_done_callback(lambda task: self._note(_failure(task) or _end(task)))

    async def watch(self) -> NoReturn:
        """Wait until a task fails, or finishes though it should not; raises FettleError with the
        cause.
        """
        raise await asyncio.shield(self._failure)

    async def end_openings(self) -> None:
        """After this, no task starts another one."""
        await _cancelled(self._openings)

    async def end_early(self) -> None:
        """Cancel what no answer needs, and wait until it has tidied up."""
        await _cancelled(self._early)

    async def end(self) -> None:
        """The same with all."""
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
