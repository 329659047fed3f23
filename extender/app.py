"""The extender's HTTP application: three POST routes, and errors as one sentence.

What a client sends wrong is a 4xx with the reason; what goes wrong here is logged with its
traceback and answered without it.
"""

import time
from collections.abc import Awaitable, Callable

import msgspec
import structlog
from aiohttp import web

from extender.verbs import NotReady, Verbs
from fettle.errors import BadInput
from fettle.observing.metrics import ExtenderMetrics
from fettle.wire import extender as wire

_LOG = structlog.get_logger(__name__)

Verb = Callable[[bytes], Awaitable[bytes]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(verbs: Verbs, metrics: ExtenderMetrics, max_body_mebibytes: int) -> web.Application:
    """POST /filter, /prioritize and /preempt."""
    app = web.Application(client_max_size=max_body_mebibytes * 2**20)
    for name, verb in (
        ("filter", verbs.filter),
        ("prioritize", verbs.prioritize),
        ("preempt", verbs.preempt),
    ):
        app.router.add_post(f"/{name}", _handler(name, verb, metrics, max_body_mebibytes))
    return app


def _handler(name: str, verb: Verb, metrics: ExtenderMetrics, max_body_mebibytes: int) -> Handler:
    latency_s = metrics.latency_s.labels(name)

    async def handle(request: web.Request) -> web.Response:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            metrics.decisions.labels(name, "bad_input").inc()
            return _error(413, f"the request body is larger than {max_body_mebibytes} MiB")
        started = time.perf_counter()
        try:
            return web.Response(body=await verb(body), content_type="application/json")
        except BadInput as error:
            metrics.decisions.labels(name, "bad_input").inc()
            return _error(error.status, str(error))
        except NotReady as error:
            return _error(503, str(error))
        except Exception:
            _LOG.exception("request failed", verb=name)
            metrics.decisions.labels(name, "error").inc()
            return _internal(name)
        finally:
            latency_s.observe(time.perf_counter() - started)

    return handle


def _internal(verb: str) -> web.Response:
    text = "fettle: internal error; its log says more"
    if verb == "filter":
        reply = wire.filter_reply(None, error=text)
        return web.Response(body=reply, content_type="application/json")
    return _error(500, text)


def _error(status: int, message: str) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode({"error": message}), content_type="application/json"
    )
