"""The webhook as an aiohttp application: POST /mutate and POST /validate, decode → judge → encode.

Here, and only here, it is decided that Fettle fails open: what cannot be judged in time, and any
error of ours, is answered as allowed, with the UID, counted and logged. Only what is no review at
all gets a 4xx. The listener is started elsewhere; it must keep idle connections longer than the
90 s of the API server's client, or a request may meet a connection that was just closed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry

from fettle.errors import BadInput
from fettle.lint.findings import Rule
from fettle.lint.rules import RULES
from fettle.settings import Settings
from fettle.view import Publisher
from webhook import patches
from webhook.metrics import Metrics
from webhook.mutating import mutate
from webhook.review import Answer, Request, decode, encode
from webhook.validating import validate

MAX_BODY_BYTES = 16 * 2**20
"""The API server takes objects of 3 MiB, and a review holds up to two, escaped as JSON."""

_log = structlog.get_logger("fettle.webhook")


class Judged(NamedTuple):
    """An answer, how it is counted, and what was left undecided on the way."""

    answer: Answer
    result: str
    undecided: Sequence[str] = ()


Judge = Callable[[Request], Awaitable[Judged]]


def make_app(
    publisher: Publisher,
    settings: Settings,
    *,
    registry: CollectorRegistry,
    rules: Sequence[Rule] = RULES,
) -> web.Application:
    """The application; its metrics go into `registry`, which takes them once."""
    webhook = Webhook(publisher, settings, Metrics(registry), rules)
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes(
        [web.post("/mutate", webhook.on_mutate), web.post("/validate", webhook.on_validate)]
    )
    return app


class Webhook:
    """Both faces over one publisher: each answer comes from one view."""

    def __init__(
        self, publisher: Publisher, settings: Settings, metrics: Metrics, rules: Sequence[Rule]
    ) -> None:
        self._publisher = publisher
        self._policies = settings.all_policies()
        self._deadline_s = settings.webhook.deadline_seconds
        self._metrics = metrics
        self._rules = rules

    async def on_mutate(self, http: web.Request) -> web.Response:
        return await self._serve("mutate", http, self._mutate)

    async def on_validate(self, http: web.Request) -> web.Response:
        return await self._serve("validate", http, self._validate)

    async def _serve(self, webhook: str, http: web.Request, judge: Judge) -> web.Response:
        try:
            body = await _body(http)
            began = time.perf_counter()
            request = decode(body)
        except BadInput as error:
            self._metrics.reviews.labels(webhook, "bad_input").inc()
            _log.warning("review not readable", webhook=webhook, reason=str(error))
            return web.Response(status=error.status, text=f"fettle: {error}\n")
        judged = await self._judged(webhook, request, judge)
        reply = encode(request.uid, judged.answer)
        self._count(webhook, judged, time.perf_counter() - began)
        return web.Response(body=reply, content_type="application/json")

    async def _judged(self, webhook: str, request: Request, judge: Judge) -> Judged:
        log = _log.bind(webhook=webhook, uid=request.uid, kind=request.kind.kind)
        log = log.bind(namespace=request.namespace, name=request.name)
        try:
            async with asyncio.timeout(self._deadline_s):
                judged = await judge(request)
        except TimeoutError:
            log.warning("not judged in time, allowed", deadline_s=self._deadline_s)
            warning = f"fettle: not judged within {self._deadline_s:g} s, so it was allowed"
            return Judged(Answer(warnings=[warning]), "undecided", ["deadline"])
        except BadInput as error:
            log.warning("no patch fits, allowed without one", reason=str(error))
            return Judged(
                Answer(warnings=[f"fettle: nothing was injected: {error}"]), "inapplicable"
            )
        except Exception:
            log.exception("review failed, allowed")
            return Judged(
                Answer(warnings=["fettle: failed to judge this, so allowed it"]), "failed"
            )
        if not judged.answer.allowed:
            log.info("denied", message=judged.answer.message)
        return judged

    async def _mutate(self, request: Request) -> Judged:
        mutation = await mutate(request, self._publisher.view, self._policies)
        patches.apply(request.object, mutation.patch)
        answer = Answer(patch=mutation.patch, warnings=mutation.warnings)
        undecided = [mutation.undecided] if mutation.undecided else []
        return Judged(answer, _result(answer, undecided), undecided)

    async def _validate(self, request: Request) -> Judged:
        found = await validate(request, self._publisher.view, self._rules)
        answer = Answer(
            allowed=not found.denied,
            message=f"fettle: {found.message}",
            warnings=[f"fettle: {finding}" for finding in found.warned],
        )
        undecided = [finding.rule for finding in found.undecided]
        return Judged(answer, _result(answer, undecided), undecided)

    def _count(self, webhook: str, judged: Judged, seconds: float) -> None:
        self._metrics.seconds.labels(webhook).observe(seconds)
        self._metrics.reviews.labels(webhook, judged.result).inc()
        for reason in judged.undecided:
            self._metrics.undecided.labels(webhook, reason).inc()


def _result(answer: Answer, undecided: Sequence[str]) -> str:
    if not answer.allowed:
        return "denied"
    if answer.patch:
        return "patched"
    if undecided:
        return "undecided"
    return "warned" if answer.warnings else "allowed"


async def _body(http: web.Request) -> bytes:
    """The whole body; raises BadInput where it is too large or breaks off."""
    too_large = BadInput(
        f"the body is larger than {MAX_BODY_BYTES // 2**20} MiB, more than any review", status=413
    )
    if (http.content_length or 0) > MAX_BODY_BYTES:
        raise too_large
    try:
        return await http.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise too_large from error
    except web.RequestPayloadError as error:
        raise BadInput(f"the body cannot be read: {error}") from error
