"""Prometheus metrics that are counted at each scrape, from what other parts keep."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fettle.cluster import Publisher
from fettle.model import State
from fettle.observing.health_changes import count_devices, count_lost
from fettle.pacing import KeptParts


class ViewMetrics(Collector):
    """The newest view, counted at each scrape."""

    def __init__(self, publisher: Publisher, clock: Callable[[], float] = time.time) -> None:
        """`clock` is in Unix seconds, as times in the view."""
        self._publisher = publisher
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        view, ages = self._publisher.view, self._ages()
        yield GaugeMetricFamily(
            "fettle_view_generation", "Views published since start.", value=view.generation
        )
        yield GaugeMetricFamily(
            "fettle_view_age_seconds",
            "Seconds since the last contact with the source that has been quiet the longest.",
            value=max(ages.values(), default=0.0),
        )
        age = GaugeMetricFamily(
            "fettle_source_age_seconds", "Seconds since the last contact.", labels=["source"]
        )
        for name, age_s in ages.items():
            age.add_metric([name], age_s)
        yield age
        yield GaugeMetricFamily(
            "fettle_quarantined_objects",
            "Objects that cannot be read at present.",
            value=len(view.quarantined),
        )
        cut = CounterMetricFamily(
            "fettle_cut_objects",
            "Objects that were too long to be read whole, by kind.",
            labels=["source"],
        )
        for source in self._publisher.sources.values():
            cut.add_metric([source.name], source.cut)
        yield cut
        yield self._states()
        yield self._missing()

    def _ages(self) -> dict[str, float]:
        now, sources = time.monotonic(), self._publisher.sources.values()
        return {s.name: now - s.contact_at for s in sources if s.synced and s.served}

    def _states(self) -> Metric:
        counts = count_devices(self._publisher.view)
        devices = GaugeMetricFamily(
            "fettle_devices",
            "Devices by kind and state; of device plugins, the units that may be allocated.",
            labels=["kind", "state"],
        )
        for kind in sorted({k for k, _ in counts}):
            for state in State:
                devices.add_metric([kind, state], counts[kind, state])
        return devices

    def _missing(self) -> Metric:
        lost = count_lost(self._publisher.view, self._clock())
        missing = GaugeMetricFamily(
            "fettle_devices_missing",
            "Devices that nodes have had fewer than expected for health.missingAfterSeconds, by "
            "kind.",
            labels=["kind"],
        )
        for kind, number in sorted(lost.items()):
            missing.add_metric([kind], number)
        return missing


class SelectorMetrics(Collector):
    """The worker process that evaluates selectors, counted at each scrape."""

    def __init__(self, starts: Callable[[], int]) -> None:
        self._starts = starts

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "fettle_selector_worker_starts",
            "Processes started to evaluate selectors; a second one replaces one that ended.",
            value=self._starts(),
        )


class PartMetrics(Collector):
    """How often each part of this process failed, read at each scrape."""

    def __init__(self, parts: KeptParts) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        errors = CounterMetricFamily(
            "fettle_part_errors",
            "Errors in what this process keeps doing, by part: each was logged, and what failed is "
            "tried again. /readyz?verbose says what fails now.",
            labels=["part"],
        )
        for part in self._parts:
            errors.add_metric([part.name], part.errors)
        yield errors


class PolicyMetrics(Collector):
    """Requirements of policies that are ignored, counted at each scrape."""

    def __init__(self, ignored_requirements: Callable[[], int]) -> None:
        self._ignored_requirements = ignored_requirements

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "fettle_ignored_requirements",
            "Requirements of policies that are ignored, since they do not compile.",
            value=self._ignored_requirements(),
        )


class RiskMetrics(Collector):
    """Pods that are on what their policy refuses, counted at each scrape."""

    def __init__(self, count: Callable[[], Mapping[tuple[str, bool], int]]) -> None:
        """`count`: how many pods, by policy and whether it is certain."""
        self._count = count

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "fettle_pods_at_risk",
            "Pods on devices or nodes that their own policy refuses now, by policy, and by whether "
            "they certainly are or may be (use: certain, possible).",
            labels=["policy", "use"],
        )
        counts = self._count()
        for policy in sorted({policy for policy, _ in counts}):
            for use, certain in (("certain", True), ("possible", False)):
                family.add_metric([policy, use], counts.get((policy, certain), 0))
        yield family


class OverlookedMetrics(Collector):
    """Resources that schedulers do not ask about, counted at each scrape: few, unless the cluster
    is misconfigured."""

    def __init__(self, overlooked: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """`overlooked`: each scheduler with a resource."""
        self._overlooked = overlooked

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "fettle_overlooked_resources",
            "Resources that a scheduler placed pods for without asking, 1 each; "
            "/readyz?verbose says what to do.",
            labels=["scheduler", "resource"],
        )
        for scheduler, resource in self._overlooked():
            family.add_metric([scheduler, resource], 1)
        yield family
