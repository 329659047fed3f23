"""The webhook as an aiohttp application: POST /mutate and POST /validate, decode → judge → encode.

The last step of *watch → inventory → health → verdict → answer*. Here, and only here, Fettle fails
open: a review that is not judged in time, or fails, is allowed, counted and logged. Only a body
that is no review gets a 4xx. What was judged is then reduced to what the mode allows: in `observe`
everything is allowed unchanged, without a word, in `steer` nothing is denied. With
`webhook.events`, Events say what would have been done in `observe`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from fettle.api import MAX_JSON_DEPTH
from fettle.cel import Engines
from fettle.cluster import Publisher, View
from fettle.config import Settings, WebhookSettings
from fettle.lint import ABSENCES, Linter, workload_kinds
from fettle.logs import Logger
from fettle.model import ANNOTATION, BadInput, Mode
from fettle.observing import LastRequests
from fettle.pacing import Patience, part, run_within
from fettle.records import Decided, Recorder, Verb
from webhook.cluster_features import ALL_PRESERVED, PreservedFields
from webhook.mutate.annotations import with_configured
from webhook.mutate.mutation import MutationContext, mutate, owner_pod, resolve_for
from webhook.observing import EventSink, RateLimit, ReviewMetrics, UnknownLabels, observed_event
from webhook.patches import apply
from webhook.review import AdmissionRequest, AdmissionResponse, decode, encode, shortened
from webhook.validate import ValidationContext, validate

MAX_BODY_BYTES = 8 * 2**20
"""The API server accepts objects of 3 MiB, and etcd of 1.5 MiB; a review holds up to two."""
MAX_PARTS = 400_000
"""Objects, lists and what stands in them: to read these takes time, and nobody is answered
meanwhile. An object with as many annotations as the API server takes, 52,000, has 156,000 with its
managed fields, and a review may hold two."""
_LONG = 2**18
"""Bytes of a review that is read in time slices."""

OWNER_WAIT_S = 0.25
"""How long the review of a claim waits for the claim's pod, which was created a moment earlier."""
APPLIED_WAIT_S = 0.2
"""How long a review waits for objects that it names and the view lacks.

A file with several objects is applied within milliseconds, so they may be on their way.
"""
AGAIN_S = 2.0
"""After a wait that brought nothing, skip further waits for the same objects for so long.

That is long for a controller that retries, and short for a person who corrects a file.
"""
_MAX_REASON_LENGTH = 300
_MAX_NAME_LENGTH = 253
"""Of what Kubernetes names. A stranger may send anything as a name."""
_RECORDED = {"denied": Decided.DENIED, "patched": Decided.INJECTED}
"""What is recorded of a review, by its result."""

_log = Logger("fettle.webhook")


class Review(NamedTuple):
    """An answer, the result it is counted as, what is undecided, and the rules with findings."""

    answer: AdmissionResponse
    result: str
    undecided: Sequence[str] = ()
    rules: Sequence[str] = ()


Judge = Callable[[AdmissionRequest], Awaitable[Review]]
_Found = TypeVar("_Found")


@dataclass
class ReviewWaits:
    """How long a review waits for others, in seconds."""

    owner_s: float = OWNER_WAIT_S
    applied_s: float = APPLIED_WAIT_S


def make_app(
    publisher: Publisher,
    settings: Settings,
    *,
    registry: CollectorRegistry,
    linter: Linter | None = None,
    preserved: Callable[[], PreservedFields | None] = lambda: ALL_PRESERVED,
    events: EventSink | None = None,
    engines: Engines | None = None,
    incomplete_kinds: Callable[[], frozenset[str]] = frozenset,
    last: LastRequests | None = None,
    recorder: Recorder | None = None,
    to_strangers: bool = False,
    waits: ReviewWaits | None = None,
) -> web.Application:
    """The application; it registers its metrics in `registry`.

    `linter` has all rules; those about devices need an evaluator of selectors, which the default
    has not. `preserved`: the fields of claims and pods that the cluster keeps; None: that is not
    known yet. `events` takes the Events of mode `observe`; None: they are off. `engines` compile
    the requirements of DevicePolicies. `incomplete_kinds` are kinds of which the view may lack
    objects. `last` notes when each webhook was called, `recorder` what was decided.
    `to_strangers`: whoever reaches the port is answered, so texts say nothing of the cluster that
    the object itself does not, and no Event and no record is written on such a word.
    """
    policies, rows = settings.all_policies(), settings.webhook.workloads
    policies = msgspec.structs.replace(policies, tells_names=not to_strangers)
    mutation = MutationContext(policies, with_configured(rows), schedulers=settings.scheduler.names)
    validation = ValidationContext(
        linter or Linter(),
        policies,
        settings.lint.levels,
        engines,
        workload_kinds.with_settings(rows),
        thresholds=settings.health,
        labels_nodes=settings.node_marks.label,
        to_strangers=to_strangers,
    )
    webhook = Webhook(
        publisher,
        settings.webhook,
        ReviewMetrics(registry),
        lambda: mutation._replace(preserved=preserved()),
        lambda: validation._replace(incomplete_kinds=incomplete_kinds()),
        None if to_strangers else events,
        last or last_reviews(),
        None if to_strangers else recorder,
        waits or ReviewWaits(),
    )
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes(
        [web.post("/mutate", webhook.on_mutate), web.post("/validate", webhook.on_validate)]
    )
    return app


def last_reviews() -> LastRequests:
    """When each webhook was last called: not yet."""
    return LastRequests("webhook", ("mutate", "validate"), "the API server has not asked yet")


class Webhook:
    """The two handlers. Each answer comes from one view."""

    def __init__(
        self,
        publisher: Publisher,
        settings: WebhookSettings,
        metrics: ReviewMetrics,
        mutation: Callable[[], MutationContext],
        validation: Callable[[], ValidationContext],
        events: EventSink | None,
        last: LastRequests,
        recorder: Recorder | None,
        waits: ReviewWaits,
    ) -> None:
        self._publisher = publisher
        self._waits = waits
        self._deadline_s = settings.deadline_seconds
        self._metrics = metrics
        self._patience = Patience()
        self._mutation = mutation
        self._validation = validation
        self._events = events
        self._last = last
        self._recording = (
            None if recorder is None else part("records of reviews", recorder.reviewed)
        )
        self._labels = UnknownLabels()
        self._unreadable = RateLimit()

    async def on_mutate(self, http: web.Request) -> web.Response:
        return await self._serve("mutate", http, self._mutate)

    async def on_validate(self, http: web.Request) -> web.Response:
        return await self._serve("validate", http, self._validate)

    async def _serve(self, webhook: str, http: web.Request, judge: Judge) -> web.Response:
        try:
            body = await _body(http)
            began = time.perf_counter()
            long = len(body) > _LONG
            request = await run_within(lambda: decode(body)) if long else decode(body)
        except BadInput as error:
            self._metrics.reviews.labels(webhook, "bad_input").inc()
            reason = str(error)[:_MAX_REASON_LENGTH]
            if (held_back := self._unreadable.admit()) is not None:
                _log.warning(
                    "review not readable", webhook=webhook, reason=reason, held_back=held_back
                )
            return _problem(error.status, reason)
        self._last.at[webhook] = time.perf_counter()
        judged = await self._in_mode(webhook, request, await self._judged(webhook, request, judge))
        if not judged.answer.allowed:
            message = judged.answer.message
            _log.info("denied", webhook=webhook, **_about(request), message=message)
        reply = encode(request.uid, judged.answer, request.about)
        self._count(webhook, judged, time.perf_counter() - began)
        return web.Response(body=reply, content_type="application/json")

    async def _judged(self, webhook: str, request: AdmissionRequest, judge: Judge) -> Review:
        log = _log.bind(webhook=webhook, **_about(request))
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
        return judged

    async def _in_mode(self, webhook: str, request: AdmissionRequest, judged: Review) -> Review:
        """The review as far as the object's mode allows."""
        view, context = self._publisher.view, self._mutation()
        resolved = await run_within(lambda: resolve_for(request, view, context))
        mode = resolved.mode.mode
        decided = _RECORDED.get(judged.result)
        if self._recording is not None and decided is not None and not request.dry_run:
            fields = ", ".join(str(operation) for operation in judged.answer.patch)
            self._recording.attempt(
                Verb(webhook),
                request.kind.kind,
                request.key,
                policy=resolved.policy.name,
                mode=mode,
                decided=decided,
                rules=judged.rules,
                why=judged.answer.message if decided is Decided.DENIED else fields,
            )
        if self._events is not None and mode is Mode.OBSERVE:
            event = observed_event(request, judged.answer, judged.rules)
            if event is not None:
                self._events(event)
        return reduced(judged, mode)

    async def _mutate(self, request: AdmissionRequest) -> Review:
        context = self._mutation()
        view, mutation = await self._caught_up(
            await self._view_with_owner(request),
            lambda view: mutate(request, view, context),
            lambda mutation: mutation.unknown,
        )
        if request.in_part and mutation.patch:
            raise BadInput(
                f"it nests deeper than {MAX_JSON_DEPTH} levels or is not valid UTF-8, "
                "so a patch could lose data"
            )
        await run_within(lambda: apply(request.object, mutation.patch))
        self._metrics.unknown_policies.inc(len(mutation.unknown))
        label = view.namespaces.get(request.namespace, {}).get(ANNOTATION)
        if view.synced and label is not None and label in mutation.unknown:
            known = context.policies.names(view.policies)
            self._labels.report(request.namespace, label, known)
        answer = AdmissionResponse(patch=mutation.patch, warnings=mutation.warnings)
        undecided = [mutation.undecided] if mutation.undecided else []
        return Review(answer, _result(answer, undecided), undecided)

    async def _view_with_owner(self, request: AdmissionRequest) -> View:
        """The newest view; for a claim, the first one with its pod, within a bound."""
        view = self._publisher.view
        made = request.kind.kind == "ResourceClaim" and request.operation == "CREATE"
        if not made or not view.synced or (owner := owner_pod(request)) is None:
            return view
        try:
            async with asyncio.timeout(min(self._waits.owner_s, self._deadline_s / 2)):
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
        """Judge by the newest view. If the object names something that the view lacks, wait
        briefly for a view that has it."""
        found = await judge(view)
        wait_s = min(self._waits.applied_s, self._deadline_s / 2)
        until = asyncio.get_running_loop().time() + wait_s

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
            lambda view: validate(request, view, self._validation()),
            lambda found: [f for f in (*found.denied, *found.warned) if f.rule in ABSENCES],
        )
        answer = AdmissionResponse(
            allowed=not found.denied,
            message=f"fettle: {found.message}",
            reasons=[str(finding) for finding in found.denied],
            warnings=[str(finding) for finding in found.warned],
        )
        undecided = [finding.rule for finding in found.undecided]
        rules = [finding.rule for finding in (*found.denied, *found.warned)]
        return Review(answer, _result(answer, undecided), undecided, rules)

    def _count(self, webhook: str, judged: Review, seconds: float) -> None:
        self._metrics.seconds.labels(webhook).observe(seconds)
        self._metrics.reviews.labels(webhook, judged.result).inc()
        for reason in judged.undecided:
            self._metrics.undecided.labels(webhook, reason).inc()


def reduced(judged: Review, mode: Mode) -> Review:
    """The review as far as a mode allows."""
    answer = judged.answer
    if mode is Mode.OBSERVE:
        changes = not answer.allowed or bool(answer.patch)
        result = f"would_be_{judged.result}" if changes else judged.result
        return judged._replace(
            answer=AdmissionResponse(), result="allowed" if result == "warned" else result
        )
    if mode is Mode.STEER and not answer.allowed:
        would = f"fettle (steer): would be refused: {answer.message.removeprefix('fettle: ')}"
        warnings = [would, *answer.warnings]
        return judged._replace(
            answer=AdmissionResponse(warnings=warnings), result="would_be_denied"
        )
    return judged


def _result(answer: AdmissionResponse, undecided: Sequence[str]) -> str:
    if not answer.allowed:
        return "denied"
    if answer.patch:
        return "patched"
    if undecided:
        return "undecided"
    return "warned" if answer.warnings else "allowed"


async def _body(http: web.Request) -> bytes:
    """The whole body; raises BadInput if it is too large or ends early."""
    too_large = BadInput(
        f"the body is larger than {MAX_BODY_BYTES // 2**20} MiB, more than any review", status=413
    )
    if (http.content_length or 0) > MAX_BODY_BYTES:
        raise too_large
    try:
        body = await http.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise too_large from error
    except web.RequestPayloadError as error:
        raise BadInput(f"the body cannot be read: {error}") from error
    if len(body) > _LONG and sum(map(body.count, (b",", b"[", b"{"))) > MAX_PARTS:
        raise BadInput(
            f"the body has more than {MAX_PARTS} parts, more than any review", status=413
        )
    return body


def _problem(status: int, sentence: str) -> web.Response:
    body = msgspec.json.encode({"error": f"fettle: {sentence}"})
    return web.Response(status=status, body=body, content_type="application/json")


def _about(request: AdmissionRequest) -> dict[str, str]:
    """What log lines say of a review."""
    fields = {
        "uid": request.uid,
        "kind": request.kind.kind,
        "namespace": request.namespace,
        "name": request.name,
    }
    return {name: shortened(value, _MAX_NAME_LENGTH) for name, value in fields.items()}
