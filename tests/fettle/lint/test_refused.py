"""What the API server refuses, by objects that lint must catch and near misses that it must not."""

from typing import Any

import pytest

from fettle.lint.findings import Severity
from fettle.lint.refusals import REFUSALS
from fettle.lint.structure import REPEATED, TOO_MANY, WRONG_FORM
from tests.fettle.lint.builders import Object, checked
from tests.fettle.lint.tables.refused import (
    CLAIM,
    JUDGED,
    JUDGED_BY_JOB_SET,
    JUDGED_BY_LEADER_WORKER_SET,
    POD,
    REQUEST,
    WARNED_OF,
    Refused,
    put,
    stateful,
)
from tests.fettle.lint.tables.refused_details import DETAILS
from tests.fettle.lint.test_tables import CASES

VOLUME = {"metadata": {"name": "v"}}
ROWS = [*JUDGED, *DETAILS, *JUDGED_BY_JOB_SET, *JUDGED_BY_LEADER_WORKER_SET]


@pytest.mark.parametrize("row", [row for row in ROWS if row.says], ids=str)
def test_what_the_api_server_refuses_is_denied(row: Refused) -> None:
    found = [f for f in checked(row.object) if f.rule == row.rule]
    assert any(row.says in f.message for f in found), found
    assert {f.severity for f in found} == {Severity.DENY}


@pytest.mark.parametrize("row", [row for row in ROWS if not row.says], ids=str)
def test_a_near_miss_that_it_accepts_passes(row: Refused) -> None:
    assert [f for f in checked(row.object) if f.severity is Severity.DENY] == []


def test_what_it_accepts_and_other_rules_catch_is_sound_in_structure() -> None:
    rules = {row.rule for row in ROWS}
    denied = {
        str(case): [f for f in checked(case.object) if f.severity is Severity.DENY]
        for case in CASES
    }
    assert {case: found for case, found in denied.items() if {f.rule for f in found} & rules} == {}


def test_every_rule_has_a_mistake_and_a_near_miss() -> None:
    ids = {rule.id for rule in REFUSALS} | {WRONG_FORM.id, REPEATED.id, TOO_MANY.id}
    for caught in (True, False):
        rows = (row.rule for row in (*ROWS, *WARNED_OF) if bool(row.says) is caught)
        assert ids - {*rows} == set()


def test_of_an_object_that_exists_nothing_is_said_to_be_refused() -> None:
    """The API server has given this Job its selector."""
    row = next(row for row in ROWS if row.rule == "FTL238" and "made by the API" in row.says)
    metadata = {**row.object["metadata"], "uid": "6a0d1c1e-0000-4000-8000-000000000000"}
    assert "FTL238" in {one.rule for one in checked(row.object)}
    assert "FTL238" not in {one.rule for one in checked({**row.object, "metadata": metadata})}


def test_in_workloads_of_others_they_only_warn() -> None:
    """Their controllers may complete what they make."""
    spec = {"containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}
    ray = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r"},
        "spec": {"headGroupSpec": {"template": {"spec": spec}}},
    }
    found = {finding.rule: finding.severity for finding in checked(ray)}
    assert found == {"FTL221": Severity.WARN, "FTL225": Severity.WARN}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("jobset.x-k8s.io/v1alpha2/JobSet", ("volumeClaimPolicies", [{"templates": [VOLUME]}])),
        (
            "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
            ("leaderWorkerTemplate", {"volumeClaimTemplates": [VOLUME]}),
        ),
    ],
)
def test_volumes_that_a_workload_adds_are_known(kind: str, spec: tuple[str, Any]) -> None:
    """JobSet's site/static/examples/volume-claim-policy, and LeaderWorkerSet's docs/examples."""
    api_version, _, name = kind.rpartition("/")
    box = {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    template = {"spec": {"containers": [box]}}
    path, value = spec
    if name == "JobSet":
        jobs = [{"name": "a", "template": {"spec": {"template": template}}}]
        made: Object = {"replicatedJobs": jobs, path: value}
    else:
        made = {path: {**value, "workerTemplate": template}}
    metadata = {"name": "x"}
    manifest = {"apiVersion": api_version, "kind": name, "metadata": metadata, "spec": made}
    assert "FTL221" not in {finding.rule for finding in checked(manifest)}
    made[path] = {**value, "volumeClaimTemplates": []} if name != "JobSet" else []
    if name != "JobSet":
        made[path]["workerTemplate"] = template
    assert "FTL221" in {finding.rule for finding in checked(manifest)}


@pytest.mark.parametrize("name", ["FILLED BY THE OPERATOR", "${NAME}", "NAME_SPACE", "__NS__"])
def test_what_is_put_in_later_is_no_wrong_name_and_the_rest_only_warns(name: str) -> None:
    """NVIDIA's gpu-operator, assets/: its operator fills in namespaces and adds volumes."""
    made = put(
        POD,
        ("metadata/namespace", name),
        ("spec/containers/0/volumeMounts", [{"name": "v", "mountPath": "/v"}]),
        ("spec/containers/0/resources/limits", {"FILLED_BY_VALIDATOR": 1}),
    )
    assert [(f.rule, f.severity) for f in checked(made)] == [("FTL221", Severity.WARN)]


@pytest.mark.parametrize("name", ["TRAIN", "NAMESPACE", "GPU0"])
@pytest.mark.parametrize(
    ("rule", "path"), [("FTL224", "spec/containers/0/name"), ("FTL240", "metadata/name")]
)
def test_one_word_in_capitals_is_a_warning_since_it_may_be_put_in(
    name: str, rule: str, path: str
) -> None:
    [found] = checked(put(POD, (path, name)))
    assert (found.rule, found.severity) == (rule, Severity.WARN)
    assert found.fix == f"write {name.lower()}"


@pytest.mark.parametrize(
    "name", ["$NAME", "{{ .x }}", "<NAME>", "NAME_HERE", "YOUR-NAME", "%NAME%", "@NAME@"]
)
def test_of_what_only_stands_for_a_name_nothing_is_said(name: str) -> None:
    assert checked(put(POD, ("spec/containers/0/name", name), ("metadata/name", name))) == []


@pytest.mark.parametrize("row", WARNED_OF, ids=str)
def test_what_only_an_operator_refuses_is_a_warning(row: Refused) -> None:
    found = [f for f in checked(row.object) if f.rule == row.rule]
    assert [f.severity for f in found] == [Severity.WARN] * bool(row.says)
    assert all(row.says in f.message for f in found)


@pytest.mark.parametrize("field", ["name", "exactly/deviceClassName"])
def test_a_request_in_capitals_may_stand_for_another_name(field: str) -> None:
    """So it is only a warning: the API server refuses `GPU`, and a marker looks the same."""
    found = checked(put(CLAIM, (f"{REQUEST}/{field}", "GPU")))
    assert [(f.rule, f.severity, f.fix) for f in found] == [("FTL215", Severity.WARN, "write gpu")]
    assert checked(put(CLAIM, (f"{REQUEST}/{field}", "${GPU}"))) == []


@pytest.mark.parametrize("name", ["${GPU}", "{{ .gpu }}", "<GPU>", "GPU_NAME", "YOUR-GPU"])
def test_what_stands_for_the_name_of_a_resource_is_no_wrong_one(name: str) -> None:
    """One word in capitals is: Kubernetes' own names are in small letters."""
    for path in ("spec/containers/0/resources/limits", "spec/resources/limits"):
        assert checked(put(POD, (path, {name: 1}))) == []
        assert [f.severity for f in checked(put(POD, (path, {"CPU": 1})))] == [Severity.DENY]


def test_the_file_of_another_program_without_apiversion_only_warns() -> None:
    """NVIDIA's gpu-operator, bundle/tests/scorecard/config.yaml."""
    other = {"apiversion": "example.com/v1", "kind": "Configuration", "metadata": {"name": "c"}}
    assert [(f.rule, f.severity) for f in checked(other)] == [("FTL206", Severity.WARN)]


@pytest.mark.parametrize("length", [53, 63])
def test_a_stateful_set_whose_pods_cannot_have_its_name_is_a_warning(length: int) -> None:
    """Seen on a real control plane: `FailedCreate … metadata.labels: Invalid value`."""
    found = [(f.rule, f.severity) for f in checked(stateful("s" * length))]
    assert found == [("FTL239", Severity.WARN)]
    assert checked(stateful("s" * 52)) == []
