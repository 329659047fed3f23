"""Every shipped rule, on a real Prometheus: it parses, fires for what is a fault, and for nothing
that is near it."""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fettle.client import Answer, Prometheus
from fettle.config import PrometheusSettings
from fettle.health import load_rules, metrics
from fettle.health.signals import promql
from tests.prometheus.fleets import labels
from tests.prometheus.series import CASES, FIRST_XIDS, HOUR, MINUTE, device_labels
from tests.prometheus.server import PROMTOOL, Recording, every, load, needs_prometheus, running

pytestmark = [needs_prometheus, pytest.mark.prometheus]
RULES = load_rules()
ASKED = metrics.queries(RULES)
END = time.time() - MINUTE


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    recording = Recording()
    times = sorted({*every(30, END - 70 * MINUTE, END), *every(300, END - 26 * HOUR, END)})
    for rule, case in (*CASES.items(), *((f"{r}-first", c) for r, c in FIRST_XIDS.items())):
        for number in range(6):
            for name, shape in (case.sound if number else case.faulty).items():
                more = {} if name.endswith("GPU_TEMP") else case.labels
                points = [(at, value) for at in times if (value := shape(END - at)) is not None]
                recording.add(name, {**device_labels(rule, number), **more}, points)
    for number, ends in ((0, END - 20 * MINUTE), (1, END)):
        recording.add(
            "DCGM_FI_DEV_GPU_TEMP",
            labels("goes-silent", number),
            [(at, 40.0) for at in every(60, END - 2 * HOUR, ends)],
        )
    folder = tmp_path_factory.mktemp("prometheus")
    load(recording, folder)
    with running(folder) as at:
        yield at


def ask(url: str, query: str) -> Answer:
    async def answer() -> Answer:
        async with Prometheus(PrometheusSettings(url=url)) as prometheus:
            return await prometheus.query(query, END)

    return asyncio.run(answer())


def test_every_shipped_rule_has_a_case() -> None:
    assert CASES.keys() == RULES.metrics.keys()


@pytest.mark.parametrize("rule", RULES.metrics)
def test_a_rule_fires_for_the_fault_and_not_for_what_is_near_it(url: str, rule: str) -> None:
    answer = ask(url, ASKED[rule].query)
    own = {n: device_labels(rule, n) for n in range(6)}
    fires = {
        number
        for sample in answer.samples
        for number, named in own.items()
        if named.items() <= sample.labels.items()
        or (rule.startswith("node-") and sample.labels.get("node") == named["node"])
    }
    assert (fires, answer.odd, answer.warnings) == ({0}, (), ())


@pytest.mark.parametrize("rule", FIRST_XIDS)
def test_the_first_xid_of_a_gpu_fires_though_there_was_no_series_before(
    url: str, rule: str
) -> None:
    answer = ask(url, ASKED[rule].query)
    fires = {s.labels["UUID"] for s in answer.samples if "-first-" in s.labels["UUID"]}
    assert fires == {device_labels(f"{rule}-first", 0)["UUID"]}


@pytest.mark.parametrize("rule", [name for name, row in RULES.metrics.items() if row.until])
def test_what_keeps_a_latched_fault_can_be_asked(url: str, rule: str) -> None:
    assert ask(url, ASKED[rule].until).warnings == ()


@pytest.mark.parametrize("rule", RULES.metrics)
def test_a_rule_needs_the_metrics_that_its_query_names(url: str, rule: str) -> None:
    answer = ask(url, metrics.presence({n for group in ASKED[rule].names for n in group}))
    present = {s.labels["__name__"] for s in answer.samples}
    assert all(names & present for names in ASKED[rule].names)


def test_a_device_whose_series_have_ended_is_missing_and_one_that_never_had_any_is_not(
    url: str,
) -> None:
    answer = ask(url, ASKED["dcgm-missing"].query)
    assert [s.labels["UUID"] for s in answer.samples] == ["GPU-goes-silent-0"]


def test_names_of_metrics_are_found_wherever_they_stand() -> None:
    query = (
        'sum by (a, b) (rate(x_total{l="y(z)"}[5m] offset 1h))'
        " / on (c) group_left (d) (n > bool 3e5) and abs(m:n)"
    )
    assert promql.metric_names(query) == {"x_total", "n", "m:n"}


def test_prometheus_takes_the_rules_as_alerting_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(metrics.alerting_rules(RULES)))
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(RULES.metrics)} rules found" in done.stdout
