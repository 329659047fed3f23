"""What objects of any kind say: whose word it is, and how it ends."""

from __future__ import annotations

import pytest
import yaml

from fettle.api import ObjectFact, ObjectReported, kinds
from fettle.cel import RowOutcome
from fettle.health import SignalRules, load_rules, readable, report_of_object, rule_mistakes
from fettle.model import DeviceId, EvidenceKind, NodeId, UnitId
from tests.fettle.cluster.inventory.fleets import Fleet

ROW = {
    "name": "r",
    "apiVersion": "example.com/v1",
    "kind": "Reset",
    "when": "resource.failed",
    "node": "resource.node",
    "family": "driver",
    "weight": 0.9,
    "namespaces": ["trusted"],
    "source": "our tool",
}
KIND = "Reset.example.com"


def row(**changes: object) -> dict[str, object]:
    return {field: value for field, value in {**ROW, **changes}.items() if value is not None}


def written(**changes: object) -> str:
    return yaml.safe_dump({"objects": [row(**changes)]})


def rules_with(**changes: object) -> SignalRules:
    return load_rules("rules.yaml", written(**changes))


def reported(
    key: str = "a", *, node: str = "n", device: str = "", unknown: tuple[str, ...] = ()
) -> ObjectReported:
    facts = {} if unknown or not node else {"r": (ObjectFact(node, device, "it failed"),)}
    return ObjectReported(KIND, key, "uid", facts, unknown)


@pytest.mark.parametrize("key", ["a", "trusted/a"])
def test_what_has_no_namespace_or_a_trusted_one_counts_in_full(key: str) -> None:
    (one,) = report_of_object(reported(key), rules_with(), 0.0).evidence
    assert (one.subject, one.weight, one.reporting_namespace) == (NodeId("n"), 0.9, "")
    assert one.text == f"Reset {key}: it failed"


def test_what_is_in_another_namespace_is_its_word_bounded_and_not_latched() -> None:
    rules = rules_with(evidence="latched")
    (one,) = report_of_object(reported("tenant/a"), rules, 0.0).evidence
    bound = rules.signals["tenant-caused"]
    assert (one.reporting_namespace, one.kind) == ("tenant", EvidenceKind.LEVEL)
    assert (one.weight, one.cap, one.together) == (bound.cap, bound.cap, bound.together)
    (one,) = report_of_object(reported("trusted/a"), rules, 0.0).evidence
    assert (one.weight, one.kind) == (0.9, EvidenceKind.LATCHED)


@pytest.mark.parametrize(
    ("device", "subject"),
    [
        ("gpu.example.com/n/gpu-0", DeviceId("gpu.example.com", "n", "gpu-0")),
        ("nvidia.com/gpu index:3", UnitId("n", "nvidia.com/gpu", "index:3")),
    ],
)
def test_a_device_is_named_as_in_a_hold(device: str, subject: object) -> None:
    (one,) = report_of_object(reported(device=device), rules_with(), 0.0).evidence
    assert one.subject == subject


@pytest.mark.parametrize("device", ["gpu-3", "what?", "nvidia.com/gpu", "a" * 1000])
def test_a_device_that_cannot_be_read_blames_no_node_and_is_told(device: str) -> None:
    fact = ObjectFact("n", device, "it failed")
    outcome = readable(RowOutcome((ObjectFact("n", "nvidia.com/gpu 3"), fact), counts=True))
    assert (outcome.facts, outcome.counts) == ((), False)
    assert outcome.problem.startswith(f"device: '{device[:100]}")
    assert len(outcome.problem) < 300
    assert report_of_object(reported(device=device), rules_with(), 0.0).evidence == ()


def test_what_names_a_device_a_unit_or_the_node_itself_is_left_as_it_is() -> None:
    facts = (ObjectFact("n"), ObjectFact("n", "d/p/g"), ObjectFact("n", "nvidia.com/gpu 3"))
    assert readable(RowOutcome(facts, counts=True)).facts == facts


def test_a_fault_is_over_when_its_object_says_so_and_fades_if_that_is_not_known_or_gone() -> None:
    def fleet() -> Fleet:
        found = Fleet(rules=rules_with())
        gpus = {"nvidia.com/gpu": "8"}
        status = {"capacity": gpus, "allocatable": gpus}
        found.put(kinds.NODE, {"metadata": {"name": "n"}, "status": status})
        found.inventory.take_report(reported(), found.now)
        return found

    def score(found: Fleet) -> float:
        return found.look().nodes["n"].health.score

    said = fleet()
    assert score(said) == pytest.approx(0.1)
    said.inventory.take_report(reported(node=""), said.now)
    over = score(said)
    unknown = fleet()
    unknown.inventory.take_report(reported(unknown=("r",)), unknown.now)
    gone = fleet()
    gone.inventory.take_report(ObjectReported(KIND, "a", gone=True), gone.now)
    assert over > 0.7 > 0.2 > score(unknown) == score(gone)


MISTAKES: list[tuple[dict[str, object], str, str]] = [
    ({"when": "resource.a =="}, "", "cannot be parsed"),
    ({"when": "resource.?a"}, "", "no optionals"),
    ({"node": "resourse.a"}, "", "nothing is called resourse"),
    ({"node": "resource.a.split('-')[0]"}, "", "no function split"),
    ({"message": "it says {resource.}"}, "", "cannot be parsed"),
    ({"when": None}, "", "when is missing"),
    ({"apiVersion": "example.com"}, ".apiVersion", "is none"),
    ({"apiVersion": "fettle.dev/v1alpha1"}, ".apiVersion", "Fettle writes itself"),
    ({"kind": "resets"}, ".kind", "is none"),
    ({"evidence": "decaying"}, ".evidence", "level, latched or unknown"),
    ({"weight": 2}, ".weight", "<= 1.0"),
]


def test_mistakes_in_a_row_are_told() -> None:
    """All rows in one file, and so read by one worker."""
    text = yaml.safe_dump(
        {"objects": [row(name=f"r{n}", **changes) for n, (changes, _, _) in enumerate(MISTAKES)]}
    )
    found = {one.path: one.problem for one in rule_mistakes(text, "rules.yaml")}
    wanted = {f"objects[{n}]{field}": said for n, (_, field, said) in enumerate(MISTAKES)}
    assert found.keys() == wanted.keys()
    assert {path: found[path] for path, said in wanted.items() if said not in found[path]} == {}


TOO_MUCH = {
    "nested": ("(" * 3000 + "true" + ")" * 3000, "its brackets are nested more than 30 deep"),
    "lists": ("[" * 31 + "]" * 31 + " == []", "its brackets are nested more than 30 deep"),
    "added": ("1" + " + 1" * 2400 + " == 1", "too many parts"),
    "members": ("resource" + ".a" * 5000, "too many parts"),
    "denied": ("!" * 10_000 + "true", "too many parts"),
    "longer": ("true || " * 1300 + "true", "longer than 10 KiB"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_an_expression_that_is_too_much_is_named_and_the_others_are_checked(name: str) -> None:
    when, why = TOO_MUCH[name]
    rows = [
        row(name="sound"),
        row(name="deep", when=when),
        row(name="misspelt", when="resourse.a"),
        row(name="texts", when="'" + "(" * 50 + "' == 'x'"),
    ]
    found = {one.row: one for one in rule_mistakes(yaml.safe_dump({"objects": rows}), "rules.yaml")}
    assert found.keys() == {"deep", "misspelt"}
    assert why in found["deep"].problem
    assert len(found["deep"].problem) < 300
    assert "nothing is called resourse" in found["misspelt"].problem


def test_two_versions_of_one_kind_are_a_mistake() -> None:
    rows = [ROW, {**ROW, "name": "s", "apiVersion": "example.com/v2"}]
    (found,) = rule_mistakes(yaml.safe_dump({"objects": rows}), "rules.yaml")
    assert "another version" in found.problem
