"""Custom resources are checked by their definitions: those that are shipped or that users name."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from fettle.api import objects_of_yaml
from fettle.lint.findings import Severity
from fettle.lint.manifests import Manifest
from fettle.lint.shapes.customs import customs_of, customs_with, shipped_customs
from fettle.lint.structure import mistakes_in_structure
from tests.controlplane import shipped
from tests.fettle.cli.linted import fettle, findings
from tests.fettle.lint.builders import Object, checked
from tests.fettle.lint.tables.refused import CUSTOM, Refused
from tests.fettle.lint.wild import spoilt

SAMPLES = sorted((Path(__file__).parents[3] / "deploy" / "samples").glob("*.yaml"))
BOOLEAN = {"type": "boolean"}
DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gangs.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Gang", "plural": "gangs"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer"},
                                    "port": {"x-kubernetes-int-or-string": True},
                                    "mode": {"type": "string", "enum": ["Fast", "Slow"]},
                                    "any": {"x-kubernetes-preserve-unknown-fields": True},
                                    "members": {
                                        "type": "array",
                                        "items": {"type": "object", "properties": {"a": BOOLEAN}},
                                    },
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


def gang(**spec: Any) -> Object:
    metadata = {"name": "g"}
    return {"apiVersion": "example.com/v1", "kind": "Gang", "metadata": metadata, "spec": spec}


def told(made: Object) -> list[tuple[str, str, str]]:
    found = mistakes_in_structure(Manifest(made), customs_with([DEFINITION]))
    return [(f.rule, f.severity, f.field) for f in found]


@pytest.mark.parametrize("row", CUSTOM, ids=str)
def test_shipped_definitions_are_checked(row: Refused) -> None:
    found = [f for f in checked(row.object) if f.rule == row.rule]
    assert any(row.says in f.message for f in found) is bool(row.says)
    assert all(f.severity is Severity.DENY for f in found)


def test_a_field_of_a_newer_release_of_another_project_only_warns() -> None:
    made = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "j"},
        "spec": {"fieldOfTheFuture": 1, "failurePolicy": {"rules": [{"action": "Wait"}]}},
    }
    found = {f.field: f.severity for f in checked(made)}
    assert found["spec.fieldOfTheFuture"] is Severity.WARN
    assert found["spec.failurePolicy.rules[0].action"] is Severity.WARN


def test_a_field_of_a_newer_release_may_resemble_one_that_there_was() -> None:
    """A RayCluster of KubeRay's own samples has `tlsOptions`; release 1.5.1 has `authOptions`."""
    made = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r"},
        "spec": {"tlsOptions": {}, "rayVersoin": "2"},
    }
    found = {f.field: f.severity for f in checked(made)}
    assert found["spec.tlsOptions"] is Severity.WARN
    assert found["spec.rayVersoin"] is Severity.DENY


def test_samples_are_sound() -> None:
    for sample in SAMPLES:
        for found in objects_of_yaml(sample.read_bytes()):
            assert [f for f in checked(found.value) if f.severity is Severity.DENY] == []


def test_a_definition_says_which_fields_and_values_there_are() -> None:
    sound = gang(size=1, port="http", mode="Fast", any={"a": 1}, members=[{"a": True}])
    assert told(sound) == []
    assert told({**gang(size=1), "status": {"x": 1}}) == [("FTL201", "Deny", "status")]
    assert told(gang(size=1, sise=2)) == [("FTL201", "Deny", "spec.sise")]
    assert told(gang(size="1")) == [("FTL106", "Deny", "spec.size")]
    assert told(gang(size=1, mode="fast")) == [("FTL202", "Deny", "spec.mode")]
    assert told(gang(size=1, members=[{"b": 1}])) == [("FTL201", "Deny", "spec.members[0].b")]
    assert told(gang()) == [("FTL203", "Warn", "spec.size")]


def test_definitions_are_read_from_a_folder_and_from_the_input(tmp_path: Path) -> None:
    (tmp_path / "gangs.yaml").write_text(yaml.safe_dump(DEFINITION))
    wrong = yaml.safe_dump(gang(size=1, sise=2))
    assert findings("-", stdin=wrong) == []
    for arguments, text in (
        (("--crds", str(tmp_path)), wrong),
        (("--crds", str(tmp_path / "gangs.yaml")), wrong),
        ((), f"{yaml.safe_dump(DEFINITION)}---\n{wrong}"),
    ):
        (found,) = findings("-", *arguments, stdin=text)
        assert (found["rule"], found["path"]) == ("FTL201", "spec.sise")
        assert found["severity"] == "Deny"


def test_a_definition_among_the_files_may_be_older_than_that_of_the_cluster(tmp_path: Path) -> None:
    """A sample of vLLM's production stack has fields that a copy of its definition lacks."""
    (tmp_path / "gangs.yaml").write_text(yaml.safe_dump(DEFINITION))
    made = yaml.safe_dump(gang(size=1, future=2))
    both = f"{yaml.safe_dump(DEFINITION)}---\n{made}"
    assert [f["severity"] for f in findings("-", stdin=both)] == ["Warn"]
    assert [f["severity"] for f in findings("-", "--crds", str(tmp_path), stdin=made)] == ["Deny"]


def test_a_field_of_pods_is_told_once_where_a_definition_has_it_too() -> None:
    """The definition says it surely; without one it is known by the form of the template."""
    container = {"type": "object", "properties": {"name": {"type": "string"}}}
    pods = {
        "type": "object",
        "properties": {"containers": {"type": "array", "items": container}},
    }
    template = {"type": "object", "properties": {"spec": pods}}
    defined = deepcopy(DEFINITION)
    schema = defined["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "properties": {"template": template}}
    made = gang(template={"spec": {"containers": [{"name": "a", "imgae": "x"}], "priorityClas": 1}})
    for customs, severity in ((customs_with([defined]), "Deny"), (None, "Warn")):
        found = list(mistakes_in_structure(Manifest(made), customs))
        of_image = [f for f in found if f.field.endswith("imgae")]
        assert [f.severity for f in of_image] == [severity]


def test_a_misspelt_kind_of_a_defined_group_is_found(tmp_path: Path) -> None:
    (tmp_path / "gangs.yaml").write_text(yaml.safe_dump(DEFINITION))
    misspelt = yaml.safe_dump({**gang(size=1), "kind": "Gnag"})
    (found,) = findings("-", "--crds", str(tmp_path), stdin=misspelt)
    assert (found["rule"], found["path"]) == ("FTL206", "kind")


@pytest.mark.parametrize(
    ("api_version", "kind", "severity"),
    [
        ("fettle.dev/v1", "DevicePolicy", Severity.DENY),
        ("jobset.x-k8s.io/v1", "JobSet", Severity.WARN),
        ("jobset.x-k8s.io/v1alpha1", "JobSet", None),  # a release may have had it
        ("jobset.x-k8s.io/v1", "Other", None),
    ],
)
def test_a_version_that_a_definition_lacks_is_found(
    api_version: str, kind: str, severity: Severity | None
) -> None:
    made = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": {}}
    found = [f for f in checked(made) if f.rule == "FTL206"]
    assert [f.severity for f in found] == ([severity] if severity else [])
    assert all(f"apiVersion: {api_version.split('/')[0]}/v1alpha" in f.fix for f in found)


def test_definitions_that_are_not_there_are_a_problem() -> None:
    ran = fettle("-", "--crds", "nowhere", stdin=yaml.safe_dump(gang()))
    assert ran.returncode == 2
    assert "nowhere: No such file or directory" in ran.stderr


@given(spoilt(DEFINITION))
def test_no_definition_makes_lint_crash(definition: Any) -> None:
    if isinstance(definition, dict):
        customs = customs_with([definition])
        list(mistakes_in_structure(Manifest(gang(size=1, x=[{}])), customs))


def test_the_fields_of_our_own_kinds_are_those_of_our_definitions() -> None:
    """`python -m tests.controlplane.kubernetes_shapes` writes the file anew."""
    ours, known = customs_of(shipped.manifests(shipped.DEPLOY / "crds")), shipped_customs()
    assert {version: known.kinds[version] for version in ours.kinds} == ours.kinds
    assert {name: known.types.get(name) for name in ours.types} == ours.types
