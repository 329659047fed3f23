"""Selector outcomes for the loop: asked for beforehand, answered from memory.

Stands between inventory and verdicts. `evaluate` is called when slices, classes or claims change
and fills the memory through the worker process; `outcome` is called while answering a request and
never waits. Imports no CEL: that lives in the worker. May not import `feeds` or above.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import islice

import structlog

from fettle.errors import WorkerError
from fettle.selectors import rows
from fettle.selectors.outcomes import Kind, Outcome, undecided
from fettle.selectors.processes import COMMAND, Worker, WorkerDied
from fettle.selectors.protocol import Inspect, Inspected, Judge, Judged, Parse, Parsed
from fettle.selectors.rows import Key, Reads, Variable
from fettle.wire.resource import Device

MAX_EXPRESSION = 10 * 1024
_TOO_LONG = undecided("it is longer than 10 KiB")
_TOO_SLOW = undecided("it takes too long")
_DIED = undecided("the process that evaluates it ended over it")

_BATCH = 64
_INSPECTED = 16
_STRIKES = 3
_PATIENCE = 6  # workers in a row without an answer, after which evaluation waits for the next call
_SLICE = 48  # devices between two yields to the loop: about 0.2 ms
_TRIAL_S, _DEAR_S = 2.0, 0.005  # worker time an expression may take before its mean row is judged

_log = structlog.get_logger(__name__)

Devices = Sequence[tuple[str, Device]]


class _Entry:
    """What is known of one expression.

    `default` is for devices whose row is not among `rows`: an outcome that holds for all of them.
    """

    __slots__ = ("default", "judged", "parsed", "reads", "rows", "spent_s", "strikes")

    def __init__(self) -> None:
        self.parsed = False
        self.reads: Reads = ()
        self.default: Outcome | None = None
        self.rows: dict[Key, Outcome] = {}
        self.strikes = 0
        self.spent_s = 0.0
        self.judged = 0

    def forgive(self) -> None:
        """Forget what was only the worker's trouble: it may go better now."""
        if self.default is _DIED:
            self.default, self.strikes = None, 0

    def knows(self, key: Key) -> bool:
        return self.rows.get(key, _DIED) is not _DIED

    def strike(self, key: Key, outcome: Outcome) -> None:
        """One row ended the worker; after some, the expression is not tried further."""
        self.rows[key] = outcome
        self.strikes += 1
        if self.strikes >= _STRIKES:
            self.default = outcome

    def learn(self, keys: Iterable[Key], judged: Judged) -> None:
        self.rows.update(zip(keys, judged.outcomes, strict=False))
        self.judged += len(judged.outcomes)
        self.spent_s += judged.spent_s
        if self.spent_s > _TRIAL_S and self.spent_s / self.judged > _DEAR_S:
            self.default = _TOO_SLOW


class SelectorEngine:
    """Remembers up to `expressions` expressions and about `rows` outcomes, the latest used."""

    def __init__(
        self,
        *,
        expressions: int = 1000,
        rows: int = 400_000,
        command: Sequence[str] = COMMAND,
        wait_s: float = 5.0,
    ) -> None:
        self._worker = Worker(command, wait_s=wait_s)
        self._variable: Variable = "device"
        self._memo: OrderedDict[str, _Entry] = OrderedDict()
        self._most_expressions = expressions
        self._most_rows = rows

    def of_nodes(self) -> "SelectorEngine":
        """An engine for expressions about `node`, which shares the worker: devices are then nodes
        in the form of `rows.of_node`, and their driver is ""."""
        other = SelectorEngine(expressions=self._most_expressions, rows=self._most_rows)
        other._worker, other._variable = self._worker, "node"
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
        entry = self._memo.get(expression)
        if entry is None or not entry.parsed:
            if len(expression) > MAX_EXPRESSION:
                return _TOO_LONG
            return entry.default if entry is not None else None
        self._memo.move_to_end(expression)
        problem = rows.problem(driver, device)
        if problem:
            return undecided(problem)
        return entry.rows.get(rows.key(entry.reads, driver, device), entry.default)

    def reads(self, expression: str) -> Reads:
        """What an expression looks at, from memory; None: the whole device, or not known yet."""
        entry = self._memo.get(expression)
        return entry.reads if entry is not None and entry.parsed else None

    def refusal(self, expression: str) -> str | None:
        """Why it does not compile, "" if it does, from memory; None: not known yet."""
        entry = self._memo.get(expression)
        if entry is None or not entry.parsed:
            return None
        refused = entry.default is not None and entry.default.kind is Kind.WOULD_ABORT
        return entry.default.reason if refused and entry.default is not None else ""

    async def nearest(self, expression: str, devices: Sequence[tuple[str, Device]]) -> str:
        """What the nearest of a few devices lacks ("memory 80Gi < 96Gi"); "" if it cannot tell."""
        if len(expression) > MAX_EXPRESSION:
            return ""
        try:
            inspected = await self._worker.ask(Inspect(expression, tuple(devices[:_INSPECTED])))
        except (WorkerDied, WorkerError):
            return ""
        assert isinstance(inspected, Inspected)
        return inspected.nearest

    async def evaluate(
        self, expressions: Iterable[str], devices: Iterable[tuple[str, Device]]
    ) -> None:
        """Fill the memory for these expressions on these devices; never raises for them.

        Where the worker cannot be kept alive it gives up: what is missing stays None, and the
        next call tries again.
        """
        sound = await _sound(devices)
        patience = max(_PATIENCE, self._worker.failures + 2)
        try:
            for expression in dict.fromkeys(expressions):
                if len(expression) <= MAX_EXPRESSION:
                    await self._evaluate(expression, sound, patience)
                if self._worker.failures >= patience:
                    raise WorkerError("the selectors' worker keeps ending without an answer")
        except WorkerError as error:
            _log.warning("selectors are not evaluated for now", reason=str(error))

    async def _evaluate(self, expression: str, devices: Devices, patience: int) -> None:
        entry = self._memo.get(expression) or _Entry()
        self._keep(expression, entry)
        entry.forgive()
        if not entry.parsed:
            await self._parse(expression, entry)
        if entry.default is None:
            keys = await _unknown(entry, devices)
            self._make_room(expression, entry, len(keys))
            await self._judge(expression, entry, keys, patience)

    async def _parse(self, expression: str, entry: _Entry) -> None:
        for _attempt in range(2):
            try:
                parsed = await self._worker.ask(Parse(expression, self._variable))
            except WorkerDied as death:
                entry.default = _TOO_SLOW if death.slow else _DIED
                if death.slow:
                    entry.parsed = True
                    return
            else:
                assert isinstance(parsed, Parsed)
                entry.reads, entry.default, entry.parsed = parsed.reads, parsed.outcome, True
                return

    async def _judge(self, expression: str, entry: _Entry, keys: deque[Key], patience: int) -> None:
        """Ask for each key, in batches; over a batch that ends the worker, one by one."""
        alone: set[Key] = set()
        while keys and entry.default is None and self._worker.failures < patience:
            batch = list(islice(keys, 1 if keys[0] in alone else _BATCH))
            asked = tuple(rows.row(entry.reads, key) for key in batch)
            try:
                judged = await self._worker.ask(Judge(expression, asked, self._variable))
            except WorkerDied as death:
                if len(batch) == 1 and (death.slow or batch[0] in alone):
                    entry.strike(keys.popleft(), _TOO_SLOW if death.slow else _DIED)
                alone.update(batch)
                continue
            assert isinstance(judged, Judged)
            entry.learn(batch, judged)
            for _ in judged.outcomes:
                keys.popleft()

    def _keep(self, expression: str, entry: _Entry) -> None:
        """Remember as the latest used."""
        self._memo[expression] = entry
        self._memo.move_to_end(expression)
        if len(self._memo) > self._most_expressions:
            self._memo.popitem(last=False)

    def _make_room(self, expression: str, entry: _Entry, more: int) -> None:
        """Drop the least used until the rows fit; where one expression alone has too many, its."""
        self._keep(expression, entry)
        kept = sum(len(other.rows) for other in self._memo.values())
        while kept + more > self._most_rows and len(self._memo) > 1:
            _, oldest = self._memo.popitem(last=False)
            kept -= len(oldest.rows)
        if kept + more > self._most_rows:
            entry.rows.clear()


async def _sound(devices: Iterable[tuple[str, Device]]) -> Devices:
    """The devices that expressions can be evaluated on, found in short slices."""
    found: list[tuple[str, Device]] = []
    for at, (driver, device) in enumerate(devices):
        if at % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        if not rows.problem(driver, device):
            found.append((driver, device))
    return found


async def _unknown(entry: _Entry, devices: Devices) -> deque[Key]:
    """The distinct keys of devices that nothing is known of yet, found in short slices."""
    keys: dict[Key, None] = {}
    for at, (driver, device) in enumerate(devices):
        if at % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        key = rows.key(entry.reads, driver, device)
        if not entry.knows(key):
            keys[key] = None
    return deque(keys)
