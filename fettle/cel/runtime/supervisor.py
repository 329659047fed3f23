"""Runs the worker process: starts it, asks it, kills it, starts it again.

A worker that does not answer, answers nonsense or ends is killed. The next question starts
another, after a pause that grows while none gives an answer.
"""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from fettle.cel.runtime import protocol
from fettle.cel.runtime.protocol import ObjectRequest, Ready, Reply, Request
from fettle.logs import Logger
from fettle.model import WorkerError
from fettle.pacing import Backoff

_LOG = Logger(__name__)
T = TypeVar("T")
Question = Request | ObjectRequest

COMMAND = (sys.executable, "-m", "fettle.cel.runtime.worker")
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_READY_WITHIN_S = 30.0
_EXIT_WITHIN_S = 1.0  # after its stdin is closed
_OWN_EXIT_WITHIN_S = 0.1  # after trouble: it may be ending by itself


class WorkerDied(WorkerError):
    """The worker ended over a question; `slow` if that was because it took too long."""

    def __init__(self, message: str, *, slow: bool) -> None:
        super().__init__(message)
        self.slow = slow


class WorkerUnready(WorkerError):
    """The worker ended before it could be asked anything, so no question is to blame."""


class Worker:
    """At most one process at a time, which answers one question at a time, in order."""

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        *,
        wait_s: float = 5.0,
        name: str = "the selectors' worker",
    ) -> None:
        self._command = tuple(command)
        self._name = name
        self._wait_s = wait_s
        self._process: Process | None = None
        self._lock = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._backoff = Backoff(_PAUSE_S, _LONGEST_PAUSE_S, free=1)
        self.starts = 0
        """How many processes were started so far."""

    @property
    def failures(self) -> int:
        """How many workers in a row ended without any answer; ends by the deadline do not count."""
        return self._backoff.failures

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start a process unless one runs; raises WorkerError."""
        await self._to_its_end(self._start())

    async def ask(self, question: Question) -> Reply:
        """The worker's reply; raises WorkerDied, WorkerUnready, or another WorkerError if no worker
        can be started.

        The caller may stop waiting. The question is answered all the same: to kill the worker for
        it would cost all others theirs.
        """
        return await self._to_its_end(self._ask(question))

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this work to its end, even if nobody waits for it any more."""
        task = asyncio.ensure_future(work)
        # The event loop holds tasks weakly, and `close` must find them.
        self._under_way.add(task)
        task.add_done_callback(self._discard)
        return await asyncio.shield(task)

    def _discard(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved; whoever still waits gets it too

    async def _start(self) -> None:
        async with self._lock:
            await self._running()

    async def _ask(self, question: Question) -> Reply:
        async with self._lock:
            process = await self._running()
            reply = await self._exchange(process, question, self._wait_s)
            self._backoff.succeeded()
            return reply

    async def close(self) -> None:
        """Close the stdin of the process, then kill it. Open and later questions get no answer."""
        self._closed = True
        for task in list(self._under_way):
            task.cancel()
        async with self._lock:
            process = self._process
            if process is not None and process.stdin is not None:
                process.stdin.close()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EXIT_WITHIN_S):
                        await process.wait()
            await self._kill()

    async def _running(self) -> Process:
        if self._closed:
            raise WorkerError(f"{self._name} is closed")
        if self._process is not None and self._process.returncode is None:
            return self._process
        if pause_s := self._backoff.pause_s():
            await asyncio.sleep(pause_s)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, start_new_session=True
            )
        except OSError as error:
            self._backoff.failed()
            raise WorkerError(
                f"{self._name} cannot be started: {error}; check that "
                f"{self._command[0]} can be run and that processes are allowed"
            ) from error
        self.starts += 1
        await self._await_ready(self._process)
        return self._process

    async def _await_ready(self, process: Process) -> None:
        try:
            if not isinstance(await self._exchange(process, None, _READY_WITHIN_S), Ready):
                raise await self._end_and_explain()
        except WorkerDied as death:
            raise WorkerUnready(f"{death}, before it was ready") from death

    async def _exchange(self, process: Process, question: Question | None, wait_s: float) -> Reply:
        """Send a question, or nothing, and receive one reply; kill the process on any trouble."""
        try:
            async with asyncio.timeout(wait_s):
                return await _exchange(process, question)
        except (OSError, EOFError, ValueError) as error:  # a TimeoutError is an OSError
            raise await self._end_and_explain() from error
        except BaseException:
            await self._kill()  # its late reply would be taken for that to the next question
            raise

    async def _end_and_explain(self) -> WorkerDied:
        """Kill the process if it still runs; the error says how it ended."""
        status = await self._kill()
        # The worker lets the kernel send it this signal at its own deadline.
        slow = status == -signal.SIGPROF
        _LOG.warning(f"{self._name} ended, the next question starts another", status=status)
        if not slow:
            self._backoff.failed()
        return WorkerDied(f"{self._name} ended with status {status}", slow=slow)

    async def _kill(self) -> int | None:
        """Kill the process; its exit status. If this is cancelled, `close` can still kill it."""
        if (process := self._process) is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_OWN_EXIT_WITHIN_S):  # to learn its own status
                await process.wait()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._process = None
        return process.returncode


async def _exchange(process: Process, question: Question | None) -> Reply:
    assert process.stdin is not None
    assert process.stdout is not None
    if question is not None:
        process.stdin.write(protocol.frame(question))
        await process.stdin.drain()
    length = protocol.body_length(await process.stdout.readexactly(4))
    return protocol.decode_reply(await process.stdout.readexactly(length))
