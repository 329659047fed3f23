"""Asks Prometheus by the rules of the table `metrics`, round by round, and sends what fires to the
writer. First step of *watch → inventory → health → verdict → answer*, beside the watches.

What fails changes nothing: a fault that was reported stands for some rounds, then it fades. No
answer, and no lack of one, is ever a fault of a device.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from fettle.api import Finding, Measured, Sample, Unmeasured
from fettle.client import Answer, Prometheus
from fettle.cluster import Measuring, Publisher
from fettle.config import PrometheusSettings
from fettle.health import CLOCKS_APART_S, metrics
from fettle.logs import Logger
from fettle.model import EvidenceKind, PrometheusError
from fettle.pacing import keep, run_within

STALE_ROUNDS = 3
"""After so many rounds without an answer for a rule, what it said fades."""
LEAST_PAUSE_S = 0.1
LOOK_S = 2.0
"""How often a process looks whether it is its turn now."""
COUNT_S = 300.0
"""How often it is counted which metrics there are."""
RESTS = 9.0
"""A rule is not asked again before so many times as long as its query took: a costly one takes at
most a tenth of one processor of Prometheus."""
AT_ONCE = 4
"""Queries under way."""
CROWDED_S = 300.0
"""So long only series of exporters are asked for by a rule that fails for all series."""
MISSED_S = 300.0
"""After a longer time without an answer, a rule is also asked for what began meanwhile."""

_LOG = Logger(__name__)


class PollMetrics(Protocol):
    """What is counted."""

    def round_ended(self, seconds: float, *, complete: bool) -> None: ...

    def failed(self, reason: str) -> None: ...

    def read(self, samples: int, odd: int) -> None: ...


class Poller:
    """`keep` until cancelled: polls while it runs, and no other process should."""

    def __init__(
        self,
        settings: PrometheusSettings,
        queries: Mapping[str, metrics.MetricQuery],
        send: Callable[[Finding], Awaitable[None]],
        publisher: Publisher,
        measuring: Measuring,
        counted: PollMetrics,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is compared with the server's, in Unix seconds; `elapsed` never goes back."""
        self._settings = settings
        self._queries = queries
        self._send = send
        self._publisher = publisher
        self._measuring = measuring
        self._counted = counted
        self._clock = clock
        self._elapsed = elapsed
        self._answered_at: dict[str, float] = {}
        """When each rule last had an answer that counts, as far as it has not faded since."""
        self._problems: dict[str, str] = {}
        """By rule, why it has none now; "" for all rules."""
        self._took_s: dict[str, float] = {}
        """By rule, how long its query took last."""
        self._rests_until: dict[str, float] = {}
        self._crowded: dict[str, tuple[float, str]] = {}
        """By rule, until when only exporters' series are asked for, and why."""
        self._complete_until: dict[str, float] = {}
        """By rule, until when nothing that began was missed."""
        self._present: frozenset[str] = frozenset()
        self._counted_at = float("-inf")
        self._absent: tuple[str, ...] = ()
        self._polls = False

    async def keep(self, is_ours: Callable[[], Awaitable[bool]]) -> None:
        """Poll, round by round, from the first view on and while `is_ours` says that it is our
        turn; else another process polls, and this one follows it."""
        try:
            await keep("queries to Prometheus", partial(self._look, is_ours), when=self._first_view)
        finally:
            self._end()

    async def _first_view(self) -> None:
        await self._publisher.newer_than(0)

    async def _look(self, is_ours: Callable[[], Awaitable[bool]]) -> None:
        began, interval_s = self._elapsed(), self._settings.interval_seconds
        if not await is_ours():
            self._end()
            await asyncio.sleep(min(LOOK_S, interval_s))
            return
        if not self._polls:
            self.begin()
        await self.round()
        spent_s = self._elapsed() - began
        await asyncio.sleep(max(LEAST_PAUSE_S, interval_s - spent_s))

    def _end(self) -> None:
        if self._polls:
            self._polls = False
            self._measuring.begin(polls=False, now=self._clock())

    def begin(self) -> None:
        """This process is the one that asks."""
        self._measuring.begin(polls=True, now=self._clock())
        self._polls = True
        self._answered_at = dict.fromkeys(self._queries, self._elapsed())
        self._complete_until.clear()

    async def round(self, at: float | None = None) -> None:
        """Ask for every rule once; `at` another time than now."""
        began = self._elapsed()
        problems: dict[str, str] = {}
        remarks: dict[str, str] = {}
        try:
            async with Prometheus(self._settings) as prometheus:
                await self._ask(_Round(prometheus, at, problems, remarks, self._counted))
        except PrometheusError as error:
            self._counted.failed(error.reason)
            problems[""] = str(error)
        except Exception as error:  # whatever it is, no process must end for metrics
            _LOG.exception("a round of queries failed")
            problems[""] = f"a round of queries failed: {error!r}"
        await self._leave_stale()
        self._note(remarks | problems)
        self._counted.round_ended(self._elapsed() - began, complete=not problems)

    async def _ask(self, asking: "_Round") -> None:
        await self._look_for_metrics(asking)
        here = [one for one in self._queries.values() if _is_present(one, self._present)]
        self._absent = tuple(
            one.row.name
            for one in self._queries.values()
            if one not in here and _is_known(one, here)
        )
        gate = asyncio.Semaphore(AT_ONCE)

        async def ask(one: metrics.MetricQuery) -> None:
            async with gate:
                found = await self._found(asking, one)
            if found is not None:
                await self._send(found)

        async with asyncio.TaskGroup() as group:
            for one in self._queries.values():
                is_due = self._elapsed() >= self._rests_until.get(one.row.name, 0.0)
                if is_due and (one in here or one.row.name.endswith(metrics.MISSING)):
                    group.create_task(ask(one))

    async def _look_for_metrics(self, asking: "_Round") -> None:
        """Know which metrics there are. Those that were there are counted now and then only, since
        it costs as much as a rule for each."""
        now = self._elapsed()
        if not 0 <= now - self._counted_at < COUNT_S:
            self._present, self._counted_at = frozenset(), now
        names = {n for one in self._queries.values() for group in one.names for n in group}
        if unknown := names - self._present:
            self._present |= await asking.present(metrics.presence(unknown))

    async def _found(self, asking: "_Round", one: metrics.MetricQuery) -> Measured | None:
        rule = one.row.name
        began = self._elapsed()
        answer = await self._query(asking, one, one.query)
        if answer is not None and not one.keeps_origin and not one.of_tenants:
            answer = await self._with_all_series(asking, one, answer)
        self._took_s[rule] = self._elapsed() - began
        self._rests_until[rule] = self._elapsed() + RESTS * self._took_s[rule]
        if answer is None:
            return None
        missed = await self._missed(asking, one)
        kept: Answer | None = None
        if one.until and self._measuring.latched(rule):
            kept = await self._query(asking, one, one.until)
            if kept is None:
                return None
        present: Answer | None = None
        firing = partial(self._measuring.ended, rule, answer.samples)
        if not one.row.gone_is_over and (ended := await run_within(firing)):
            present = await self._query(asking, one, one.of_devices(ended))
            if present is None:
                return None
        complete = not any(each.warnings for each in (answer, kept, present) if each is not None)
        if complete:
            self._answered_at[rule] = self._elapsed()
        self._counted.read(len(answer.samples), len(answer.odd))
        if answer.odd:
            asking.remarks[rule] = (
                f"{len(answer.odd)} series have no usable number, such as NaN; they count as "
                "neither a fault nor its end"
            )
        self._note_clock(answer, asking)
        return Measured(
            rule,
            answer.samples,
            kept=kept.samples if kept is not None else (),
            odd=answer.odd,
            present=present.samples if present is not None else None,
            complete=complete,
            missed=missed,
        )

    async def _query(self, asking: "_Round", one: metrics.MetricQuery, query: str) -> Answer | None:
        """The answer to one of a rule's queries. If it fails for all series, as a tenant may bring
        about with enough of its own, those of exporters are asked for alone."""
        rule = one.row.name
        if one.of_tenants:
            return await asking.query(rule, query)

        async def of_exporters() -> Answer | None:
            only = one.narrowed(query, self._settings.exporter_namespaces)
            return await asking.query(rule, only)

        if not one.keeps_origin:
            return await of_exporters()
        until, why = self._crowded.get(rule, (0.0, ""))
        if self._elapsed() < until:
            asking.problems[rule] = why
            return await of_exporters()
        answer = await asking.query(rule, query)
        if answer is None and rule in asking.problems:
            why = f"{asking.problems[rule]}; so only series of prometheus.exporterNamespaces count"
            if (answer := await of_exporters()) is not None:
                self._crowded[rule] = self._elapsed() + CROWDED_S, why
                asking.problems[rule] = why
        return answer

    async def _with_all_series(
        self, asking: "_Round", one: metrics.MetricQuery, found: Answer
    ) -> Answer:
        """With what the query gives besides if it is asked for all series, so that nobody knows
        whose word that is."""
        if (
            one.row.kind is EvidenceKind.UNKNOWN
            or (everything := await asking.query(one.row.name, one.query)) is None
        ):
            return found
        of_exporters = {frozenset(sample.labels.items()) for sample in found.samples}
        others = tuple(
            one.without_namespace(sample)
            for sample in everything.samples
            if frozenset(sample.labels.items()) not in of_exporters
        )
        return found._replace(
            samples=found.samples + others, warnings=found.warnings + everything.warnings
        )

    async def _missed(self, asking: "_Round", one: metrics.MetricQuery) -> tuple[Sample, ...]:
        """What began while nobody asked: before we did, or while there was no answer."""
        rule, now = one.row.name, self._elapsed()
        found: Answer | None = None
        if one.missed and now - self._complete_until.get(rule, float("-inf")) > MISSED_S:
            found = await self._query(asking, one, one.missed)
            if found is None:
                return ()
        self._complete_until[rule] = now
        return found.samples if found is not None else ()

    def _note_clock(self, answer: Answer, asking: "_Round") -> None:
        apart_s = answer.at - self._clock()
        if asking.at is None and answer.at and abs(apart_s) > CLOCKS_APART_S:
            how = "ahead of" if apart_s > 0 else "behind"
            asking.remarks["clock"] = (
                f"the clock of {self._settings.url} is {round(abs(apart_s), -1):.0f} s {how} ours"
            )

    async def _leave_stale(self) -> None:
        now, interval_s = self._elapsed(), self._settings.interval_seconds

        def stale_s(rule: str) -> float:
            return STALE_ROUNDS * max(interval_s, (1 + RESTS) * self._took_s.get(rule, 0.0))

        for rule in [r for r, at in self._answered_at.items() if now - at > stale_s(r)]:
            del self._answered_at[rule]
            await self._send(Unmeasured(rule))

    def _note(self, problems: dict[str, str]) -> None:
        for rule, why in problems.items():
            if self._problems.get(rule) != why:
                _LOG.warning("metrics", rule=rule, reason=why)
        for rule in self._problems.keys() - problems.keys():
            _LOG.info("metrics: in order again", rule=rule)
        self._problems = problems

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        if not self._polls:
            return []
        found = [
            f"metrics: {f'rule {rule}: ' if rule in self._queries else ''}{why}"
            for rule, why in sorted(self._problems.items())
        ]
        found += [f"metrics: {note}" for note in self._measuring.notes(alerts=False)]
        if self._absent:
            found.append(
                f"metrics: no series for {', '.join(self._absent)}: what these would tell is not "
                "known (deploy/metrics/ has the counters to export)"
            )
        return found


class _Round(NamedTuple):
    """One round's queries, and by rule what went wrong in it, and what else people should know."""

    prometheus: Prometheus
    at: float | None
    problems: dict[str, str]
    remarks: dict[str, str]
    counted: PollMetrics

    async def present(self, expression: str) -> frozenset[str]:
        """The metrics that have series. Raises PrometheusError."""
        answer = await self.prometheus.query(expression, self.at)
        if answer.warnings:
            self._note_partial("", answer)
        return frozenset(s.labels.get("__name__", "") for s in answer.samples)

    async def query(self, rule: str, expression: str) -> Answer | None:
        """The answer; None if there is none, which is noted."""
        try:
            answer = await self.prometheus.query(expression, self.at)
        except PrometheusError as error:
            self.counted.failed(error.reason)
            self.problems["" if error.whole else rule] = str(error)
            return None
        if answer.warnings:
            self._note_partial(rule, answer)
        return answer

    def _note_partial(self, rule: str, answer: Answer) -> None:
        self.counted.failed("partial")
        self.problems[rule] = (
            f"the answer is partial, so it ends no fault: {'; '.join(answer.warnings)}"
        )


def _is_present(one: metrics.MetricQuery, present: frozenset[str]) -> bool:
    return all(names & present for names in one.names)


def _is_known(one: metrics.MetricQuery, here: Iterable[metrics.MetricQuery]) -> bool:
    """Whether the exporter exports anything else, so that the lack is of this alone."""
    return any(each.exporter is one.exporter for each in here)
