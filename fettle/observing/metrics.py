"""Prometheus metrics: aggregates only, never a series per device, node or pod."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from fettle.logs import Logger
from fettle.scheduling import Alarm

_LOG = Logger(__name__)

LATENCY_BUCKETS_S = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
)


_ANY_VERB = ("passed", "echoed", "not_ready", "bad_input", "error")
_DECISIONS = {
    "filter": (*_ANY_VERB, "narrowed", "refused"),
    "prioritize": _ANY_VERB,
    "preempt": (*_ANY_VERB, "narrowed", "refused"),
    "unknown": ("not_found",),
}
"""Results by verb. Each series exists from the start: `increase()` misses one that begins at 1."""


class ExtenderMetrics:
    """What the extender answers, and how fast."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.latency_s = Histogram(
            "fettle_extender_request_seconds",
            "Time to answer an extender request, body read to reply ready.",
            ["verb"],
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        decisions = Counter(
            "fettle_extender_decisions",
            "Extender requests by verb and result (passed, narrowed, refused, echoed, not_ready, "
            "bad_input, error; not_found for paths that are not served, of verb unknown).",
            ["verb", "result"],
            registry=registry,
        )
        nodes = Counter(
            "fettle_extender_nodes",
            "Nodes in filter requests by result (allowed, refused, undecided, unfit); undecided "
            "nodes are allowed too, and unfit ones, which the scheduler's own checks refuse.",
            ["result"],
            registry=registry,
        )
        self._waits = Counter(
            "fettle_extender_waits",
            "Filter requests that waited for a newer view, since the scheduler seemed to know "
            "more, by result (caught_up, in_vain).",
            ["result"],
            registry=registry,
        )
        for result in ("caught_up", "in_vain"):
            self._waits.labels(result)
        self._refused_callers = Counter(
            "fettle_extender_refused_callers",
            "Requests to the extender whose caller's certificate the client CA signed, and that "
            "were refused: by name, or since the client CA has changed (name, client_ca).",
            ["reason"],
            registry=registry,
        )
        for reason in ("name", "client_ca"):
            self._refused_callers.labels(reason)
        # Cached: to find a child by its labels costs more than to count.
        self._decision = lru_cache(maxsize=None)(decisions.labels)
        self._nodes = lru_cache(maxsize=None)(nodes.labels)
        for verb, results in _DECISIONS.items():
            for result in results:
                self._decision(verb, result)
        for result in ("allowed", "refused", "undecided", "unfit"):
            self._nodes(result)

    def decided(self, verb: str, result: str) -> None:
        self._decision(verb, result).inc()

    def refused_caller(self, reason: str) -> None:
        self._refused_callers.labels(reason).inc()

    def waited(self, *, in_vain: bool) -> None:
        self._waits.labels("in_vain" if in_vain else "caught_up").inc()

    def count_nodes(
        self, *, allowed: int = 0, refused: int = 0, undecided: int = 0, rejected: int = 0
    ) -> None:
        """Count the nodes of a filter request by result. The result `unfit`
        means rejected by the scheduler's own checks, and is called so from the next version on.
        """
        counts = {
            "allowed": allowed,
            "refused": refused,
            "undecided": undecided,
            "unfit": rejected,
        }
        for result, count in counts.items():
            if count:
                self._nodes(result).inc(count)


class DecisionMetrics:
    """What is decided, and why. Counted within a second after the decision."""

    def __init__(self, registry: CollectorRegistry) -> None:
        reasons = Counter(
            "fettle_decision_reasons",
            "Decisions by verb, policy and reason code: of filter, preempt and seen, decisions in "
            "which a node was or would have been refused for the reason; of mutate and validate, "
            "the rule; none: without one. Policies that do not exist (any more) are other.",
            ["verb", "policy", "reason"],
            registry=registry,
        )
        self._reason = lru_cache(maxsize=4096)(reasons.labels)

    def count(self, verb: str, policy: str, reasons: Iterable[str], decisions: int) -> None:
        for reason in reasons:
            self._reason(verb, policy, reason).inc(decisions)


class PredictionMetrics:
    """Whether pods get the devices that were predicted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._predictions = Counter(
            "fettle_predictions",
            "Allocated claims of pods that the extender was asked about, by what became of the "
            "prediction (exact, other_sound, refused_device, stale, undecided).",
            ["result"],
            registry=registry,
        )
        for result in ("exact", "other_sound", "refused_device", "stale", "undecided"):
            self._predictions.labels(result)

    def count_result(self, result: str) -> None:
        self._predictions.labels(result).inc()


class BreakerMetrics:
    """Rules that are set aside, by policy and pool. Each change is logged too."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._open = Gauge(
            "fettle_breaker_open",
            "1 where a rule is set aside: it alone would refuse so many devices of this pool that "
            "they are the last choice of pods that have waited.",
            ["policy", "pool", "rule"],
            registry=registry,
        )
        self._alarms: dict[tuple[str, str, str], int] = defaultdict(int)
        """By labels: how many there are."""

    def changed(self, alarm: Alarm, begins: bool) -> None:
        """An alarm begins or ends."""
        rule = str(alarm.cause.source)
        labels = alarm.policy, alarm.pool, rule
        # What one rule says of nodes and of devices, hard or not, are several causes.
        self._alarms[labels] += 1 if begins else -1
        log = _LOG.bind(policy=alarm.policy, pool=alarm.pool, rule=rule)
        if begins:
            self._open.labels(*labels).set(1)
            log.error(
                "breaker: a rule is set aside, since it alone condemns too much of a pool",
                condemned=alarm.condemned,
                devices=alarm.devices,
            )
        elif not self._alarms[labels]:
            self._open.remove(*labels)
            log.warning("breaker: a rule refuses again")


class StewardMetrics:
    """Whether this replica leads, and what it does then."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._leader = Gauge(
            "fettle_steward_leader",
            "1 while this replica holds the steward's lease and works, else 0.",
            registry=registry,
        )
        self._wakeups = Counter(
            "fettle_steward_wakeups",
            "Times that pods which Fettle's refusal kept waiting were woken, some or many at once.",
            registry=registry,
        )
        self._events = Counter(
            "fettle_steward_events",
            "Events about pods, by result (written, counted, held_back, failed).",
            ["result"],
            registry=registry,
        )
        for result in ("written", "counted", "held_back", "failed"):
            self._events.labels(result)
        self._healths = Counter(
            "fettle_steward_health_writes",
            "Times that a DeviceHealth was written.",
            registry=registry,
        )
        self._taints = Counter(
            "fettle_steward_taint_writes",
            "Times that a DeviceTaintRule was written, changed or removed by a device's health.",
            registry=registry,
        )
        self._marks = Counter(
            "fettle_steward_node_writes",
            "Times that a Node was written by its devices' health, by what was (label, condition, "
            "cordon).",
            ["what"],
            registry=registry,
        )
        for what in ("label", "condition", "cordon"):
            self._marks.labels(what)
        self._device_taints = Gauge(
            "fettle_steward_device_taints",
            "Devices by driver and effect of the taint that they should have by their health "
            "(status wanted), and that a rule of Fettle's sets (written). Of the leader only.",
            ["driver", "effect", "status"],
            registry=registry,
        )
        self._pods = Counter(
            "fettle_steward_pod_writes",
            "Pods on failed devices that were marked, unmarked, or evicted.",
            ["what"],
            registry=registry,
        )
        for what in ("marked", "unmarked", "evicted"):
            self._pods.labels(what)

    def recorded(self, result: str) -> None:
        """As `EventRecorder` counts."""
        self._events.labels(result).inc()

    @contextmanager
    def leading(self) -> Iterator[None]:
        """While this replica leads."""
        self._leader.set(1)
        try:
            yield
        finally:
            self._leader.set(0)

    def woke(self) -> None:
        self._wakeups.inc()

    def wrote_health(self) -> None:
        self._healths.inc()

    def wrote_taint(self) -> None:
        self._taints.inc()

    def wrote_node(self, what: str) -> None:
        self._marks.labels(what).inc()

    def device_taints(self, counts: Mapping[tuple[str, str, str], int]) -> None:
        """By driver, effect, and `wanted` or `written`."""
        self._device_taints.clear()
        for labels, count in counts.items():
            self._device_taints.labels(*labels).set(count)

    def wrote_pod(self, what: str) -> None:
        self._pods.labels(what).inc()


_POLL_FAILURES = (
    "unreachable",
    "timeout",
    "unavailable",
    "credentials",
    "redirect",
    "not_prometheus",
    "query",
    "too_large",
    "partial",
)


class AlertMetrics:
    """What Alertmanager's alerts are about: `Alerts` counts here. All zero where another replica
    takes them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._alerts = Counter(
            "fettle_alerts",
            "Alerts taken from Alertmanager, by whether they are about a known device (placed, "
            "unplaced), no rule names them (unknown), or cannot be read (malformed).",
            ["result"],
            registry=registry,
        )
        for result in ("placed", "unplaced", "unknown", "malformed"):
            self._alerts.labels(result)

    def received(self, **results: int) -> None:
        for result, number in results.items():
            self._alerts.labels(result).inc(number)


class ObjectRuleMetrics:
    """How often rows about objects could not be evaluated: `ObjectFeed` counts here."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._failures = Counter(
            "fettle_object_rule_failures",
            "Evaluations of rows about objects that failed, by row.",
            ["rule"],
            registry=registry,
        )

    def failed(self, rule: str) -> None:
        self._failures.labels(rule).inc()


class PrometheusMetrics:
    """How metrics are asked for: `Poller` counts here. All zero where another replica asks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rounds = Counter(
            "fettle_prometheus_rounds",
            "Rounds of queries to Prometheus by result (complete, incomplete).",
            ["result"],
            registry=registry,
        )
        self._failures = Counter(
            "fettle_prometheus_failures",
            "Queries without a full answer by reason (unreachable, timeout, unavailable, "
            "credentials, redirect, not_prometheus, query, too_large, partial): /readyz?verbose "
            "says which rule and why.",
            ["reason"],
            registry=registry,
        )
        self._samples = Counter(
            "fettle_prometheus_samples",
            "Samples read by what they are (firing, odd: without a usable number).",
            ["kind"],
            registry=registry,
        )
        self._seconds = Histogram(
            "fettle_prometheus_round_seconds",
            "Time of a round, waiting for Prometheus included.",
            buckets=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
            registry=registry,
        )
        for result in ("complete", "incomplete"):
            self._rounds.labels(result)
        for reason in _POLL_FAILURES:
            self._failures.labels(reason)
        for kind in ("firing", "odd"):
            self._samples.labels(kind)

    def round_ended(self, seconds: float, *, complete: bool) -> None:
        self._rounds.labels("complete" if complete else "incomplete").inc()
        self._seconds.observe(seconds)

    def failed(self, reason: str) -> None:
        self._failures.labels(reason).inc()

    def read(self, samples: int, odd: int) -> None:
        self._samples.labels("firing").inc(samples)
        self._samples.labels("odd").inc(odd)


class CertificateEnd(NamedTuple):
    """Until when a certificate is valid, in Unix seconds; `of`: `server` or `client CA`."""

    listener: str
    of: str
    ends_at: float


class CertificateMetrics:
    """When certificates of listeners and their client CAs expire; none for plain HTTP."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ends: dict[tuple[str, str], Callable[[], float]] = {}
        self._expiration = Gauge(
            "fettle_certificate_expiration_timestamp_seconds",
            "When the certificate that a listener serves expires, in Unix seconds.",
            ["listener"],
            registry=registry,
        )

        self._client_ca_expiration = Gauge(
            "fettle_client_ca_expiration_timestamp_seconds",
            "When the last certificate of the client CA expires, in Unix seconds.",
            ["listener"],
            registry=registry,
        )

    def serves(self, listener: str, expires_at: Callable[[], float]) -> None:
        """`expires_at` is called at each scrape."""
        self._expiration.labels(listener).set_function(expires_at)
        self._ends[listener, "server"] = expires_at

    def trusts(self, listener: str, expires_at: Callable[[], float]) -> None:
        """`expires_at` of the client CA is called at each scrape."""
        self._client_ca_expiration.labels(listener).set_function(expires_at)
        self._ends[listener, "client CA"] = expires_at

    def ends(self) -> list[CertificateEnd]:
        """Of all of them."""
        return [CertificateEnd(*of, ends_at()) for of, ends_at in sorted(self._ends.items())]


class ReadyMetrics:
    """Whether this process is ready; `ready` is called at each scrape."""

    def __init__(self, registry: CollectorRegistry, ready: Callable[[], bool]) -> None:
        Gauge(
            "fettle_ready",
            "1 while this process is ready (/readyz answers 200), else 0: the extender answers "
            "errors instead of verdicts then, and /readyz?verbose says why.",
            registry=registry,
        ).set_function(ready)


class ReloadMetrics:
    """Whether the settings in use are the newest; `successful` is called at each scrape."""

    def __init__(self, registry: CollectorRegistry, successful: Callable[[], bool]) -> None:
        Gauge(
            "fettle_settings_last_reload_successful",
            "1 if the settings in use are those of the files, 0 if newer ones could not be used: "
            "the log and /readyz?verbose say why.",
            registry=registry,
        ).set_function(successful)
        Gauge(
            "fettle_settings_last_reload_success_timestamp_seconds",
            "When the settings in use were read, in Unix seconds.",
            registry=registry,
        ).set_to_current_time()


def count_restarts(registry: CollectorRegistry, number: int) -> None:
    """`number` is how often the serving process was started again after a crash."""
    Counter(
        "fettle_serving_process_restarts_total",
        "Times that the serving process was started again at once after a crash, since "
        "fettle serve began: the log and /readyz?verbose say how the last one ended.",
        registry=registry,
    ).inc(number)


def make_registry() -> CollectorRegistry:
    """A registry with metrics of the process."""
    # The series of creation times would be a third of all, and equal the start of the process.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
