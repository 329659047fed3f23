"""What the webhook reports to operators: metrics, log lines on what no warning reaches, and in mode
`observe` Events on what it would have refused, changed or warned of.

No label holds a name that a tenant chooses, and no tenant can fill the log. Beside the flow *watch
→ inventory → health → verdict → answer*: no answer depends on it. An Event also reaches people who
see no warnings because a controller creates their pods; the answer says nothing of it, since in
`observe` everything is as if Fettle were not there.
"""

import time
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fettle.api.raw import mapping, text
from fettle.client import Event, Regarding
from fettle.cluster import Publisher, View
from fettle.lint import unknown_rules
from fettle.logs import Logger
from fettle.model import ANNOTATION
from webhook.review import AdmissionRequest, AdmissionResponse

MAX_LOGGED_LABELS = 100
"""Namespace labels that are logged: whoever may label a namespace must not fill the disk."""

_RESULTS_OF_BOTH = ("allowed", "warned", "undecided", "failed", "bad_input")
_RESULTS = {
    "mutate": (*_RESULTS_OF_BOTH, "patched", "would_be_patched", "inapplicable"),
    "validate": (*_RESULTS_OF_BOTH, "denied", "would_be_denied"),
}
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5)

_LOG = Logger("fettle.webhook")
EventSink = Callable[[Event], object]
"""Takes an Event. It must return at once: a review waits for it."""

REPORTING_CONTROLLER = "fettle.dev/webhook"
"""The `reportingController` of the webhook's Events."""
REFUSED = "WouldBeRefused"
"""An Event of mode `observe`: the object, or one of a controller's, would have been denied.

What to do: Mend the manifest before you enforce, or loosen the rule in the
[policy](policies.md#trying-it-out)."""
CHANGED = "WouldBeChanged"
"""An Event of mode `observe`: something would have been injected.

What to do: Nothing, if you want [what is injected](policies.md#what-is-injected-and-where)."""
WARNED = "Warned"
"""An Event of mode `observe`: the author would have been warned.

What to do: `fettle lint` says the same ([rules](rules.md))."""


class ReviewMetrics:
    """Counts admission reviews. Make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reviews = Counter(
            "fettle_webhook_reviews_total",
            "Admission reviews by webhook and result: allowed, patched, warned, denied, undecided, "
            "would_be_patched and would_be_denied (what the mode does not allow), inapplicable (a "
            "patch that did not fit), failed (allowed after an internal error), bad_input (no "
            "review could be read)",
            ["webhook", "result"],
            registry=registry,
        )
        self.undecided = Counter(
            "fettle_webhook_undecided_total",
            "What could not be judged, and was therefore allowed: by rule, or deadline, namespace, "
            "owner (the pod of a claim), gates (what the cluster keeps of claims)",
            ["webhook", "reason"],
            registry=registry,
        )
        self.unknown_policies = Counter(
            "fettle_webhook_unknown_policies_total",
            "Policy names in admitted objects that match no policy",
            registry=registry,
        )
        self.seconds = Histogram(
            "fettle_webhook_review_seconds",
            "Time from the whole request to its answer",
            ["webhook"],
            buckets=_SECONDS,
            registry=registry,
        )
        # Each series exists from the start: `increase()` misses one that begins at 1.
        for webhook, results in _RESULTS.items():
            self.seconds.labels(webhook)
            for result in results:
                self.reviews.labels(webhook, result)


class EventMetrics:
    """Counts what became of the Events of mode `observe`. Make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Counter(
            "fettle_webhook_events_total",
            "Events of mode observe: written, counted (added to an existing one), held_back "
            "(too many in a namespace), failed",
            ["result"],
            registry=registry,
        )
        for result in ("written", "counted", "held_back", "failed"):
            self._events.labels(result)

    def count(self, result: str) -> None:
        self._events.labels(result).inc()


class StoredPolicyRules:
    """Logs and counts rule ids in stored DevicePolicies that Fettle does not have.

    Validation warns of them when a policy is written. But a policy may have been stored before
    Fettle was installed, or by a version that had the rule.
    """

    def __init__(self, publisher: Publisher, registry: CollectorRegistry) -> None:
        self._publisher = publisher
        self._ignored = Gauge(
            "fettle_webhook_ignored_rules",
            "Ids in stored DevicePolicies' validation.rules that match no rule",
            registry=registry,
        )
        self._logged: frozenset[tuple[str, str]] = frozenset()
        self._checked: object = None

    async def run(self) -> None:
        """Check the policies of each new view, until cancelled."""
        await self._publisher.keep_looking("stored policies", self._look)

    async def _look(self, view: View) -> None:
        if view.policies is not self._checked:
            self._check(view)
            self._checked = view.policies

    def _check(self, view: View) -> None:
        ignored = frozenset(
            (name, rule) for name, policy in view.policies.items() for rule in unknown_rules(policy)
        )
        for name, rule in sorted(ignored - self._logged):
            _LOG.warning("a policy names a rule that does not exist", policy=name, rule=rule)
        self._logged = ignored
        self._ignored.set(len(ignored))


class UnknownLabels:
    """Logs namespaces whose label names a policy that does not exist, each pair once.

    A warning would reach only the authors of pods, who did not write the label.
    """

    def __init__(self) -> None:
        self._logged: set[tuple[str, str]] = set()

    def report(self, namespace: str, name: str, known: Sequence[str]) -> None:
        if (namespace, name) in self._logged or len(self._logged) >= MAX_LOGGED_LABELS:
            return
        self._logged.add((namespace, name))
        _LOG.warning(
            f"a namespace's label {ANNOTATION} names a policy that does not exist: pods there that "
            "name no policy themselves get the cluster's default; correct the label, or apply the "
            "policy",
            namespace=namespace,
            policy=name,
            known=known,
        )


class RateLimit:
    """Admits one log line each `every_s` seconds, for lines that anybody can cause."""

    def __init__(self, every_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._next_at = float("-inf")
        self._held_back = 0

    def admit(self) -> int | None:
        """How many lines were held back since the last one; None: hold this one back too."""
        now = self._clock()
        if now < self._next_at:
            self._held_back += 1
            return None
        held_back, self._held_back = self._held_back, 0
        self._next_at = now + self._every_s
        return held_back


def observed_event(
    request: AdmissionRequest, answer: AdmissionResponse, rules: Sequence[str]
) -> Event | None:
    """The Event of a review that would have got this answer; None if that says nothing, or for a
    dry run."""
    fields = ", ".join(str(operation) for operation in answer.patch)
    changes = [f"would be changed: {fields}"] if fields else []
    refusals = [f"would be refused: {reason}" for reason in answer.reasons]
    said = [*refusals, *changes, *answer.warnings]
    if not said or request.dry_run:
        return None
    name = text(mapping(request.object, "metadata").get("generateName")) or "without a name"
    called = f"{request.kind.kind} {request.name or name}"
    return Event(
        regarding=_regarding(request),
        reason=REFUSED if refusals else CHANGED if changes else WARNED,
        action="Review",
        note=f"{called}: {' | '.join(said)}",
        # A controller that retries creates objects of many names: the same findings on one kind
        # are one Event, which is counted.
        series_key=" ".join((request.kind.kind, *sorted(set(rules)))),
        type="Normal" if changes else "Warning",
    )


def _regarding(request: AdmissionRequest) -> Regarding:
    metadata = mapping(request.object, "metadata")
    if request.operation == "CREATE" and request.namespace:
        # The object may never exist, so the Event is recorded on its namespace.
        return Regarding("v1", "Namespace", request.namespace, request.namespace)
    return Regarding(
        request.kind.api_version,
        request.kind.kind,
        request.name,
        request.namespace,
        text(metadata.get("uid")),
    )
