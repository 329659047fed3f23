"""What an operator's rows make of annotations of a Node."""

import pytest

from fettle.config import HealthSettings
from fettle.health import HealthBook, load_rules, report_of_node
from fettle.model import NodeId, SettingsError, State, UnitId
from tests.fettle.health.signals.objects import NOW, UUID, node

KEY = "example.com/bad-gpus"
ROWS = rf"""
annotations:
  - {{name: bad-gpus, key: {KEY}, value: "*", weight: 0.9, family: driver, source: s,
     resource: nvidia.com/gpu, units: '([\w:.-]+)'}}
  - {{name: state, key: example.com/state, value: "bad*", weight: 0.4, source: s}}
"""
RULES = load_rules("rules.yaml", ROWS)
SHIPPED = load_rules()
UUID_DIGITS = "10000000-0000-0000-0000-000000000000"


def told(*values: dict[str, str]) -> HealthBook:
    book = HealthBook(HealthSettings(), RULES)
    for at, annotations in enumerate(values):
        book.ledger.report(report_of_node(node(annotations=annotations), RULES, NOW + at), NOW + at)
    return book


def test_an_annotation_speaks_of_the_node_by_its_value() -> None:
    key = NodeId("gpu-1")
    for value, score in (("bad: fan", 0.6), ("good", 1.0)):
        assert told({"example.com/state": value}).assess(key, (key,), NOW).score == score
    over = told({"example.com/state": "bad"}, {}).assess(key, (key,), NOW + 1)
    assert (over.state, over.score) == (State.HEALTHY, 0.9)


@pytest.mark.parametrize(
    ("value", "unit"), [(UUID, UUID), ("3", "index:3"), ("pci:0000:C4:00", "pci:0000:c4:00.0")]
)
def test_it_speaks_of_the_units_that_it_names(value: str, unit: str) -> None:
    evidence = report_of_node(node(annotations={KEY: f"{value},GPU-2"}), RULES, NOW).evidence
    assert [e.subject for e in evidence] == [
        UnitId("gpu-1", "nvidia.com/gpu", unit),
        UnitId("gpu-1", "nvidia.com/gpu", "GPU-2"),
    ]
    assert str(evidence[0].source) == "annotation bad-gpus"
    assert f"annotation {KEY}={value}" in evidence[0].text


@pytest.mark.parametrize(
    ("value", "units"),
    [
        ("0,3", ["index:0", "index:3"]),
        ("0, 12", ["index:0", "index:12"]),
        (f"GPU-{UUID_DIGITS},2", [f"GPU-{UUID_DIGITS}", "index:2"]),
        (UUID_DIGITS, []),
    ],
)
def test_digits_of_a_uuid_in_volcanos_list_are_no_index(value: str, units: list[str]) -> None:
    said = report_of_node(node(annotations={"volcano.sh/gpu-unhealthy-ids": value}), SHIPPED, NOW)
    assert [e.subject.unit for e in said.evidence if isinstance(e.subject, UnitId)] == units


def test_fettles_own_annotations_are_no_evidence() -> None:
    rules = load_rules("r", "annotations: [{name: a, key: '.*', value: '*', weight: 1, source: s}]")
    written = node(annotations={"fettle.dev/anything": "x"})
    assert report_of_node(written, rules, NOW).evidence == ()
    with pytest.raises(SettingsError, match=r"Fettle's own"):
        load_rules("r", ROWS.replace(KEY, "fettle.dev/x"))
