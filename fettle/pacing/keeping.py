"""What a process keeps doing, whatever it raises. `keep` is the one way to do something again and
again: a failure is logged, counted and shown, and after a pause it goes on. So nothing that acts
can end what answers (decision 0077).

Each part of a process is in its `KeptParts` as soon as it is kept: nobody has to list it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from math import inf
from typing import Any, NamedTuple, NoReturn

from fettle.logs import Logger
from fettle.pacing.backoff import Backoff

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
GOES_ON_S = 10.0
"""After so long, a look counts as one that succeeded: some last as long as a connection."""
LOGGED_EVERY_S = 60.0
"""A part that fails now and then is logged so often at most."""
_LONGEST_PROBLEM = 200

_LOG = Logger(__name__)


class Pauses(NamedTuple):
    """After failures, in seconds."""

    first_s: float = FIRST_PAUSE_S
    longest_s: float = LONGEST_PAUSE_S
    goes_on_s: float = GOES_ON_S
    logged_every_s: float = LOGGED_EVERY_S


USUAL_PAUSES = Pauses()


class KeptPart:
    """Something that a process does again and again. `work` is what it does, `errors` how often
    that failed, and `problem` why it failed last; "" if it has succeeded since."""

    def __init__(self, name: str, work: Callable[..., Any], pauses: Pauses) -> None:
        self.name = name
        self.pauses = pauses
        self.work = work
        self.errors = 0
        self.problem = ""
        self._logged_at = -inf

    def attempt(self, *args: Any, **named: Any) -> None:
        """Do it once, now. A failure is noted; who calls goes on."""
        with self:
            self.work(*args, **named)

    def attempt_steps(self, *args: Any) -> Iterator[None]:
        """As `attempt`, step by step."""
        with self:
            yield from self.work(*args)

    async def attempt_async(self, *args: Any) -> Any:
        """As `attempt`; what it returns, or None."""
        with self:
            return await self.work(*args)

    def __enter__(self) -> None:
        """What is done within is an attempt."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, Exception):
            self.failed(error)
            return True
        if error is None:
            self.succeeded()
        return False

    def failed(self, error: Exception, **about: str) -> None:
        """Log it with its traceback, once while it lasts; `about` what it failed on."""
        self.errors += 1
        now = time.monotonic()
        if not self.problem and now >= self._logged_at + self.pauses.logged_every_s:
            self._logged_at = now
            _LOG.error(
                "a part failed, and will be tried again", part=self.name, **about, exc_info=error
            )
        self.problem = " ".join(filter(None, (*about.values(), repr(error))))[:_LONGEST_PROBLEM]

    def succeeded(self) -> None:
        self.problem = ""


class KeptParts:
    """The parts of one process, those that have ended too: what they have counted stays."""

    def __init__(self, pauses: Pauses = USUAL_PAUSES) -> None:
        self._pauses = pauses
        self._by_name: dict[str, KeptPart] = {}

    def __iter__(self) -> Iterator[KeptPart]:
        return iter([*self._by_name.values()])

    def enter(self) -> None:
        """Be the parts of the process that is made and started from here on, in this context."""
        _PARTS.set(self)

    def part(self, name: str, work: Callable[..., Any]) -> KeptPart:
        """A part of that name, which goes on counting where the one before ended."""
        part = KeptPart(name, work, self._pauses)
        if (before := self._by_name.get(name)) is not None:
            part.errors = before.errors
        self._by_name[name] = part
        return part

    def notes(self) -> list[str]:
        """For `/readyz?verbose`: the parts that fail now."""
        return [f"failing: {part.name}: {part.problem}" for part in self if part.problem]


_PARTS: ContextVar[KeptParts | None] = ContextVar("parts", default=None)


def part(name: str, work: Callable[..., Any]) -> KeptPart:
    """A part of this process that is attempted whenever something else happens."""
    return (_PARTS.get() or KeptParts()).part(name, work)


async def keep(
    name: str,
    look: Callable[[], Awaitable[object]],
    *,
    when: Callable[[], Awaitable[object]] | None = None,
    every_s: float = 0.0,
    rest: float = 0.0,
) -> NoReturn:
    """Look again and again, until cancelled: whenever `when` has returned, at most every `every_s`
    seconds, and with pauses of `rest` times as long as a look took.

    If any of this fails, it looks again after a pause, without `when`: what it was woken for is not
    done yet. Pauses grow until a look succeeds.
    """
    loop, task, this = asyncio.get_running_loop(), asyncio.current_task(), part(name, look)
    backoff = Backoff(this.pauses.first_s, this.pauses.longest_s)

    def goes_on() -> None:
        this.succeeded()
        backoff.succeeded()

    if task is not None:
        task.set_name(name)
    try:
        while True:
            try:
                if when is not None and not backoff.failures:
                    await when()
                began = loop.time()
                lasting = loop.call_later(this.pauses.goes_on_s, goes_on)
                try:
                    await this.work()
                finally:
                    lasting.cancel()
                goes_on()
                await asyncio.sleep(max(every_s, rest * (loop.time() - began)))
            except Exception as error:
                this.failed(error)
                await asyncio.sleep(backoff.next_s())
    finally:
        this.succeeded()  # who does not do it any more does not fail at it
