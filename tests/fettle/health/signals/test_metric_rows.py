"""Rows about metrics in a rules file: mistakes are named with their row and field."""

from pathlib import Path

import pytest

from fettle.api import Sample
from fettle.health import load_rules, metrics
from fettle.model import SettingsError, UnitId

ROW = {
    "name": "hot",
    "exporter": "dcgm",
    "query": "max by ($device) (x) > 1",
    "family": "thermal",
    "weight": "0.3",
    "source": "us",
}


def rules_with(folder: Path, **changed: str) -> Path:
    file = folder / "rules.yaml"
    row = "".join(f"    {key}: {value}\n" for key, value in (ROW | changed).items() if value)
    file.write_text("metrics:\n  -" + row[3:])
    return file


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"query": "'max by ($device) (x > 1'"}, "query: it is no PromQL: unclosed left"),
        ({"query": "'x[5m]) > 1'"}, "query: it is no PromQL: unexpected right parenthesis ')'"),
        ({"query": "'x{a=\"b} > 1'"}, "query: "),
        ({"query": "'max by ($gpu) (x)'"}, "query: $gpu stands for nothing; $device and $peers"),
        ({"query": ""}, "missing required field `query`"),
        ({"query": "rate(x) > 1"}, "expected type matrix in call to function 'rate', got vector"),
        ({"query": "$device > 1"}, "query: it is no PromQL"),
        ({"query": "x > > 1"}, "query: it is no PromQL; the page of Prometheus on which you ask"),
        ({"query": "rat(foo[5m]) > 1"}, "query: there is no function rat; write rate"),
        ({"query": "frobnicate(foo) > 1"}, "query: there is no function frobnicate"),
        ({"query": "max by ($device) (x)"}, "query: it has no threshold, so every series would"),
        ({"query": "x > bool 5"}, "query: it has no threshold"),
        ({"query": "'x{a=\"b > c\"}'"}, "query: it has no threshold"),
        ({"query": "max by ($device) (x) >= bool 90"}, "query: it has no threshold"),
        ({"query": "max(x) > 90"}, "query: it drops the labels that say which device a series is"),
        ({"query": "max by (namespace) (x) > 90"}, "such as UUID; keep them with `by ($device)`"),
        ({"query": "max by (gpu) (x) > 90"}, "query: it drops the labels"),  # of which node?
        ({"query": "max by (hostname) (x) > 90"}, "query: it drops the labels"),
        ({"query": "60 * sum(rate(x[5m])) > 90"}, "query: it drops the labels"),
        ({"query": "max by (UUID) (x) > 9 or max(y) > 9"}, "query: it drops the labels"),
        ({"query": "max(max by (UUID) (x)) > 9"}, "query: it drops the labels"),
        ({"query": "x / on (namespace) y > 9"}, "query: it drops the labels"),
        ({"query": "sum without (UUID, gpu, pci_bus_id) (x) > 9"}, "query: it drops the labels"),
        ({"exporter": "node-exporter", "query": "sum by (device) (x) > 9"}, "such as node; keep"),
        ({"exporter": "pods", "query": "sum by (pod) (x) > 9"}, "such as pod; keep them"),
        ({"until": "max(x) > 0", "kind": "latched"}, "until: it drops the labels"),
        ({"text": "'{vlaue} °C'"}, "text: nothing stands for {vlaue}; write {value}"),
        ({"text": "'{colour}'"}, "{colour}: the query keeps no label of that name"),
        ({"exporter": "dcmg"}, "unknown exporter 'dcmg'; expected one of dcgm, amd, node-exporter"),
        ({"kind": "decaying"}, "kind: the fault of a metric stands: level, latched or unknown"),
        ({"kind": "lached"}, "expected one of latched, level, decaying, unknown"),
        ({"graded": "{1: 0.1}", "weight": ""}, "graded: two values with their weights"),
        ({"graded": "{1: 0.1, 2: 0.3}"}, "graded: two values with their weights, and no weight"),
        ({"graded": "{1: 0.1, 2: 3}", "weight": ""}, "<= 1.0"),
        ({"weight": "1.5"}, "<= 1.0"),
        ({"until": "x > 0"}, "until: only what is latched can last longer"),
        ({"missed": "x offset $ago > 0"}, "missed: only what is latched can last longer"),
        ({"missed": "x > 0", "kind": "latched"}, "missed: it needs until"),
        ({"lost": "x > 0", "until": "x > 0", "kind": "latched"}, "lost: it needs missed"),
        ({"until": "x offset $ago > 0", "kind": "latched"}, "until: $ago stands for nothing"),
        ({"peers": "[job]"}, "compared: it is needed with peers or least"),
        ({"compared": "over"}, "expected one of"),
        (
            {"family": "straggler", "kind": "latched"},
            "tenant_caused: what a tenant can cause cannot",
        ),
        ({"name": "too hot"}, "name: 'too hot' must be letters, digits"),
        ({"thresold": "3"}, "unknown field `thresold`"),
    ],
)
def test_a_mistake_in_a_row_is_named(tmp_path: Path, changed: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load_rules(rules_with(tmp_path, **changed))
    assert why in str(raised.value)
    assert f"rules file {tmp_path}/rules.yaml: metrics" in str(raised.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"query": "max by ($device, bank) (x) > 1", "text": "'bank {bank} of {gpu}: {value}'"},
        {"query": "x > 1", "text": "'{colour}'"},
        {"query": "x unless y"},
        {"query": "x", "compared": "above", "text": "'{percent} above'"},
        {"query": "'ALERTS{alertname=\"Hot\"}'", "gone_is_over": "true", "text": "'{severity}'"},
        {"query": "median_over_time(x[5m]) > 1"},
        {"query": "SUM BY (UUID) (x) > 1"},
        {"query": "max by (hostname, gpu) (x) > 1"},
        {"query": "max(x) by (hostname, gpu) > 1"},
        {"query": "sum without (namespace) (x) > 1"},
        {"query": "topk(3, x > 1)"},
        {"query": "1 - x / on (UUID) group_left () max by (UUID) (y) > 1"},
        {"query": "(x > 1 and on () max(y) > 3) unless on (job) max by (job) (z)"},
        {"query": "x > scalar(avg(y))"},
        {"query": "share(x) > 1"},
        {"query": "holt_winters(x[1h], 0.5, 0.5) > 1"},
        {"query": "x * on (UUID) group_right () y > 1"},
        {"query": "x / on (job) group_left () (sum by (job) (y) / on () group_left () z) > 3"},
        {"query": '\'label_replace(max by (gpu_id) (x), "UUID", "$1", "gpu_id", "(.*)") > 3\''},
        {"query": "gpu:hot:max > 1"},
        {"query": "'avg_over_time(max by ($device) ({__name__=~\"a|b\"})[10m:1m]) > 10'"},
        {"query": "quantile_over_time(0.9, x[5m] offset 1h) > 3e5"},
        {"exporter": "node-exporter", "query": "sum by (instance) (x) > 9"},
    ],
)
def test_a_row_that_can_count_is_no_mistake(tmp_path: Path, changed: dict[str, str]) -> None:
    assert "hot" in load_rules(rules_with(tmp_path, **changed)).metrics


def test_a_row_of_a_shipped_name_replaces_it(tmp_path: Path) -> None:
    rules = load_rules(rules_with(tmp_path, name="dcgm-temperature"))
    assert rules.metrics["dcgm-temperature"].weight == 0.3
    assert metrics.queries(rules)["dcgm-temperature"].names == (frozenset({"x"}),)


def test_a_graded_weight_grows_evenly_between_its_two_values() -> None:
    row = load_rules().metrics["dcgm-thermal-violation"]
    weights = [row.weighs(value) for value in (0.0, 0.1, 0.35, 0.6, 0.99)]
    assert weights == [0.25, 0.25, 0.4, 0.6, 0.6]


@pytest.mark.parametrize(
    ("rule", "value", "text"),
    [
        ("dcgm-ecc-correctable", 6012.4, "6012 corrected memory errors in an hour"),
        ("dcgm-ecc-correctable", 333.33, "333 corrected memory errors"),
        ("dcgm-ecc-correctable", float("nan"), "an unknown number of corrected memory errors"),
        ("dcgm-nvlink-crc-flit", 0.00167, "0.00167 NVLink CRC errors"),
        ("dcgm-pcie-width", 0.5, "its PCIe link lacks 50% of its lanes"),
        ("dcgm-pcie-width", float("nan"), "its PCIe link lacks an unknown share of its lanes"),
        ("dcgm-thermal-violation", float("nan"), "throttled by heat an unknown share of the time"),
    ],
)
def test_numbers_are_written_as_people_do(rule: str, value: float, text: str) -> None:
    assert load_rules().metrics[rule].says(value, {}).startswith(text)


class Somewhere:
    """Three nodes, by name, host name or address."""

    def node(self, name: str) -> str:
        return {"n1": "n1", "10.0.0.1:9400": "n1"}.get(name, "")

    def node_of_gpu(self, name: str) -> str:
        return "n2" if name == "GPU-2" else ""

    def devices_of_pod(self, key: str) -> tuple[str, tuple[UnitId, ...]]:
        return ("n3", (UnitId("n3", "nvidia.com/gpu", "GPU-3"),)) if key == "ml/a" else ("", ())


@pytest.mark.parametrize(
    ("exporter", "labels", "found"),
    [
        (
            "dcgm",
            {"UUID": "GPU-1", "gpu": "3", "pci_bus_id": "00000000:C4:00.0", "Hostname": "n1"},
            UnitId("n1", "nvidia.com/gpu", "GPU-1", ("pci:0000:c4:00.0", "index:3")),
        ),
        ("dcgm", {"gpu": "3", "hostname": "n1"}, UnitId("n1", "nvidia.com/gpu", "index:3")),
        # Old exporters have the name of their pod there.
        (
            "dcgm",
            {"UUID": "GPU-1", "Hostname": "dcgm-x7f", "instance": "10.0.0.1:9400"},
            UnitId("n1", "nvidia.com/gpu", "GPU-1"),
        ),
        (
            "dcgm",
            {"UUID": "GPU-2", "Hostname": "dcgm-x7f"},
            UnitId("n2", "nvidia.com/gpu", "GPU-2"),
        ),
        ("dcgm", {"UUID": "GPU-9", "Hostname": "dcgm-x7f"}, None),
        ("dcgm", {"hostname": "n1"}, None),
        ("amd", {"gpu_id": "0", "hostname": "n1"}, UnitId("n1", "amd.com/gpu", "index:0")),
        ("pods", {"namespace": "ml", "pod": "a"}, UnitId("n3", "nvidia.com/gpu", "GPU-3")),
        (
            "pods",
            {"exported_namespace": "ml", "exported_pod": "a"},
            UnitId("n3", "nvidia.com/gpu", "GPU-3"),
        ),
        ("pods", {"namespace": "ml", "pod": "gone"}, None),
    ],
)
def test_a_series_is_about_the_device_that_its_labels_name(
    exporter: str, labels: dict[str, str], found: UnitId | None
) -> None:
    row = load_rules().exporters[exporter]
    _, subjects = metrics.place(Sample(labels, 1.0), row, Somewhere())
    assert subjects == ((found,) if found is not None else ())
