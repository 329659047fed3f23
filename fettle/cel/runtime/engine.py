"""Outcomes of selectors for the serving process: evaluated beforehand, answered from memory.

Stands between inventory and verdict. `evaluate` runs when slices, classes or claims change, and
fills the memory through the worker process. `outcome` runs while a request is answered, and never
waits. Cheap and new expressions go before those that proved costly, so nobody waits longer than
for one row of somebody else's expression. The worker alone loads CEL's language.
"""

import asyncio
import heapq
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import count, islice, takewhile
from math import inf

import structlog

from fettle.api.resource import Device
from fettle.cel.runtime import rows
from fettle.cel.runtime.memory import GIVEN_UP, LONG, PARSING, ExpressionEntry, Level, Memory, Order
from fettle.cel.runtime.outcomes import Outcome, OutcomeKind, undecided
from fettle.cel.runtime.protocol import (
    EvaluateReply,
    EvaluateRequest,
    Inspect,
    Inspected,
    Parse,
    Parsed,
)
from fettle.cel.runtime.rows import Equation, Reads, RowFingerprint, Variable
from fettle.cel.runtime.supervisor import COMMAND, Worker, WorkerDied, WorkerUnready
from fettle.model import WorkerError


class WorkerQueue:
    """A lock that is handed to the least order; among equals, to who waits the longest."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: list[tuple[Order, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    @asynccontextmanager
    async def turn(self, order: Order) -> AsyncIterator[None]:
        await self._wait(order)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, order: Order) -> None:
        if not self._taken:
            self._taken = True
            return
        mine = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (order, next(self._arrivals), mine))
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # it was handed over just then
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            *_, next_one = heapq.heappop(self._waiting)
            if not next_one.done():
                next_one.set_result(None)
                return
        self._taken = False


_BATCH = 64
_LOOP = re.compile(r"\.\s*(?:all|exists\w*|map|filter|transform\w+)\s*\(")
_PATTERN = re.compile(
    r"\b(?:matches|find|findAll)\s*\((?!\s*[rR]?(?P<quote>[\"'])[^\"'{]{0,64}(?P=quote)\s*[,)])"
)
"""A pattern that may be costly to compile: it is long, repeats by number, or is made on the way."""
_CALLS = 24
"""So many calls may cost what a loop does: they may be about texts that others made long."""


class Work:
    """One expression on the devices of one call; `keys` is None until it is known what it reads."""

    def __init__(self, expression: str, entry: ExpressionEntry | None) -> None:
        self.expression = expression
        self.entry = entry
        self.keys: deque[RowFingerprint] | None = None
        self.spent_s = 0.0
        self._heavy = sum(len(each.findall(expression)) for each in (_LOOP, _PATTERN))
        self._heavy += expression.count("(") // _CALLS

    def order(self) -> Order:
        """Where nothing was measured, by what can be seen: with neither loops, nor patterns but
        short ones, nor many calls, it cannot cost much."""
        entry, deaths = self.entry, 0
        if entry is not None and entry.deaths:
            deaths = entry.deaths.get(self.keys[0] if self.keys else PARSING, 0)
        if entry is not None and (entry.measured or deaths > 1):
            return entry.order(self.spent_s, deaths)
        return (Level.NEW if len(self.expression) <= LONG else Level.LARGE, self._heavy)

    def batch(self) -> list[RowFingerprint]:
        """The next keys of which nothing is known, even by another call's work.

        Rows over which the worker ended, maybe for another one's sake, are asked for one by one.
        """
        assert self.entry is not None
        assert self.keys is not None
        while self.keys and self.keys[0] in self.entry.rows:
            self.keys.popleft()
        if not self.keys or self.entry.default is not None:
            return []
        deaths = self.entry.deaths
        if self.keys[0] in deaths:
            return [self.keys[0]]
        return list(takewhile(lambda key: key not in deaths, islice(self.keys, _BATCH)))


MAX_EXPRESSION = 10 * 1024
_TOO_LONG = undecided("it is longer than 10 KiB")

_INSPECTED = 16
_PATIENCE = 6  # workers in a row without an answer, after which evaluation waits for the next call
_SLICE = 48  # devices between two yields to the loop: about 0.2 ms
LINGERING = 16  # calls with only costly work left, each of which holds its list of devices

_log = structlog.get_logger(__name__)

Devices = Sequence[tuple[str, Device]]


class SelectorEngine:
    """Remembers up to `expressions` expressions and about `rows` outcomes, the latest used."""

    def __init__(
        self,
        *,
        expressions: int = 1000,
        rows: int = 400_000,
        command: Sequence[str] = COMMAND,
        wait_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = Worker(command, wait_s=wait_s)
        self._turns = WorkerQueue()
        self._variable: Variable = "device"
        self._bounds = (expressions, rows)
        self._clock = clock
        self._memory = Memory(expressions, rows, clock)
        self._lingering = 0

    def of_nodes(self) -> "SelectorEngine":
        """An engine for expressions about `node`, which shares the worker: devices are then nodes
        in the form of `rows.of_node`, and their driver is ""."""
        expressions, rows = self._bounds
        other = SelectorEngine(expressions=expressions, rows=rows, clock=self._clock)
        other._worker, other._turns, other._variable = self._worker, self._turns, "node"
        return other

    @property
    def worker_pid(self) -> int | None:
        return self._worker.pid

    @property
    def worker_starts(self) -> int:
        """How many worker processes were started so far."""
        return self._worker.starts

    async def start(self) -> None:
        """Start the worker; raises WorkerError where it cannot be."""
        await self._worker.start()

    async def close(self) -> None:
        await self._worker.close()

    def outcome(self, expression: str, driver: str, device: Device) -> Outcome | None:
        """The outcome, from memory; None where it is not evaluated yet."""
        entry = self._memory.find(expression)
        if entry is None:
            return _TOO_LONG if len(expression) > MAX_EXPRESSION else None
        outcome = entry.default
        if entry.parsed:
            problem = rows.problem(driver, device)
            if problem:
                return undecided(problem)
            outcome = entry.rows.get(rows.row_fingerprint(entry.reads, driver, device), outcome)
        if entry.given_up_until and outcome in GIVEN_UP and entry.lacks(self._clock()):
            return None
        return outcome

    def now(self) -> float:
        """Seconds on the clock of `given_up_until`."""
        return self._clock()

    def given_up_until(self, expressions: Iterable[str], since: float) -> float:
        """When the first of these that was given up is tried again, if that is after `since`;
        infinity where there is none."""
        entries = filter(None, map(self._memory.look, expressions))
        return min((e.given_up_until for e in entries if e.given_up_until > since), default=inf)

    def reads(self, expression: str) -> Reads:
        """What an expression looks at, from memory; None: the whole device, or not known yet."""
        entry = self._memory.look(expression)
        return entry.reads if entry is not None and entry.parsed else None

    def equations(self, expression: str) -> tuple[Equation, ...]:
        """Which attributes an expression compares with what, from memory, as far as is known."""
        entry = self._memory.look(expression)
        return entry.equations if entry is not None else ()

    def driver(self, expression: str) -> str | None:
        """The driver whose devices alone an expression can match ("": any), from memory; None: not
        known yet."""
        entry = self._memory.look(expression)
        if entry is None or not (entry.parsed or entry.default):
            return None
        return entry.driver

    def refusal(self, expression: str) -> str | None:
        """Why it does not compile, "" if it does, from memory; None: not known yet."""
        entry = self._memory.look(expression)
        if entry is None or not (entry.parsed or entry.default):
            return None
        refused = entry.default is not None and entry.default.kind is OutcomeKind.WOULD_ABORT
        return entry.default.reason if refused and entry.default is not None else ""

    def use(self, expressions: Iterable[str]) -> None:
        """Somebody asks for these: what is used again is forgotten after what was used once."""
        self._memory.use(expressions)

    def stand(self, expressions: Collection[str]) -> None:
        """Never forget these, as far as they are known, until others stand in their place."""
        self._memory.stand(expressions)

    async def nearest(
        self, expressions: Iterable[str], devices: Sequence[tuple[str, Device]]
    ) -> str:
        """What the nearest of a few devices lacks ("memory 80Gi < 96Gi") for expressions that are
        all to be true; "" if it cannot tell. Those that have proved costly, or ended the worker,
        are left out."""
        asked = tuple(expression for expression in expressions if self._is_sound(expression))
        if not asked:
            return ""
        try:
            async with self._turns.turn((Level.COSTLY, 0.0)):
                inspected = await self._worker.ask(Inspect(asked, tuple(devices[:_INSPECTED])))
        except WorkerError:
            return ""
        assert isinstance(inspected, Inspected)
        return inspected.nearest

    def _is_sound(self, expression: str) -> bool:
        entry = self._memory.look(expression)
        return len(expression) <= MAX_EXPRESSION and (entry is None or not entry.suspect)

    async def evaluate(
        self,
        expressions: Iterable[str],
        devices: Iterable[tuple[str, Device]],
        quick: asyncio.Event | None = None,
    ) -> bool:
        """Fill the memory for these expressions on these devices; never raises for them. True if
        all is evaluated that can be; else another call, later, may find more.

        `quick` is set where only what has proved costly is left, which may take long: it is done
        when nobody else has any work. Where many calls have come to that, or the worker cannot be
        kept alive, this gives up: what is missing stays None, and the next call tries again.
        """
        quick = quick or asyncio.Event()
        patience = max(_PATIENCE, self._worker.failures + 2)
        texts = [text for text in dict.fromkeys(expressions) if len(text) <= MAX_EXPRESSION]
        works = [Work(text, self._memory.look(text)) for text in texts]
        left = [(work.order(), at, work) for at, work in enumerate(works)]
        heapq.heapify(left)
        try:
            listed = await _listed(devices)
            await self._work(left, listed, Level.LARGE, patience)
            if left:
                quick.set()
                await self._linger(left, listed, patience)
        except WorkerError as error:
            _log.warning("selectors are not evaluated for now", reason=str(error))
            return False
        return not left and not any(work.entry and work.entry.gave_up for work in works)

    async def _linger(
        self, left: list[tuple[Order, int, Work]], devices: Devices, patience: int
    ) -> None:
        if self._lingering >= LINGERING:
            return
        self._lingering += 1
        try:
            await self._work(left, devices, Level.COSTLY, patience)
        finally:
            self._lingering -= 1

    async def _work(
        self, left: list[tuple[Order, int, Work]], devices: Devices, most: Level, patience: int
    ) -> None:
        """Do what is left, the least order first, until there is only what is beyond a level."""
        while left and left[0][0][0] <= most:
            _, at, work = heapq.heappop(left)
            try:
                more = await self._step(work, devices)
            except WorkerUnready:
                more = True
            if more:
                heapq.heappush(left, (work.order(), at, work))
            if self._worker.failures >= patience:
                raise WorkerError("the selectors' worker keeps ending without an answer")

    async def _step(self, work: Work, devices: Devices) -> bool:
        """Ask the worker about it once, and say whether there is more to ask."""
        if work.keys is None:
            work.entry = self._memory.add(work.expression)
            work.entry.forgive(self._clock())
        entry = work.entry
        if entry is None or self._memory.find(work.expression) is not entry:
            return False  # it is forgotten meanwhile
        if entry.default is not None:
            return False
        if not entry.parsed:
            await self._parse(work, entry)
            return True
        if work.keys is None:
            work.keys = await _unknown(entry, devices)
            self._memory.make_room(entry, len(work.keys))
        if work.batch():
            await self._judge(work, entry)
        return bool(work.keys) and entry.default is None

    async def _parse(self, work: Work, entry: ExpressionEntry) -> None:
        async with self._turns.turn(work.order()):
            if entry.parsed or entry.default is not None:  # by another call's work
                return
            try:
                parsed = await self._worker.ask(Parse(work.expression, self._variable))
            except WorkerDied as death:
                entry.died([PARSING], self._clock(), slow=death.slow)
                return
            assert isinstance(parsed, Parsed)
            entry.reads, entry.driver = parsed.reads, parsed.driver
            entry.equations = parsed.equations
            entry.default, entry.parsed = parsed.outcome, True
            entry.deaths.clear()

    async def _judge(self, work: Work, entry: ExpressionEntry) -> None:
        async with self._turns.turn(work.order()):
            batch = work.batch()
            if not batch:
                return
            assert work.keys is not None
            asked = tuple(rows.row(entry.reads, key) for key in batch)
            try:
                judged = await self._worker.ask(
                    EvaluateRequest(work.expression, asked, self._variable)
                )
            except WorkerDied as death:
                entry.died(batch, self._clock(), slow=death.slow)
                return
            assert isinstance(judged, EvaluateReply)
            entry.learn(batch, judged, self._clock())
            work.spent_s += judged.spent_s
            for _ in judged.outcomes:
                work.keys.popleft()


async def _listed(devices: Iterable[tuple[str, Device]]) -> Devices:
    found: list[tuple[str, Device]] = []
    for at, device in enumerate(devices):
        if at % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        found.append(device)
    return found


async def _unknown(entry: ExpressionEntry, devices: Devices) -> deque[RowFingerprint]:
    """The distinct keys of devices that nothing is known of yet, found in short slices; of devices
    that no expression can be decided on, none."""
    keys: dict[RowFingerprint, None] = {}
    for at, (driver, device) in enumerate(devices):
        if at % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        key = rows.row_fingerprint(entry.reads, driver, device)
        if key not in keys and key not in entry.rows and not rows.problem(driver, device):
            keys[key] = None
    return deque(keys)
