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
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count, islice, takewhile
from math import inf

from fettle.api.resource import Device
from fettle.cel.runtime import rows
from fettle.cel.runtime.memory import (
    GIVEN_UP,
    LONG,
    PARSING,
    ExpressionEntry,
    Level,
    Memory,
    Priority,
)
from fettle.cel.runtime.protocol import (
    EvaluateReply,
    EvaluateRequest,
    Inspect,
    Inspected,
    Outcome,
    OutcomeKind,
    Parse,
    Parsed,
    undecided,
)
from fettle.cel.runtime.rows import AttributeRead, Equation, Reads, RowFingerprint, Variable
from fettle.cel.runtime.supervisor import COMMAND, Worker, WorkerDied, WorkerUnready
from fettle.logs import Logger
from fettle.model import Policy, Requirement, WorkerError
from fettle.pacing import pause, run_within

# The order in which questions reach the worker


class WorkerQueue:
    """A lock that goes to the waiter with the least priority; among equals, to the first."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    @asynccontextmanager
    async def turn(self, priority: Priority) -> AsyncIterator[None]:
        await self._wait(priority)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, priority: Priority) -> None:
        if not self._taken:
            self._taken = True
            return
        mine = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._arrivals), mine))
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # the lock came just before the cancellation
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
"""A pattern that may be costly to compile: long, with counted repeats, or made while it runs."""
_CALLS = 24
"""So many calls count as one loop: some may make long texts, and others go through them."""


class Work:
    """What one call still has to ask about one expression.

    `fingerprints` are the rows that are left; None until it is known what the expression reads.
    """

    def __init__(self, expression: str, entry: ExpressionEntry | None) -> None:
        self.expression = expression
        self.entry = entry
        self.fingerprints: deque[RowFingerprint] | None = None
        self.spent_s = 0.0
        self._heavy = sum(len(each.findall(expression)) for each in (_LOOP, _PATTERN))
        self._heavy += expression.count("(") // _CALLS

    def priority(self) -> Priority:
        """By what was measured; for a new expression, by its text: one without loops, long patterns
        and many calls cannot cost much."""
        entry, deaths = self.entry, 0
        if entry is not None and entry.deaths:
            deaths = entry.deaths.get(self.fingerprints[0] if self.fingerprints else PARSING, 0)
        if entry is not None and (entry.measured or deaths > 1):
            return entry.priority(self.spent_s, deaths)
        return (Level.NEW if len(self.expression) <= LONG else Level.LARGE, self._heavy)

    def batch(self) -> list[RowFingerprint]:
        """The next rows to ask about: those that no other call has learnt of meanwhile.

        Rows over which the worker ended are asked for one by one, since only one may be to blame.
        """
        assert self.entry is not None
        assert self.fingerprints is not None
        while self.fingerprints and self.fingerprints[0] in self.entry.rows:
            self.fingerprints.popleft()
        if not self.fingerprints or self.entry.default is not None:
            return []
        deaths = self.entry.deaths
        if self.fingerprints[0] in deaths:
            return [self.fingerprints[0]]
        return list(takewhile(lambda row: row not in deaths, islice(self.fingerprints, _BATCH)))


MAX_EXPRESSION = 10 * 1024
"""`CELSelectorExpressionMaxLength` of resource.k8s.io: the API server stores no longer one."""
_TOO_LONG = undecided("it is longer than 10 KiB")

_MOST_INSPECTED = 16
_PATIENCE = 6  # workers in a row without an answer, after which evaluation waits for the next call
LINGERING = 16  # calls with only costly work left, each of which holds its list of devices

_log = Logger(__name__)

Devices = Sequence[tuple[str, Device]]


class SelectorEngine:
    """Remembers the latest used outcomes, of up to `expressions` expressions and `rows` rows."""

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
        self._queue = WorkerQueue()
        self._variable: Variable = "device"
        self._bounds = (expressions, rows)
        self._clock = clock
        self._memory = Memory(expressions, rows, clock)
        self._lingering = 0

    def of_nodes(self) -> "SelectorEngine":
        """An engine for expressions about `node` that shares the worker.

        Its devices are nodes, made by `rows.device_of_node`, with the driver "".
        """
        expressions, rows = self._bounds
        other = SelectorEngine(expressions=expressions, rows=rows, clock=self._clock)
        other._worker, other._queue, other._variable = self._worker, self._queue, "node"
        return other

    @property
    def worker_pid(self) -> int | None:
        return self._worker.pid

    @property
    def worker_starts(self) -> int:
        """How many worker processes were started so far."""
        return self._worker.starts

    async def start(self) -> None:
        """Start the worker; raises WorkerError if it cannot be started."""
        await self._worker.start()

    async def close(self) -> None:
        await self._worker.close()

    def outcome(self, expression: str, driver: str, device: Device) -> Outcome | None:
        """The outcome, from memory; None if it is not evaluated yet."""
        entry = self._memory.find(expression)
        if entry is None:
            return _TOO_LONG if len(expression) > MAX_EXPRESSION else None
        outcome = entry.default
        if entry.parsed:
            problem = rows.problem(driver, device)
            if problem:
                return undecided(problem)
            outcome = entry.rows.get(rows.row_fingerprint(entry.reads, driver, device), outcome)
        if entry.given_up_until and outcome in GIVEN_UP and entry.may_be_retried(self._clock()):
            return None
        return outcome

    def now(self) -> float:
        """Seconds on the clock that `given_up_until` uses."""
        return self._clock()

    def given_up_until(self, expressions: Iterable[str], since: float) -> float:
        """When the first of these that was given up may be tried again, if that is after `since`;
        infinity if none was."""
        entries = filter(None, map(self._memory.peek, expressions))
        return min((e.given_up_until for e in entries if e.given_up_until > since), default=inf)

    def reads(self, expression: str) -> Reads:
        """What an expression reads, from memory; None: the whole device, or not known yet."""
        entry = self._memory.peek(expression)
        return entry.reads if entry is not None and entry.parsed else None

    def equations(self, expression: str) -> tuple[Equation, ...]:
        """Which attributes an expression compares with what, from memory, as far as is known."""
        entry = self._memory.peek(expression)
        return entry.equations if entry is not None else ()

    def needed(self, expression: str) -> tuple[AttributeRead, ...]:
        """What a device must have to match an expression, from memory, as far as is known."""
        entry = self._memory.peek(expression)
        return entry.needed if entry is not None else ()

    def driver(self, expression: str) -> str | None:
        """The only driver whose devices an expression can match ("": any), from memory; None: not
        known yet."""
        entry = self._memory.peek(expression)
        if entry is None or not (entry.parsed or entry.default):
            return None
        return entry.driver

    def refusal(self, expression: str) -> str | None:
        """Why it does not compile, "" if it does, from memory; None: not known yet."""
        entry = self._memory.peek(expression)
        if entry is None or not (entry.parsed or entry.default):
            return None
        refused = entry.default is not None and entry.default.kind is OutcomeKind.WOULD_ABORT
        return entry.default.reason if refused and entry.default is not None else ""

    def use(self, expressions: Iterable[str]) -> None:
        """Mark these as used. Entries that are used more than once are forgotten last."""
        self._memory.use(expressions)

    def pin(self, expressions: Collection[str]) -> None:
        """Never forget these, as far as they are known, until others are pinned instead."""
        self._memory.pin(expressions)

    async def nearest(
        self, expressions: Iterable[str], devices: Sequence[tuple[str, Device]]
    ) -> str:
        """What the nearest of a few devices lacks ("memory 80Gi < 96Gi") to meet all expressions;
        "" if that is not known. Leaves out expressions that proved costly or ended the worker."""
        asked = tuple(expression for expression in expressions if self._is_sound(expression))
        if not asked:
            return ""
        try:
            async with self._queue.turn((Level.COSTLY, 0.0)):
                inspected = await self._worker.ask(Inspect(asked, tuple(devices[:_MOST_INSPECTED])))
        except WorkerError:
            return ""
        assert isinstance(inspected, Inspected)
        return inspected.nearest

    def _is_sound(self, expression: str) -> bool:
        entry = self._memory.peek(expression)
        return len(expression) <= MAX_EXPRESSION and (entry is None or not entry.suspect)

    async def evaluate(
        self,
        expressions: Iterable[str],
        devices: Iterable[tuple[str, Device]],
        quick: asyncio.Event | None = None,
    ) -> bool:
        """Fill the memory for these expressions on these devices; never raises for what is in them.

        True if all is evaluated that can be; else a later call may find more. `quick` is set once
        only costly expressions are left. They may take long, since they wait until nobody else has
        work. If too many calls wait like that, or the worker keeps ending, this call gives up: what
        is missing stays None, and the next call tries again.
        """
        quick = quick or asyncio.Event()
        patience = max(_PATIENCE, self._worker.failures + 2)
        texts = [text for text in dict.fromkeys(expressions) if len(text) <= MAX_EXPRESSION]
        works = [Work(text, self._memory.peek(text)) for text in texts]
        left = [(work.priority(), at, work) for at, work in enumerate(works)]
        heapq.heapify(left)
        try:
            listed = await run_within(partial(_listed, devices))
            await self._work(left, listed, Level.LARGE, patience)
            if left:
                quick.set()
                await self._linger(left, listed, patience)
        except WorkerError as error:
            _log.warning("selectors are not evaluated for now", reason=str(error))
            return False
        return not left and not any(work.entry and work.entry.gave_up for work in works)

    async def _linger(
        self, left: list[tuple[Priority, int, Work]], devices: Devices, patience: int
    ) -> None:
        if self._lingering >= LINGERING:
            return
        self._lingering += 1
        try:
            await self._work(left, devices, Level.COSTLY, patience)
        finally:
            self._lingering -= 1

    async def _work(
        self,
        left: list[tuple[Priority, int, Work]],
        devices: Devices,
        most: Level,
        patience: int,
    ) -> None:
        """Do what is left up to a level, the least priority first."""
        while left and left[0][0][0] <= most:
            _, at, work = heapq.heappop(left)
            try:
                more = await self._step(work, devices)
            except WorkerUnready:
                more = True
            if more:
                heapq.heappush(left, (work.priority(), at, work))
            if self._worker.failures >= patience:
                raise WorkerError("the selectors' worker keeps ending without an answer")

    async def _step(self, work: Work, devices: Devices) -> bool:
        """Ask the worker once; true if there is more to ask."""
        if work.fingerprints is None:
            work.entry = self._memory.add(work.expression)
            work.entry.forgive(self._clock())
        entry = work.entry
        # Between two questions, other calls run: all that is known here may have changed.
        if entry is None or self._memory.find(work.expression) is not entry:
            return False  # the memory forgot it meanwhile
        if entry.default is not None:
            return False
        if not entry.parsed:
            await self._parse(work, entry)
            return True
        if work.fingerprints is None:
            work.fingerprints = await run_within(partial(_unknown, entry, devices))
            self._memory.make_room(entry, len(work.fingerprints))
        if work.batch():
            await self._judge(work, entry)
        return bool(work.fingerprints) and entry.default is None

    async def _parse(self, work: Work, entry: ExpressionEntry) -> None:
        async with self._queue.turn(work.priority()):
            if entry.parsed or entry.default is not None:  # by another call's work
                return
            try:
                parsed = await self._worker.ask(Parse(work.expression, self._variable))
            except WorkerDied as death:
                entry.note_death([PARSING], self._clock(), slow=death.slow)
                return
            assert isinstance(parsed, Parsed)
            entry.reads, entry.driver = parsed.reads, parsed.driver
            entry.equations, entry.needed = parsed.equations, parsed.needed
            entry.default, entry.parsed = parsed.outcome, True
            entry.deaths.clear()

    async def _judge(self, work: Work, entry: ExpressionEntry) -> None:
        async with self._queue.turn(work.priority()):
            # Choose the rows only now: other calls may have asked about some meanwhile.
            batch = work.batch()
            if not batch:
                return
            assert work.fingerprints is not None
            asked = tuple(rows.row(entry.reads, each) for each in batch)
            try:
                judged = await self._worker.ask(
                    EvaluateRequest(work.expression, asked, self._variable)
                )
            except WorkerDied as death:
                entry.note_death(batch, self._clock(), slow=death.slow)
                return
            assert isinstance(judged, EvaluateReply)
            entry.learn(batch, judged, self._clock())
            work.spent_s += judged.spent_s
            # The worker may answer only the first rows, to let others have their turn.
            for _ in judged.outcomes:
                work.fingerprints.popleft()


def _listed(devices: Iterable[tuple[str, Device]]) -> Devices:
    found: list[tuple[str, Device]] = []
    for device in devices:
        found.append(device)
        pause()
    return found


def _unknown(entry: ExpressionEntry, devices: Devices) -> deque[RowFingerprint]:
    """The distinct fingerprints of devices that nothing is known of yet.

    Leaves out devices that no expression can be decided on.
    """
    keys: dict[RowFingerprint, None] = {}
    for driver, device in devices:
        pause()
        key = rows.row_fingerprint(entry.reads, driver, device)
        if key not in keys and key not in entry.rows and not rows.problem(driver, device):
            keys[key] = None
    return deque(keys)


# What policies require


class Engines:
    """The selector engines for expressions about devices and about nodes; both share a worker.

    An expression is about devices if it compiles with the variable `device`, and about nodes if it
    compiles with `node`. One that compiles with neither is ignored.
    """

    def __init__(self, devices: SelectorEngine) -> None:
        self.devices = devices
        self.nodes = devices.of_nodes()
        self._warned: frozenset[tuple[str, str]] = frozenset()

    async def evaluate(
        self,
        requirements: Iterable[Requirement],
        devices: Collection[tuple[str, Device]] = (),
        labels: Collection[Mapping[str, str]] = (),
    ) -> bool:
        """Evaluate requirements on these devices, each with its driver, and on these nodes by their
        labels; without any, only compile them.

        True if everything is evaluated that can be; see `SelectorEngine.evaluate`.
        """
        expressions = {requirement.expression for requirement in requirements}
        if not expressions:
            return True
        done = await self.devices.evaluate(expressions, devices)
        about_nodes = [e for e in expressions if self.devices.refusal(e) != ""]
        if about_nodes:
            nodes = [("", rows.device_of_node(one)) for one in labels]
            done = await self.nodes.evaluate(about_nodes, nodes) and done
        return done

    def about(self, requirement: Requirement) -> SelectorEngine | None:
        """The engine for its variable; None if it compiles with neither, or is not compiled yet."""
        for engine in (self.devices, self.nodes):
            if engine.refusal(requirement.expression) == "":
                return engine
        return None

    def known(self, requirement: Requirement) -> bool:
        """Whether it is known if a requirement is about devices, about nodes, or neither."""
        expression = requirement.expression
        if self.devices.refusal(expression) == "":
            return True
        return None not in (self.devices.refusal(expression), self.nodes.refusal(expression))

    def refusal(self, requirement: Requirement) -> str:
        """Why a requirement is ignored; "" if it is not, or if that is not known yet."""
        if not self.known(requirement) or self.about(requirement) is not None:
            return ""
        about_node = "node." in requirement.expression
        engine = self.nodes if about_node and "device." not in requirement.expression else None
        return (engine or self.devices).refusal(requirement.expression) or ""

    def ignored(self, policy: Policy) -> list[str]:
        """A sentence for each requirement that is known not to compile."""
        return [
            f"placement.requires[{at}] is ignored: {why}"
            for at, requirement in enumerate(policy.placement.requires)
            if (why := self.refusal(requirement))
        ]

    def warn(self, policies: Iterable[Policy]) -> None:
        """Log each requirement that is ignored, once."""
        # The API server does not compile these expressions, so nobody else reports them.
        ignored = frozenset(
            (policy.name, why) for policy in policies for why in self.ignored(policy)
        )
        for name, why in sorted(ignored - self._warned):
            _log.warning("a policy's requirement is ignored", policy=name, reason=why)
        self._warned = ignored
