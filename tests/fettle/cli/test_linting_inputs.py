"""What `fettle lint` says of files as such: keys and objects that stand twice, objects that do not
say what they are, and patches of kustomize."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fettle.cli.linting.running import UNUSABLE, LintOptions, run
from fettle.lint import Finding, Manifest, Rule, Severity
from fettle.lint.cluster import Cluster
from tests.fettle.cli.linted import CLAIM, fettle, findings

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - name: main
    image: x
    env: []
"""


def told(text: str) -> list[tuple[str, str, int, str]]:
    found = findings("-", stdin=text)
    return [(f["rule"], f["severity"], f["line"], f["path"]) for f in found]


def test_a_sound_object_is_not_reported() -> None:
    assert told(POD) == []


def test_a_key_that_stands_twice_is_denied_at_its_line() -> None:
    assert told(f"{POD}    image: z\n") == [("FTL207", "Deny", 9, "spec.containers[0].image")]
    json = '{"apiVersion": "example.com/v1", "kind": "A", "kind": "A", "metadata": {"name": "b"}}'
    assert told(json) == [("FTL207", "Deny", 1, "kind")]


def test_labels_and_annotations_may_have_keys_that_yaml_reads_as_bools_and_numbers() -> None:
    labels = '{on: "yes", 2024: x, 1.5: x}'
    pod = POD.replace("{name: a}", f"{{name: a, labels: {labels}, annotations: {{1: x, no: x}}}}")
    assert told(pod) == []
    job = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  template:\n"
        f"    metadata: {{labels: {labels}}}\n"
        "    spec: {restartPolicy: Never, containers: [{name: a, image: x}]}\n"
    )
    assert told(job) == []


def test_what_is_wrong_below_such_a_key_has_its_line() -> None:
    pod = POD.replace("{name: a}", "\n  name: a\n  labels:\n    on: 'a'\n    2024: 5")
    assert told(pod) == [("FTL106", "Deny", 7, "metadata.labels.2024")]
    twice = POD.replace("{name: a}", "\n  name: a\n  labels:\n    on: 'a'\n    true: 'b'")
    assert told(twice) == [("FTL207", "Deny", 7, "metadata.labels.true")]


def test_whole_numbers_may_be_written_in_every_way_that_kubectl_takes() -> None:
    volumes = "  volumes: [{name: a, secret: {secretName: x, defaultMode: 0o400}}]\n"
    assert told(f"{POD}  terminationGracePeriodSeconds: 1e1\n{volumes}") == []
    ((rule, _, _, path),) = told(f"{POD}  terminationGracePeriodSeconds: 1e-1\n")
    assert (rule, path) == ("FTL106", "spec.terminationGracePeriodSeconds")


def test_a_key_that_stands_twice_is_said_of_its_own_object_only() -> None:
    other = POD.replace("name: a", "name: b")
    ((rule, _, line, _),) = told(f"{other}---\n{POD}    image: z\n---\n{other.replace('b', 'd')}")
    assert (rule, line) == ("FTL207", 18)


def test_merge_keys_and_equal_keys_of_several_objects_are_no_repetition() -> None:
    merged = "x: &x {a: b}\ny: &y {c: d}\nz:\n  <<: *x\n  <<: *y\n"
    assert told(f"apiVersion: example.com/v1\nkind: Thing\nmetadata: {{name: a}}\n{merged}") == []


def test_one_object_twice_in_a_file_is_denied_and_in_a_folder_warned_of(tmp_path: Path) -> None:
    assert told(f"{POD}---\n{POD}") == [("FTL208", "Deny", 12, "metadata.name")]
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(POD)
    (one,) = findings(str(tmp_path))
    assert (one["rule"], one["severity"], Path(one["file"]).name) == ("FTL208", "Warn", "b.yaml")


def test_objects_that_may_not_meet_are_not_called_the_same(tmp_path: Path) -> None:
    namespaces = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
    assert told(f"{namespaces}---\n{namespaces}") == []
    assert told(f"{POD}---\n{POD.replace('{name: a}', '{name: a, namespace: b}')}") == []
    generated = POD.replace("{name: a}", "{generateName: a}")
    assert told(f"{generated}---\n{generated}") == []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(POD)
    assert findings(str(tmp_path)) == []


def test_a_label_whose_key_yaml_reads_as_true_breaks_nothing() -> None:
    marked = POD.replace("{name: a}", '{name: a, labels: {on: "yes"}, annotations: {off: "x"}}')
    assert told(marked) == []


def test_an_object_that_does_not_say_what_it_is_is_denied() -> None:
    assert told(POD.replace("kind:", "Kind:")) == [("FTL206", "Deny", 2, "Kind")]
    assert told(POD.replace("apiVersion:", "apiversion:")) == [("FTL206", "Deny", 1, "apiversion")]
    assert told(POD.replace("kind: Pod\n", "")) == [("FTL206", "Deny", 1, "kind")]
    assert told(POD.replace("kind: Pod", "kind: [Pod]")) == [("FTL206", "Deny", 2, "kind")]
    assert told(POD.replace("apiVersion: v1", "apiVersion: 1")) == [
        ("FTL206", "Deny", 1, "apiVersion")
    ]


def advice(text: str) -> list[tuple[str, str]]:
    return [(found["rule"], found["fix"]) for found in findings("-", stdin=text)]


NAMED = "metadata: {name: a}\n"


def test_a_version_that_was_never_served_is_not_passed_over() -> None:
    never = f"apiVersion: resource.k8s.io/v1beta3\nkind: DeviceClass\n{NAMED}spec: {{}}\n"
    assert advice(never) == [("FTL206", "write apiVersion: resource.k8s.io/v1")]
    for old in ("v1alpha3", "v1beta1"):
        assert advice(never.replace("v1beta3", old)) == [("FTL034", "write resource.k8s.io/v1")]


def test_the_newest_version_that_is_served_is_advised() -> None:
    scaler = f"apiVersion: autoscaling/v2beta2\nkind: HorizontalPodAutoscaler\n{NAMED}"
    assert advice(scaler) == [("FTL206", "write apiVersion: autoscaling/v2")]
    rule = f"apiVersion: resource.k8s.io/v1beta2\nkind: DeviceTaintRule\n{NAMED}"
    taint = "taint: {key: a.io/b, effect: NoSchedule}"
    spec = f"spec: {{deviceSelector: {{driver: a.io, pool: b}}, {taint}}}\n"
    (fix,) = [fix for rule, fix in advice(rule + spec) if rule == "FTL034"]
    first = "once your clusters run Kubernetes 1.37, which serves it first"
    assert fix == f"write resource.k8s.io/v1 {first}"


def test_a_job_of_an_old_version_is_told_once() -> None:
    spec = "spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: x}]}}}\n"
    job = f"apiVersion: batch/v1beta1\nkind: Job\n{NAMED}{spec}"
    assert advice(job) == [("FTL206", "write apiVersion: batch/v1")]


def test_a_misspelt_field_in_the_wrong_place_is_told_its_place() -> None:
    policy = (
        f"apiVersion: fettle.dev/v1alpha1\nkind: DevicePolicy\n{NAMED}spec: {{minscore: 0.8}}\n"
    )
    assert advice(policy) == [("FTL201", "write placement.minScore")]


def test_a_template_without_its_inner_spec_is_told_once() -> None:
    spec = "spec: {devices: {requests: [{name: g, exactly: {deviceClassName: a.io}}]}}\n"
    template = f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n{NAMED}{spec}"
    assert advice(template) == [("FTL201", "write it under spec")]


def test_objects_that_are_in_no_namespace_are_named_without_one() -> None:
    queue = f"apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\n{NAMED}spec: {{cohorts: a}}\n"
    node_slice = f"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\n{NAMED}spec: {{drivr: a}}\n"
    local = queue.replace("ClusterQueue", "LocalQueue")
    found = findings("-", stdin=f"{queue}---\n{node_slice}---\n{local}")
    assert {(one["kind"], one["namespace"]) for one in found} == {
        ("ClusterQueue", ""),
        ("ResourceSlice", ""),
        ("LocalQueue", "default"),
    }


def test_files_of_other_programs_are_not_taken_for_objects(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: a\n")
    (tmp_path / "values.yaml").write_text("kind: {a: b}\nspec: {}\n")
    (tmp_path / "kustomization.yaml").write_text("resources: [a.yaml]\n")
    (tmp_path / "other.yaml").write_text(
        "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmetadata: {name: a, region: b}\n"
    )
    (tmp_path / "build.yaml").write_text("kind: auto.CI\nspec: {}\n")
    (tmp_path / "disks.yaml").write_text('apiVersion: a.io/v1\nkind: Disks\nmetadata: "1.0"\n')
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "kustomization.yaml").write_text("kind: Kustomization\nresources: []\n")
    ran = fettle(str(tmp_path))
    assert (ran.returncode, ran.stdout) == (0, "")


def test_a_kustomization_that_is_named_is_no_rules_file(tmp_path: Path) -> None:
    """Its `labels` are a list, too. Many have no kind."""
    (tmp_path / "claim.yaml").write_text(CLAIM)
    (tmp_path / "kustomization.yaml").write_text(
        "resources: [claim.yaml]\nlabels:\n- pairs: {team: ml}\n  includeTemplates: true\n"
    )
    ran = fettle("claim.yaml", "kustomization.yaml", cwd=tmp_path)
    assert "FTL110" not in ran.stdout
    assert "kustomization.yaml: skipped" in ran.stderr
    assert "kubectl kustomize . | fettle lint -" in ran.stderr
    alone = fettle("kustomization.yaml", cwd=tmp_path)
    assert (alone.returncode, "nothing was checked" in alone.stderr) == (2, True)
    assert "skipped" not in fettle(".", cwd=tmp_path).stderr


def test_what_is_missing_beside_a_kustomization_is_only_a_warning(tmp_path: Path) -> None:
    patch = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"
        "spec: {template: {spec: {containers: [{name: b, image: i}]}}}\n"
    )
    (tmp_path / "patch.yaml").write_text(patch)
    assert {f["severity"] for f in findings(str(tmp_path))} == {"Deny"}
    (tmp_path / "kustomization.yaml").write_text("patches: [{path: patch.yaml}]\n")
    (one,) = findings(str(tmp_path))
    assert (one["rule"], one["severity"]) == ("FTL203", "Warn")
    assert "unless a kustomization adds it" in one["message"]
    (tmp_path / "patches").mkdir()
    (tmp_path / "patch.yaml").rename(tmp_path / "patches" / "patch.yaml")
    assert [f["severity"] for f in findings(str(tmp_path))] == ["Warn"]


PATCH = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 2}\n"


def test_what_a_kustomization_above_names_may_be_a_patch(tmp_path: Path) -> None:
    patches = tmp_path / "all" / "patches"
    patches.mkdir(parents=True)
    (tmp_path / "kustomization.yaml").write_text("patches: [{path: all/patches/more.yaml}]\n")
    (patches / "more.yaml").write_text(PATCH)
    (patches / "other.yaml").write_text(PATCH.replace("name: d", "name: e"))
    denied = {f["file"] for f in findings(str(tmp_path)) if f["severity"] == "Deny"}
    assert denied == {str(patches / "other.yaml")}


def test_what_tells_kustomize_how_to_merge_is_a_patch() -> None:
    assert {severity for _, severity, _, _ in told(PATCH)} == {"Deny"}
    assert {severity for _, severity, _, _ in told(f"{PATCH}$patch: delete\n")} == {"Warn"}


@pytest.mark.parametrize(
    "directive",
    [
        "$retainKeys: [type]",
        "'$retainKeys': [type]",
        '"$patch": merge',
        "$deleteFromPrimitiveList/finalizers: [a.b/c]",
        "$setElementOrder/containers: [{name: a}, {name: b}]",
        '"$setElementOrder/containers": [{name: a}]',
    ],
)
def test_each_directive_of_a_strategic_merge_is_one_of_a_patch(directive: str) -> None:
    """All that apimachinery has, in util/strategicpatch/patch.go."""
    for text in (f"{PATCH}{directive}\n", PATCH.replace("{replicas", f"{{{directive}, replicas")):
        assert {severity for _, severity, _, _ in told(text)} == {"Warn"}


class Stumbling(Rule):
    """Fails at one object."""

    id = "FTL999"
    name = "stumbling"
    severity = Severity.WARN
    today = "It is read."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        if manifest.name == "a":
            raise TypeError("no\nlength")
        yield self.finding(manifest.root, "is read")


def test_a_mistake_of_ours_about_one_object_does_not_hide_what_others_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(f"{POD}---\n{POD.replace('{name: a}', '{name: b}')}")
    options = LintOptions((str(file),), None, None, None, "default", False, "text", "never")
    assert run(options, [Stumbling()]) == UNUSABLE
    out, err = capsys.readouterr()
    assert "FTL999 : Pod default/b" in out
    said = (
        "line 1: Pod a was not checked, by a mistake of Fettle; please report it: TypeError: no l"
    )
    assert said in err
    assert "Traceback" not in err


def test_json_that_nests_too_deep_is_refused_at_once_as_yaml_is() -> None:
    head = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": '
    deep = f"{head}{'[' * 50_000}{']' * 50_000}}}"
    ran = fettle("-", stdin=deep)
    assert ran.returncode == UNUSABLE
    assert "it is nested more than 100 levels deep" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_folder_of_definitions_without_one_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POD)
    ran = fettle("-", "--crds", str(tmp_path), stdin=POD)
    assert ran.returncode == UNUSABLE
    assert "no CustomResourceDefinition in it" in ran.stderr
