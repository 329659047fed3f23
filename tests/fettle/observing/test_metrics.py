import time

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from structlog.testing import capture_logs

from fettle.cluster import Publisher, Shortage, SourceStatus
from fettle.model import Source, SourceKind
from fettle.observing.collectors import SelectorMetrics, ViewMetrics
from fettle.observing.metrics import (
    BreakerMetrics,
    ExtenderMetrics,
    PredictionMetrics,
    StewardMetrics,
    make_registry,
)
from fettle.scheduling import Alarm, Cause
from tests.fettle import building as b


def scrape(publisher: Publisher) -> str:
    registry = CollectorRegistry()
    ExtenderMetrics(registry)
    registry.register(ViewMetrics(publisher))
    return generate_latest(registry).decode()


def test_devices_are_counted_by_state_and_never_by_name() -> None:
    publisher = Publisher()
    node = b.node("n1", gpus=8, units={"GPU-1": 0.1}, pools=(b.pool(b.device("gpu-0", 0.5)),))
    publisher.publish(b.view(node), frozenset({"n1"}))
    text = scrape(publisher)
    assert f'fettle_devices{{kind="{b.RESOURCE}",state="Healthy"}} 7.0' in text
    assert f'fettle_devices{{kind="{b.RESOURCE}",state="Unhealthy"}} 1.0' in text
    assert f'fettle_devices{{kind="{b.DRIVER}",state="Degraded"}} 1.0' in text
    assert "GPU-1" not in text
    assert "n1" not in text


def test_only_units_that_may_be_allocated_are_counted() -> None:
    publisher = Publisher()
    dead = {"GPU-1": 0.1, "GPU-2": 0.1}
    node = b.node("n1", gpus=8, units=dead, withdrawn=frozenset({"GPU-1"}), shared=2)
    publisher.publish(b.view(node), frozenset({"n1"}))
    text = scrape(publisher)
    assert f'fettle_devices{{kind="{b.RESOURCE}",state="Healthy"}} 6.0' in text
    assert f'fettle_devices{{kind="{b.RESOURCE}",state="Unhealthy"}} 2.0' in text


def test_a_network_device_is_counted_once_however_many_nodes_see_it() -> None:
    publisher = Publisher()
    fabric = b.pool(b.device("fab-0", 0.5, local=""), b.device("fab-1", local=""))
    names = [f"n{i}" for i in range(8)]
    publisher.publish(b.view(*(b.node(n, pools=(fabric,)) for n in names)), frozenset(names))
    text = scrape(publisher)
    assert f'fettle_devices{{kind="{b.DRIVER}",state="Degraded"}} 1.0' in text
    assert f'fettle_devices{{kind="{b.DRIVER}",state="Healthy"}} 1.0' in text


def test_the_views_generation_and_the_quarantined_objects_are_exported() -> None:
    publisher = Publisher()
    publisher.publish(b.view(quarantined={"Node x": "wrong"}), frozenset())
    text = scrape(publisher)
    assert "fettle_view_generation 1.0" in text
    assert "fettle_quarantined_objects 1.0" in text


def test_ages_of_sources_do_not_depend_on_the_wall_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher, registry, now = Publisher(), CollectorRegistry(), time.monotonic()
    publisher.sources["Node"] = SourceStatus("Node", True, True, now - 20)
    publisher.sources["Pod"] = SourceStatus("Pod", True, True, now - 60)
    publisher.sources["ResourceQuota"] = SourceStatus("ResourceQuota", False, True, 0.0)
    publisher.sources["DeviceTaintRule"] = SourceStatus("DeviceTaintRule", True, False, now - 90)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    registry.register(ViewMetrics(publisher))

    def age(source: str) -> float | None:
        return registry.get_sample_value("fettle_source_age_seconds", {"source": source})

    assert (age("ResourceQuota"), age("DeviceTaintRule")) == (None, None)
    assert age("Node") == pytest.approx(20, abs=5)
    assert age("Pod") == pytest.approx(60, abs=5)
    assert registry.get_sample_value("fettle_view_age_seconds") == pytest.approx(60, abs=5)


def test_latencies_begin_at_a_tenth_of_a_millisecond() -> None:
    registry = CollectorRegistry()
    ExtenderMetrics(registry).latency_s.labels("filter").observe(0.00005)
    text = generate_latest(registry).decode()
    assert 'fettle_extender_request_seconds_bucket{le="0.0001",verb="filter"} 1.0' in text


def test_each_start_of_the_selectors_worker_is_counted() -> None:
    registry = CollectorRegistry()
    registry.register(SelectorMetrics(lambda: 3))
    assert registry.get_sample_value("fettle_selector_worker_starts_total") == 3


def test_a_breaker_says_for_which_policy_and_pool_it_sets_which_rule_aside() -> None:
    rule = Cause(Source(SourceKind.CONDITION, "Bad"))
    registry = CollectorRegistry()
    breakers = BreakerMetrics(registry)
    with capture_logs() as logs:
        for policy, begins in (("strict", True), ("mild", True), ("strict", False)):
            breakers.changed(Alarm(policy, "gpu.example.com", rule, 25, 100, 0.2), begins)
    told = [
        (log["log_level"], log["event"].removeprefix("breaker: ").partition(",")[0], log["policy"])
        for log in logs
    ]
    assert told == [
        ("error", "a rule is set aside", "strict"),
        ("error", "a rule is set aside", "mild"),
        ("warning", "a rule refuses again", "strict"),
    ]
    assert {log["pool"] for log in logs} == {"gpu.example.com"}
    assert {log["rule"] for log in logs} == {"condition Bad"}
    labels = {"pool": "gpu.example.com", "rule": "condition Bad"}
    assert registry.get_sample_value("fettle_breaker_open", {**labels, "policy": "mild"}) == 1
    assert registry.get_sample_value("fettle_breaker_open", {**labels, "policy": "strict"}) is None


def counters(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """The series of a counter, by the values of their labels."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def test_counters_are_exported_before_anything_happens() -> None:
    """Otherwise `increase()` misses the first time."""
    registry = CollectorRegistry()
    metrics = ExtenderMetrics(registry)
    PredictionMetrics(registry)
    decisions = counters(registry, "fettle_extender_decisions_total")
    assert set(decisions.values()) == {0.0}
    assert {verb for verb, _ in decisions} == {"filter", "prioritize", "preempt", "unknown"}
    assert ("filter", "not_ready") in decisions
    assert ("prioritize", "refused") not in decisions
    nodes = counters(registry, "fettle_extender_nodes_total")
    assert nodes == {(r,): 0.0 for r in ("allowed", "refused", "undecided", "unfit")}
    predictions = counters(registry, "fettle_predictions_total")
    assert ("undecided",) in predictions
    assert len(predictions) == 5
    metrics.decided("filter", "not_ready")
    metrics.count_nodes(allowed=1, refused=0, undecided=2, rejected=0)
    assert counters(registry, "fettle_extender_nodes_total").keys() == nodes.keys()
    assert counters(registry, "fettle_extender_decisions_total").keys() == decisions.keys()


def test_leadership_and_wake_ups_are_exported() -> None:
    registry = CollectorRegistry()
    steward = StewardMetrics(registry)
    assert registry.get_sample_value("fettle_steward_leader") == 0
    assert registry.get_sample_value("fettle_steward_wakeups_total") == 0
    with steward.leading():
        steward.woke()
        assert registry.get_sample_value("fettle_steward_leader") == 1
    assert registry.get_sample_value("fettle_steward_leader") == 0
    assert registry.get_sample_value("fettle_steward_wakeups_total") == 1


def test_no_series_has_the_creation_time_of_a_counter() -> None:
    registry = make_registry()
    ExtenderMetrics(registry)
    assert "_created" not in generate_latest(registry).decode()


def test_lost_devices_are_counted_once_they_have_been_missing_for_long_and_never_by_node() -> None:
    publisher, now = Publisher(), 1000.0
    lost = Shortage(b.RESOURCE, 8, 5, "its peers", since=0.0, lost_at=600.0)
    recent = Shortage(b.DRIVER, 8, 7, "its peers", since=900.0, lost_at=1500.0)
    amount = Shortage("a/memory", 80_000, 0, "its peers", since=0.0, lost_at=600.0)
    lacking = msgspec.structs.replace(b.node("n1", gpus=5), missing=(lost, recent, amount))
    publisher.publish(b.view(lacking, b.node("n2", gpus=8)), frozenset({"n1", "n2"}))
    registry = CollectorRegistry()
    registry.register(ViewMetrics(publisher, lambda: now))
    text = generate_latest(registry).decode()
    assert f'fettle_devices_missing{{kind="{b.RESOURCE}"}} 3.0' in text
    assert f'fettle_devices_missing{{kind="{b.DRIVER}"' not in text
    assert "a/memory" not in text
    assert "n1" not in text
    now = 1500.0
    assert f'fettle_devices_missing{{kind="{b.DRIVER}"}} 1.0' in generate_latest(registry).decode()
