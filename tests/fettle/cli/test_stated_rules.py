"""`x-kubernetes-validations`: what definitions say of objects in CEL, as lint evaluates it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fettle.cli.linting.running import MOST_EVALUATED
from tests.fettle.cli.linted import ROOT, fettle
from tests.fettle.lint.tables.refused import STATED, Refused

OURS = str(ROOT / "deploy" / "crds")
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}


def _definition(*rules: dict[str, Any], **properties: Any) -> dict[str, Any]:
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": list(rules)}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Widget", "plural": "widgets"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def _found(folder: Path, spec: Any, definition: Any, *, named: bool = True) -> list[dict[str, Any]]:
    crds = folder / ("crds" if named else "manifests")
    _write(crds / "definition.yaml", definition)
    _write(folder / "manifests" / "w.yaml", {**WIDGET, "spec": spec})
    return _told(folder, *(("--crds", str(crds)) if named else ()))


def _write(file: Path, made: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(msgspec.yaml.encode(made))


def _told(folder: Path, *more: str) -> list[dict[str, Any]]:
    found = json.loads(fettle(str(folder / "manifests"), "-o", "json", *more).stdout)
    return [one for one in found if one["rule"] == "FTL290"]


RANGE = {"rule": "self.low <= self.high", "message": "low must not be above high"}
NUMBERS = {
    "low": {"type": "integer"},
    "high": {"type": "integer", "default": 5},
    "share": {"type": "number"},
}


EVALUATED: list[tuple[dict[str, Any], dict[str, str], bool]] = [
    ({"low": 7, "high": 6}, RANGE, True),
    ({"low": 6, "high": 6}, RANGE, False),
    ({"low": 7}, RANGE, True),  # by the default of high
    ({"low": 4}, RANGE, False),
    ({"low": 4, "high": None}, RANGE, False),
    ({"share": 1}, {"rule": "self.share < 1.0", "message": "low must not be above high"}, True),
    ({"low": 9}, {"rule": "self.low == oldSelf.low"}, False),  # it is created
]


def test_a_rule_is_evaluated_with_the_defaults_that_the_api_server_adds(tmp_path: Path) -> None:
    """Each of a kind of its own, all in one run."""
    for number, (spec, rule, _) in enumerate(EVALUATED):
        kind = {"kind": f"Widget{number}", "plural": f"widget{number}s"}
        definition = _definition(rule, **NUMBERS)
        definition["metadata"]["name"] = f"{kind['plural']}.example.com"
        definition["spec"]["names"] = kind
        _write(tmp_path / "crds" / f"{number}.yaml", definition)
        made = {**WIDGET, "kind": kind["kind"], "spec": spec}
        _write(tmp_path / "manifests" / f"{number}.yaml", made)
    found = _told(tmp_path, "--crds", str(tmp_path / "crds"))
    for number, (spec, rule, broken) in enumerate(EVALUATED):
        told = [
            (one["severity"], one["path"], one["message"])
            for one in found
            if Path(one["file"]).stem == str(number)
        ]
        wanted = [("Deny", "spec", "low must not be above high")] if broken else []
        assert (spec, rule, told) == (spec, rule, wanted)


def test_by_a_definition_among_the_files_it_only_warns(tmp_path: Path) -> None:
    found = _found(tmp_path, {"low": 7}, _definition(RANGE, **NUMBERS), named=False)
    assert [one["severity"] for one in found] == ["Warn"]


NOT_KNOWN = [
    ("self.low.indexOf('a') > 0", "whether the rule holds is not known: undeclared reference"),
    ("quantity(self.low).isInteger()", "whether the rule holds is not known: "),
    ("self.?low.orValue(1) > 0", "whether the rule holds is not known: it cannot be parsed"),
    ("self.missing > 1", "whether the rule holds is not known: "),
]


def test_what_cannot_be_evaluated_is_undecided_and_says_so(tmp_path: Path) -> None:
    definition = _definition(*({"rule": rule} for rule, _ in NOT_KNOWN), **NUMBERS)
    found = _found(tmp_path, {"low": 7}, definition)
    assert {one["severity"] for one in found} == {"Undecided"}
    for (rule, says), one in zip(NOT_KNOWN, found, strict=True):
        assert one["message"].startswith(says), rule
        assert "activation" not in one["message"]


@pytest.mark.long
def test_a_rule_that_never_ends_and_rules_without_number_are_bounded(tmp_path: Path) -> None:
    many = {"type": "array", "items": {"type": "integer"}}
    endless = "self.many.all(a, self.many.all(b, self.many.all(c, a + b + c > -1)))"
    definition = _definition({"rule": endless}, many=many)
    (one,) = _found(tmp_path, {"many": list(range(1000))}, definition)
    assert one["severity"] == "Undecided"
    assert "too long" in one["message"] or "takes more than" in one["message"]
    rows = {
        "type": "array",
        "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]},
    }
    (one,) = _found(tmp_path, {"many": [1] * (MOST_EVALUATED + 1)}, _definition(many=rows))
    assert f"more than {MOST_EVALUATED} rules" in one["message"]


def test_our_own_samples_keep_the_rules_of_our_own_definitions() -> None:
    ran = fettle(str(ROOT / "deploy" / "samples"), "--crds", OURS, "-o", "json")
    found = [one for one in json.loads(ran.stdout) if one["rule"] == "FTL290"]
    assert {one["severity"] for one in found} <= {"Undecided"}
    broken = """\
apiVersion: fettle.dev/v1alpha1
kind: DevicePolicy
metadata: {name: a}
spec: {placement: {degraded: Prefer}, tolerations: {degradedAsFallback: true}}
"""
    found = json.loads(fettle("-", "--crds", OURS, "-o", "json", stdin=broken).stdout)
    assert [one["path"] for one in found if one["rule"] == "FTL290"] == ["spec"]


@pytest.mark.parametrize("row", STATED, ids=str)
def test_rules_of_shipped_definitions_are_evaluated_without_a_folder(row: Refused) -> None:
    """They only warn: a cluster may have another release."""
    found = json.loads(fettle("-", "-o", "json", stdin=json.dumps(row.object)).stdout or "[]")
    broken = [one for one in found if one["rule"] == row.rule]
    assert [row.says in one["message"] for one in broken] == ([True] if row.says else [])
    assert {one["severity"] for one in broken} <= {"Warn"}
