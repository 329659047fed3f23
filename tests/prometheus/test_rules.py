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


def test_each_rule_can_be_asked_of_exporters_alone(url: str) -> None:
    """The series here have no namespace, as of exporters that are not in the cluster."""
    for one in ASKED.values():
        for query in filter(None, (one.query, one.until, one.missed)):
            found = ask(url, one.narrowed(query, ["gpu-*", "monitoring"]))
            assert sorted(map(str, found.samples)) == sorted(map(str, ask(url, query).samples))


def test_every_shipped_rule_keeps_whose_word_its_series_are() -> None:
    assert [row.name for row in RULES.metrics.values() if not ASKED[row.name].keeps_origin] == []


@pytest.mark.parametrize(
    ("query", "keeps"),
    [
        ("x > 1", True),
        ("rate(x[5m]) / y > 1 unless z", True),
        ("max by (UUID, namespace) (x) > 1", True),
        ("max(x) by (UUID, namespace) > 1", True),
        ("sum without (pod) (x) > 1", True),
        ("x > on (UUID, namespace) group_left () max by (UUID, namespace) (y)", True),
        ("max by (UUID) (x) > 1", False),
        ("MAX BY (UUID) (x) > 1", False),
        ("max(x) > 1", False),
        ("sum without (namespace) (x) > 1", False),
        ("topk(3, x) > 1", False),
        ("x > ignoring (namespace) y", False),
        ("x > 1 and on (UUID) y > 2", False),
        ("x > scalar(y)", False),
        ("absent(x{UUID='a'})", False),
        ('label_replace(x, "namespace", "gpu-operator", "", "") > 1', False),
    ],
)
def test_a_query_that_mixes_namespaces_is_known(query: str, *, keeps: bool) -> None:
    assert promql.keeps(query, ["namespace"]) is keeps


def test_a_query_of_exporters_alone_has_the_namespaces_in_each_selector() -> None:
    query = 'max by (a) (x{l="{y}"}) > 3e5 and on (b) rate(z[5m] offset 1h) or {__name__=~"v|w"}'
    only = 'namespace=~"|gpu\\\\-.*"'
    assert promql.narrowed(query, ["namespace"], ["gpu-*"]) == (
        f'max by (a) (x{{{only}, l="{{y}}"}}) > 3e5 and on (b) rate(z{{{only}}}[5m] offset 1h)'
        f' or {{{only}, __name__=~"v|w"}}'
    )


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
