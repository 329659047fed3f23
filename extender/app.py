"""The extender's HTTP routes: three POST handlers, each decode → pure → encode; and its errors.

What a client sends wrong is a 4xx with the reason; what goes wrong here is logged with its
traceback and answered without it.
"""

import time
from collections.abc import Awaitable, Callable

from extender.filter import Filter
from extender.freshness import Freshness, FreshTables
from extender.http.connections import Handler, HTTPReply, SchedulerConnections, problem
from extender.http.replies import Replies
from extender.misconfiguration import SERVED, Misconfiguration
from extender.verbs import NotReady, Preempt, Prioritize, Waits
from fettle.api import extender as wire
from fettle.config import ExtenderSettings
from fettle.logs import Logger
from fettle.model import BadInput
from fettle.observing import ExtenderMetrics
from fettle.records import Recorder
from fettle.scheduling import Answers, Leanings, OwnerRefusals
from fettle.scheduling.placed import RecentPods

_LOG = Logger(__name__)

Verb = Callable[[bytes], bytes | Awaitable[bytes]]


def make_connections(
    answers: Answers,
    settings: ExtenderSettings,
    metrics: ExtenderMetrics,
    not_ready: Callable[[], str],
    *,
    freshness: Freshness,
    misconfiguration: Misconfiguration,
    recent: RecentPods,
    recorder: Recorder,
    refusals: OwnerRefusals,
    leanings: Leanings,
    waits: Waits | None = None,
) -> SchedulerConnections:
    """POST /filter, /prioritize and /preempt; a protocol factory for a listener.

    `not_ready` says why Fettle is not ready; "" if it is. `freshness` is that of the views that the
    answers come from. What the calls show goes into `misconfiguration`, `recent` and `refusals`,
    and what is decided into `recorder`. `leanings` say what the scores of single pods differ by.
    """
    waits = waits or Waits()
    replies = Replies(settings.replies, lambda: answers.version)
    tables = FreshTables(answers, metrics, freshness, waits)
    filter_ = Filter(
        answers,
        metrics,
        not_ready,
        replies,
        tables,
        misconfiguration,
        recent,
        recorder,
        refusals,
        leanings,
        waits,
    )
    prioritize = Prioritize(answers, metrics, not_ready, replies, recorder, leanings, waits)
    verbs: dict[str, Verb] = {
        "filter": filter_.handle,
        "prioritize": prioritize.handle,
        "preempt": Preempt(answers, metrics, not_ready, recorder).handle,
    }
    requested_at = misconfiguration.last.at
    routes = {
        f"/{name}": _handler(name, verb, metrics, requested_at) for name, verb in verbs.items()
    }
    limit = settings.max_body_mebibytes * 2**20
    return SchedulerConnections(routes, limit, _not_served(misconfiguration))


def _not_served(misconfiguration: Misconfiguration) -> Callable[[str, str], HTTPReply]:
    """kube-scheduler only POSTs: who sends something else looks for the browse listener."""

    def refuse(method: str, path: str) -> HTTPReply:
        if method != "POST":
            where = "this listener is for kube-scheduler only, ask the one of --browse-listen"
            return problem(404, f"path {path} not found: {where}")
        misconfiguration.not_served(path)
        return problem(404, f"path {path} not found: {SERVED} are served")

    return refuse


def _handler(
    name: str, verb: Verb, metrics: ExtenderMetrics, requested_at: dict[str, float]
) -> Handler:
    latency_s = metrics.latency_s.labels(name)

    def handle(body: bytes) -> HTTPReply | Awaitable[HTTPReply]:
        started = time.perf_counter()
        try:
            made = verb(body)
        except BadInput as error:  # not what a scheduler asks
            reply = _failed(name, error, metrics)
        except Exception as error:
            requested_at[name] = started
            reply = _failed(name, error, metrics)
        else:
            requested_at[name] = started
            if not isinstance(made, bytes):
                return later(made, started)
            reply = HTTPReply(200, made)
        latency_s.observe(time.perf_counter() - started)
        return reply

    async def later(made: Awaitable[bytes], started: float) -> HTTPReply:
        try:
            return HTTPReply(200, await made)
        except Exception as error:
            return _failed(name, error, metrics)
        finally:
            latency_s.observe(time.perf_counter() - started)

    return handle


def _failed(verb: str, error: Exception, metrics: ExtenderMetrics) -> HTTPReply:
    if isinstance(error, BadInput):
        metrics.decided(verb, "bad_input")
        return problem(error.status, str(error))
    if isinstance(error, NotReady):
        return problem(503, str(error))
    _LOG.error("request failed", verb=verb, exc_info=error)
    metrics.decided(verb, "error")
    text = "fettle: internal error; see its log for details"
    if verb == "filter":
        return HTTPReply(200, wire.filter_reply(None, error=text))
    return problem(500, text)
