"""The webhook as an aiohttp application: POST /mutate and POST /validate, decode → judge → encode.

Here, and only here, it is decided that Fettle fails open: what cannot be judged in time, and any
internal error, is answered as allowed, with the UID, counted and logged. Only what is not a review
at all gets a 4xx. In audit mode everything is allowed as it is; warnings and Events say what would
have been done. The listener is started elsewhere; it must keep idle connections longer than the 90
s of the API server's client, or a request may meet a connection that was just closed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry

from fettle.api import lenient
from fettle.cluster import Publisher, View
from fettle.config import Settings, WebhookSettings
from fettle.lint import ABSENCES, Linter, shapes
from fettle.model import ANNOTATION, BadInput
from fettle.observing import LastRequests
from fettle.pacing import Patience, in_slices
from fettle.scheduling import Engines
from webhook import patches
from webhook.gates import EVERYTHING, Gates
from webhook.metrics import Metrics
from webhook.mutating import Means, mutate, owner_pod
from webhook.policies import UnknownLabels
from webhook.review import AdmissionRequest, AdmissionResponse, decode, encode
from webhook.sparing import RateLimit
from webhook.telling import Tell, event_of
from webhook.validating import Grounds, validate
from webhook.workloads import with_own

MAX_BODY_BYTES = 16 * 2**20
"""The API server takes objects of 3 MiB, and a review holds up to two, escaped as JSON."""

OWNER_WAIT_S = 0.25
"""How long a claim waits for the pod it was made for: both come from the API server, the pod a few
milliseconds earlier."""
APPLIED_WAIT_S = 0.2
"""How long the view may be behind what was created a moment ago, and is named now: a whole file is
applied within milliseconds."""
AGAIN_S = 2.0
"""How long a wait that brought nothing skips further ones for the same names: long to a controller
that tries again and again, short to a person who mends a file."""
_LONGEST_REASON = 300

_log = structlog.get_logger("fettle.webhook")


class Review(NamedTuple):
    """An answer, how it is counted, what was left undecided on the way, and the rules that found
    something."""

    answer: AdmissionResponse
    result: str
    undecided: Sequence[str] = ()
    rules: Sequence[str] = ()


Judge = Callable[[AdmissionRequest], Awaitable[Review]]
_Found = TypeVar("_Found")


def make_app(
    publisher: Publisher,
    settings: Settings,
    *,
    registry: CollectorRegistry,
    linter: Linter | None = None,
    gates: Callable[[], Gates | None] = lambda: EVERYTHING,
    tell: Tell | None = None,
    engines: Engines | None = None,
    unknown: Callable[[], frozenset[str]] = frozenset,
    asked: LastRequests | None = None,
) -> web.Application:
    """The application; its metrics go into `registry`, which takes them once.

    `linter` has all rules, and devices where it can evaluate selectors; by default it cannot.
    `gates` says what the cluster keeps of claims and pods; None: that is not known yet. `tell`
    takes the Events of audit mode, where there is a cluster to have them. `engines` compile what
    DevicePolicies require. `unknown` are kinds of which there may be objects that no view shows.
    `asked` notes each review.
    """
    policies, rows = settings.all_policies(), settings.webhook.workloads
    means = Means(policies, with_own(rows), schedulers=settings.scheduler.names)
    grounds = Grounds(
        linter or Linter(),
        policies,
        settings.lint.levels,
        engines,
        shapes.with_own(rows),
        thresholds=settings.health,
    )
    webhook = Webhook(
        publisher,
        settings.webhook,
        Metrics(registry),
        lambda: means._replace(gates=gates()),
        lambda: grounds._replace(unknown=unknown()),
        tell,
        asked or last_asked(),
    )
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_in_words])
    app.add_routes(
        [web.post("/mutate", webhook.on_mutate), web.post("/validate", webhook.on_validate)]
    )
    return app


def last_asked() -> LastRequests:
    """For reviews that are yet to come."""
    return LastRequests("webhook", ("mutate", "validate"), "the API server has not asked yet")


class Webhook:
    """Both faces over one publisher: each answer comes from one view.

    `means` and `grounds` say for each review what it is judged by; `tell` takes Events.
    """

    def __init__(
        self,
        publisher: Publisher,
        settings: WebhookSettings,
        metrics: Metrics,
        means: Callable[[], Means],
        grounds: Callable[[], Grounds],
        tell: Tell | None,
        asked: LastRequests,
    ) -> None:
        self._publisher = publisher
        self._audit = settings.mode == "audit"
        self._deadline_s = settings.deadline_seconds
        self._metrics = metrics
        self._patience = Patience()
        self._means = means
        self._grounds = grounds
        self._tell = tell
        self._asked = asked
        self._labels = UnknownLabels()
        self._complaints = RateLimit()

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
            reason = str(error)[:_LONGEST_REASON]
            if (held_back := self._complaints.turn()) is not None:
                _log.warning(
                    "review not readable", webhook=webhook, reason=reason, held_back=held_back
                )
            return _problem(error.status, reason)
        self._asked.at[webhook] = time.perf_counter()
        judged = await self._judged(webhook, request, judge)
        reply = encode(request.uid, judged.answer)
        self._count(webhook, judged, time.perf_counter() - began)
        return web.Response(body=reply, content_type="application/json")

    async def _judged(self, webhook: str, request: AdmissionRequest, judge: Judge) -> Review:
        log = _log.bind(webhook=webhook, uid=request.uid, kind=request.kind.kind)
        log = log.bind(namespace=request.namespace, name=request.name)
        try:
            async with asyncio.timeout(self._deadline_s):
                judged = await judge(request)
        except TimeoutError:
            log.warning("not judged in time, allowed", deadline_s=self._deadline_s)
            warning = f"fettle: not checked within {self._deadline_s:g} s, so it was allowed"
            return Review(AdmissionResponse(warnings=[warning]), "undecided", ["deadline"])
        except BadInput as error:
            log.warning("no patch fits, allowed without one", reason=str(error))
            return Review(
                AdmissionResponse(warnings=[f"fettle: nothing was injected: {error}"]),
                "inapplicable",
            )
        except Exception:
            log.exception("review failed, allowed")
            return Review(
                AdmissionResponse(
                    warnings=["fettle: internal error, so this was allowed unchecked"]
                ),
                "failed",
            )
        if not judged.answer.allowed:
            log.info("denied", message=judged.answer.message)
        return self._audited(request, judged) if self._audit else judged

    def _audited(self, request: AdmissionRequest, judged: Review) -> Review:
        judged = audited(judged)
        event = event_of(request, judged.answer, judged.result, judged.rules)
        if self._tell is not None and event is not None:
            self._tell(event)
        return judged

    async def _mutate(self, request: AdmissionRequest) -> Review:
        means = self._means()
        view, mutation = await self._caught_up(
            await self._knowing(request),
            lambda view: mutate(request, view, means),
            lambda mutation: mutation.unknown,
        )
        if request.in_part and mutation.patch:
            raise BadInput(
                f"it nests deeper than {lenient.DEEP} levels or is not valid UTF-8, "
                "so a patch could lose data"
            )
        await in_slices(lambda: patches.apply(request.object, mutation.patch))
        self._metrics.unknown_policies.inc(len(mutation.unknown))
        label = view.namespaces.get(request.namespace, {}).get(ANNOTATION)
        if view.synced and label is not None and label in mutation.unknown:
            known = means.policies.names(view.policies)
            self._labels.tell(request.namespace, label, known)
        answer = AdmissionResponse(patch=mutation.patch, warnings=mutation.warnings)
        undecided = [mutation.undecided] if mutation.undecided else []
        return Review(answer, _result(answer, undecided), undecided)

    async def _knowing(self, request: AdmissionRequest) -> View:
        """The newest view, for a claim one that knows the pod it was made for, if that comes."""
        view = self._publisher.view
        made = request.kind.kind == "ResourceClaim" and request.operation == "CREATE"
        if not made or not view.synced or (owner := owner_pod(request)) is None:
            return view
        try:
            async with asyncio.timeout(min(OWNER_WAIT_S, self._deadline_s / 2)):
                while owner not in view.pods:
                    view = await self._publisher.newer_than(view.generation)
        except TimeoutError:
            self._metrics.undecided.labels("mutate", "owner").inc()
        return view

    async def _caught_up(
        self,
        view: View,
        judge: Callable[[View], Awaitable[_Found]],
        absent: Callable[[_Found], Iterable[Hashable]],
    ) -> tuple[View, _Found]:
        """What is found by this view. Where something is absent there that is named: by the first
        of the next views that has it, if one comes in time."""
        found = await judge(view)
        until = asyncio.get_running_loop().time() + min(APPLIED_WAIT_S, self._deadline_s / 2)

        def missing(judged: tuple[View, _Found]) -> Mapping[Hashable, float]:
            view, found = judged
            absent_now = frozenset(absent(found)) if view.synced else None
            return {absent_now: AGAIN_S} if absent_now else {}

        async def newer(judged: tuple[View, _Found]) -> tuple[View, _Found] | None:
            view, _ = judged
            newest = await self._publisher.newer_than(view.generation, until)
            return (newest, await judge(newest)) if newest is not view else None

        waited = await self._patience.wait((view, found), missing, newer)
        return waited.found

    async def _validate(self, request: AdmissionRequest) -> Review:
        _, found = await self._caught_up(
            self._publisher.view,
            lambda view: validate(request, view, self._grounds()),
            lambda found: [f for f in (*found.denied, *found.warned) if f.rule in ABSENCES],
        )
        answer = AdmissionResponse(
            allowed=not found.denied,
            message=f"fettle: {found.message}",
            warnings=[f"fettle: {finding}" for finding in found.warned],
        )
        undecided = [finding.rule for finding in found.undecided]
        rules = [finding.rule for finding in (*found.denied, *found.warned)]
        return Review(answer, _result(answer, undecided), undecided, rules)

    def _count(self, webhook: str, judged: Review, seconds: float) -> None:
        self._metrics.seconds.labels(webhook).observe(seconds)
        self._metrics.reviews.labels(webhook, judged.result).inc()
        for reason in judged.undecided:
            self._metrics.undecided.labels(webhook, reason).inc()


def audited(judged: Review) -> Review:
    """The same, refusing and changing nothing: warnings say what was left undone."""
    answer = judged.answer
    if not answer.allowed:
        would = [f"fettle (audit): would be refused: {answer.message}"]
    else:
        fields = ", ".join(str(operation) for operation in answer.patch)
        would = [f"fettle (audit): would be changed: {fields}"] if fields else []
    if not would:
        return judged
    warnings = [*would, *answer.warnings]
    return judged._replace(
        answer=AdmissionResponse(warnings=warnings), result=f"would_be_{judged.result}"
    )


def _result(answer: AdmissionResponse, undecided: Sequence[str]) -> str:
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


@web.middleware
async def _in_words(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """What is not served gets a sentence too."""
    try:
        return await handler(request)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        answer = _problem(error.status, "only POST /mutate and POST /validate are served here")
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer


def _problem(status: int, sentence: str) -> web.Response:
    body = msgspec.json.encode({"error": f"fettle: {sentence}"})
    return web.Response(status=status, body=body, content_type="application/json")
