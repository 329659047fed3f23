"""What the webhook counts. No label holds a name that a tenant chooses."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_ANY = ("allowed", "warned", "undecided", "failed", "bad_input")
_RESULTS = {
    "mutate": (*_ANY, "patched", "would_be_patched", "inapplicable"),
    "validate": (*_ANY, "denied", "would_be_denied"),
}
"""Results by webhook. Each is a series from the start: `increase()` misses what begins at 1."""
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """Registered in the given registry, once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reviews = Counter(
            "fettle_webhook_reviews_total",
            "Admission reviews by webhook and result: allowed, patched, warned, denied, undecided, "
            "would_be_patched and would_be_denied (audit mode), inapplicable (a patch that did not "
            "fit), failed (allowed after an internal error), bad_input (no review could be read)",
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
        for webhook, results in _RESULTS.items():
            self.seconds.labels(webhook)
            for result in results:
                self.reviews.labels(webhook, result)


class EventMetrics:
    """Outcomes of audit-mode Events. Registered in the given registry, once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Counter(
            "fettle_webhook_events_total",
            "Events of audit mode: written, counted (added to an existing one), held_back "
            "(too many in a namespace), failed",
            ["result"],
            registry=registry,
        )
        for result in ("written", "counted", "held_back", "failed"):
            self._events.labels(result)

    def count(self, result: str) -> None:
        self._events.labels(result).inc()
