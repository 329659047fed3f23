"""The extender's HTTP routes: three POST handlers, and errors as one sentence.

What a client sends wrong is a 4xx with the reason; what goes wrong here is logged with its
traceback and answered without it.
"""

import time
from collections.abc import Awaitable, Callable

import structlog

from extender.asked import SERVED, Misconfiguration
from extender.connections import Handler, HTTPReply, SchedulerConnections, problem
from extender.verbs import NotReady, Verbs
from fettle.api import extender as wire
from fettle.model import BadInput
from fettle.observing import ExtenderMetrics

_LOG = structlog.get_logger(__name__)

Verb = Callable[[bytes], bytes | Awaitable[bytes]]


def make_connections(
    verbs: Verbs, metrics: ExtenderMetrics, max_body_mebibytes: int
) -> SchedulerConnections:
    """POST /filter, /prioritize and /preempt; a protocol factory for a listener."""
    routes = {
        f"/{name}": _handler(name, verb, metrics, verbs.asked.last.at)
        for name, verb in (
            ("filter", verbs.filter),
            ("prioritize", verbs.prioritize),
            ("preempt", verbs.preempt),
        )
    }
    return SchedulerConnections(routes, max_body_mebibytes * 2**20, _not_served(verbs.asked))


def _not_served(asked: Misconfiguration) -> Callable[[str, str], HTTPReply]:
    """kube-scheduler only POSTs: others look for what the browse listener serves."""

    def answer(method: str, path: str) -> HTTPReply:
        if method != "POST":
            where = "this listener is for kube-scheduler only, ask the one of --browse-listen"
            return problem(404, f"path {path} not found: {where}")
        asked.in_vain(path)
        return problem(404, f"path {path} not found: {SERVED} are served")

    return answer


def _handler(
    name: str, verb: Verb, metrics: ExtenderMetrics, asked_at: dict[str, float]
) -> Handler:
    latency_s = metrics.latency_s.labels(name)

    def handle(body: bytes) -> HTTPReply | Awaitable[HTTPReply]:
        asked_at[name] = started = time.perf_counter()
        try:
            reply = verb(body)
        except Exception as error:
            answer = _failed(name, error, metrics)
        else:
            if not isinstance(reply, bytes):
                return later(reply, started)
            answer = HTTPReply(200, reply)
        latency_s.observe(time.perf_counter() - started)
        return answer

    async def later(reply: Awaitable[bytes], started: float) -> HTTPReply:
        try:
            return HTTPReply(200, await reply)
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
