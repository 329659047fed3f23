"""Records Events of `events.k8s.io/v1`, for people in the cluster.

To record one never waits: a task writes it later. Repeated Events become one series with a count,
and each namespace has a budget that is refilled slowly, so that Events cannot flood the cluster.
Nothing depends on Events: one that cannot be written is counted and dropped.
"""

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from fettle.api import api_path
from fettle.api.meta import micro_time
from fettle.client.session import Session
from fettle.logs import Logger
from fettle.model import ClusterError, Conflict, NotFound, Unreachable
from fettle.pacing import keep

BURST = 25
REFILL_S = 300.0
"""New Events that a namespace may have at once, and seconds until one more: as in client-go."""
MOST_SERIES = 1000
"""Series in memory, of all namespaces together; further Events are held back."""
WRITE_EVERY_S = 1.0
COUNT_EVERY_S = 60.0
"""How often the count of a series is written while the Event repeats."""
FORGET_S = 360.0
"""A series ends when the Event was not repeated for so long; the next one is new."""
_LONGEST_NOTE = 1024
"""The API server refuses a longer one."""
_LONGEST_NAME = 253

_LOG = Logger(__name__)


class Regarding(NamedTuple):
    """The object that an Event is about; one without a namespace has its Events in `default`.

    Of a Namespace, `namespace` is its own name: its Events are then found in it.
    """

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class Event(NamedTuple):
    """`reason` and `action` in CamelCase, `note` for people. Events about the same object with the
    same `reason` and `series_key` are one series, with the note of the first.

    An Event with a `name` of its own is written once, whoever writes it: if there is one of that
    name, it was told before.
    """

    regarding: Regarding
    reason: str
    action: str
    note: str
    series_key: str = ""
    type: Literal["Normal", "Warning"] = "Normal"
    name: str = ""


class _Series:
    """An Event, how often it happened, and which of these counts is written."""

    def __init__(self, event: Event) -> None:
        self.event = event
        self.began = self.last = datetime.now(UTC)
        self.count = 1
        self.written = 0
        self.written_at = float("-inf")
        self.last_at = 0.0
        self.name = ""


class _Budget:
    """New Events that a namespace may still have."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at = 0.0

    def take(self, now: float) -> bool:
        self._left = self.left(now)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def left(self, now: float) -> float:
        return min(float(BURST), self._left + (now - self._at) / REFILL_S)


class EventRecorder:
    """`controller` and `instance` say who reports. `count` is called for each Event with its
    result: written, counted (as a repetition), held_back, or failed."""

    def __init__(
        self,
        session: Session,
        controller: str,
        instance: str,
        count: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._controller = controller
        self._instance = instance[:128]
        self._count = count
        self._clock = clock
        self._series: dict[tuple[Regarding, str, str], _Series] = {}
        self._budgets: dict[str, _Budget] = {}
        self._warned = ""

    def record(self, event: Event) -> bool:
        """Have it written soon, or counted; returns at once. False if it is held back, which is
        worth another try later."""
        now = self._clock()
        event = event._replace(note=_cut(event.note), series_key=event.series_key[:_LONGEST_NOTE])
        key = (event.regarding, event.reason, event.series_key)
        series = self._series.get(key)
        if series is not None:
            series.count += 1
            series.last = datetime.now(UTC)
            self._count("counted")
        elif max(map(len, event.regarding)) > _LONGEST_NAME:
            self._count("failed")  # no such object can exist: do not keep it in memory
            return True
        elif len(self._series) < MOST_SERIES and self._has_budget(event.regarding.namespace, now):
            series = self._series[key] = _Series(event)
        else:
            self._count("held_back")
            return False
        series.last_at = now
        return True

    async def run(self) -> None:
        """Write what was recorded, until cancelled."""
        await keep(f"events of {self._controller}", self.write, every_s=WRITE_EVERY_S)

    async def write(self) -> None:
        """Write all that is due, one after the other; ends early if the API server is away."""
        now = self._clock()
        for key, series in [*self._series.items()]:
            if series.count > series.written:
                if now - series.written_at >= COUNT_EVERY_S and not await self._write(series):
                    return
            elif now - series.last_at >= FORGET_S:
                del self._series[key]
        full = [name for name, budget in self._budgets.items() if budget.left(now) >= BURST]
        for name in full:
            del self._budgets[name]

    def _has_budget(self, namespace: str, now: float) -> bool:
        return self._budgets.setdefault(namespace, _Budget()).take(now)

    async def _write(self, series: _Series) -> bool:
        """False if the API server did not respond: then the others can wait too."""
        count = series.count
        try:
            await self._send(series, count)
        except ClusterError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                _LOG.warning("cannot write event", reason=self._warned)
            if isinstance(error, Unreachable):
                return False
            self._count("failed")
        else:
            self._warned = ""
            self._count("written")
        series.written, series.written_at = count, self._clock()
        return True

    async def _send(self, series: _Series, count: int) -> None:
        """Create the Event, or patch its count; an Event that has expired is created again."""
        namespace = series.event.regarding.namespace or "default"
        events = partial(api_path, "events.k8s.io/v1", "events", namespace=namespace)
        if series.name:
            try:
                await self._session.patch(events(name=series.name), _count_of(series, count))
            except NotFound:
                series.name = ""
            else:
                return
        name = series.event.name or f"fettle-{uuid.uuid4().hex}"
        try:
            await self._session.create(events(), self._body(series, count, name, namespace))
        except Conflict:
            if not series.event.name:
                raise
        series.name = name

    def _body(self, series: _Series, count: int, name: str, namespace: str) -> dict[str, Any]:
        event = series.event
        regarding = {
            "apiVersion": event.regarding.api_version,
            "kind": event.regarding.kind,
            "name": event.regarding.name,
            "namespace": event.regarding.namespace,
            "uid": event.regarding.uid,
        }
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micro_time(series.began),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "regarding": {key: value for key, value in regarding.items() if value},
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            **(_count_of(series, count) if count > 1 else {}),
        }


def _count_of(series: _Series, count: int) -> dict[str, Any]:
    return {"series": {"count": count, "lastObservedTime": micro_time(series.last)}}


def _cut(note: str) -> str:
    """Cut to the bytes that the API takes."""
    return note.encode(errors="replace")[:_LONGEST_NOTE].decode(errors="ignore")
