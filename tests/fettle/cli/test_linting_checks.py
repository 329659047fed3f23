"""What `fettle lint` reports besides the rules."""

import json
from pathlib import Path

import pytest

from tests.fettle.cli.linted import GOOD, ROOT, fettle, findings

POLICY = """\
apiVersion: fettle.dev/v1alpha1
kind: DevicePolicy
metadata: {name: own}
spec:
  placement:
    requires:
    - expression: device.driver == "gpu.nvidia.com"
    - expression: '"a" in node.labels'
    - expression: devices.driver == "gpu.nvidia.com"
  validation:
    rules:
      FTL010: Warn
      FTL999: Deny
"""
QUOTED = GOOD.replace("count: 4", 'count: "40"')


def test_a_quoted_number_is_found_where_it_stands() -> None:
    (found,) = findings("-", stdin=QUOTED)
    assert (found["rule"], found["severity"], found["line"]) == ("FTL106", "Deny", 13)
    assert found["file"] == "<stdin>"
    assert found["path"] == "spec.devices.requests[0].exactly.count"
    assert found["fix"] == "write 40, without quotes"


def test_settings_of_a_policy_that_have_no_effect_are_found() -> None:
    rule, requirement = findings("-", stdin=POLICY)
    assert (rule["rule"], rule["severity"], rule["line"]) == ("FTL104", "Warn", 13)
    assert (requirement["rule"], requirement["severity"], requirement["line"]) == (
        "FTL105",
        "Warn",
        9,
    )
    assert "undeclared reference to 'devices'" in requirement["message"]


@pytest.mark.parametrize(
    ("rules", "severities"),
    [
        ('{FTL104: "Off", FTL105: Deny}', [("FTL105", "Deny")]),
        ("{FTL105: Off}", [("FTL104", "Warn")]),
    ],
)
def test_settings_change_the_severity_of_checks_as_of_rules(
    tmp_path: Path, rules: str, severities: list[tuple[str, str]]
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"lint: {{rules: {rules}}}\n")
    found = findings("-", "--settings", str(settings), stdin=POLICY)
    assert [(one["rule"], one["severity"]) for one in found] == severities


def test_the_check_of_unknown_policies_can_be_switched_off(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text('lint: {rules: {FTL101: "Off"}}\n')
    claim = GOOD.replace("name: big", "name: big\n  annotations: {fettle.dev/policy: ours}")
    assert [found["rule"] for found in findings("-", stdin=claim)] == ["FTL101"]
    assert findings("-", "--settings", str(settings), stdin=claim) == []


def test_a_policy_changes_the_severity_of_checks_for_its_objects(tmp_path: Path) -> None:
    policy = POLICY.replace("FTL999: Deny", 'FTL106: "Off"').replace("devices.d", "device.d")
    claim = QUOTED.replace("name: big", "name: big\n  annotations: {fettle.dev/policy: own}")
    assert findings("-", stdin=f"{policy}---\n{claim}") == []


def test_evictions_that_count_against_a_job_are_found() -> None:
    policy = POLICY.partition("  placement:")[0] + "  failure: {onDeviceFailure: Evict}\n"
    (found,) = findings("-", stdin=policy)
    assert (found["rule"], found["severity"], found["line"]) == ("FTL107", "Warn", 5)
    assert found["path"] == "spec.failure.onDeviceFailure"
    assert "counts against the backoffLimit of a Job" in found["message"]
    assert findings("-", stdin=policy.replace("Evict", "Mark")) == []


def test_a_pod_that_nobody_makes_anew_and_that_would_be_evicted_is_found(tmp_path: Path) -> None:
    annotation = "metadata: {name: p, annotations: {fettle.dev/on-device-failure: Evict}"
    spec = "spec: {containers: [{name: c, image: i}]}"
    pod = f"apiVersion: v1\nkind: Pod\n{annotation}}}\n{spec}\n"
    (found,) = findings("-", stdin=pod)
    assert (found["rule"], found["severity"]) == ("FTL112", "Warn")
    assert "nobody makes it anew" in found["message"]
    assert findings("-", stdin=pod.replace("Evict", "Mark")) == []
    job = "apiVersion: batch/v1, kind: Job, name: j, uid: u"
    owner = f"ownerReferences: [{{{job}, controller: true}}]"
    assert findings("-", stdin=pod.replace(annotation, f"{annotation}, {owner}")) == []


def test_policies_of_the_settings_are_checked_as_device_policies_are(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("policies: [{name: ours, failure: {onDeviceFailure: Evict}}]\n")
    ran = fettle("-", "--settings", str(settings), stdin=GOOD)
    assert ran.returncode == 0
    assert (
        f"{settings}: policy ours: failure.onDeviceFailure: each eviction counts against the "
        "backoffLimit of a Job: write ignoreDisruptions: true (FTL107)"
    ) in ran.stderr


def test_a_policy_that_refuses_what_it_prefers_is_found_by_the_settings_thresholds(
    tmp_path: Path,
) -> None:
    policy = POLICY.partition("    requires:")[0] + "    minScore: 0.95\n    degraded: Prefer\n"
    (found,) = findings("-", stdin=policy)
    assert (found["rule"], found["severity"], found["line"]) == ("FTL108", "Warn", 6)
    assert found["path"] == "spec.placement.minScore"
    assert found["message"].startswith("0.95 refuses every device that becomes Degraded")
    assert found["fix"] == "write less than 0.8, or degraded: Allow"
    settings = tmp_path / "settings.yaml"
    settings.write_text("health: {degradedBelow: 0.97, degradedUntil: 0.98}\n")
    assert findings("-", "--settings", str(settings), stdin=policy) == []


def test_an_affinity_on_labels_that_the_settings_switch_off_is_found(tmp_path: Path) -> None:
    policy = POLICY.partition("    requires:")[0] + "    affinity: Required\n"
    assert findings("-", stdin=policy) == [], "nothing is known of the settings"
    settings = tmp_path / "settings.yaml"
    settings.write_text("mode: enforce\n")
    (found,) = findings("-", "--settings", str(settings), stdin=policy)
    assert (found["rule"], found["path"]) == ("FTL111", "spec.placement.affinity")
    settings.write_text("nodeMarks: {label: true}\n")
    assert findings("-", "--settings", str(settings), stdin=policy) == []


def test_sarif_lists_every_check() -> None:
    ran = fettle("-", "--output", "sarif", stdin=f"{POLICY}---\n{QUOTED}")
    (run,) = json.loads(ran.stdout)["runs"]
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert ids == ["FTL104", "FTL105", "FTL106"]


def test_unknown_fettle_annotations_are_found_on_objects_and_their_templates() -> None:
    job = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: j
  annotations: {fettle.dev/polcy: training, fettle.dev/injected: "{}"}
spec:
  template:
    metadata:
      annotations:
        fettle.dev/gpus: "8"
        example.com/fettle.dev: theirs
    spec: {restartPolicy: Never, containers: [{name: main, image: x}]}
"""
    found = findings("-", stdin=job)
    assert [(f["rule"], f["severity"], f["line"]) for f in found] == [
        ("FTL109", "Warn", 5),
        ("FTL109", "Warn", 10),
    ]
    assert found[0]["fix"] == "write fettle.dev/policy if that is meant"
    assert found[1]["fix"] == (
        "for this, Fettle reads fettle.dev/policy, fettle.dev/min-score and "
        "fettle.dev/on-device-failure"
    )
    held = """\
apiVersion: v1
kind: Node
metadata: {name: n1, annotations: {fettle.dev/hold: "a look"}}
"""
    assert findings("-", stdin=held) == []


def test_a_label_in_place_of_an_annotation_is_found_and_the_other_way_round() -> None:
    """Only a Namespace names its policy by a label, and nothing else says that a label is vain."""
    mistaken = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: j
  labels: {fettle.dev/policy: training}
spec:
  template:
    metadata:
      labels:
        fettle.dev/min-score: "0.7"
    spec: {restartPolicy: Never, containers: [{name: main, image: x}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {fettle.dev/hold: "yes"}}
---
apiVersion: v1
kind: Namespace
metadata:
  name: ns
  annotations: {fettle.dev/policy: training}
"""
    found = findings("-", stdin=mistaken)
    assert [(f["rule"], f["severity"], f["line"]) for f in found] == [
        ("FTL101", "Warn", 5),
        ("FTL101", "Warn", 10),
        ("FTL101", "Warn", 15),
        ("FTL101", "Warn", 21),
    ]
    assert found[0]["message"] == "Fettle reads no such label, so it is ignored"
    assert found[0]["fix"] == "write it under metadata.annotations"
    assert found[1]["fix"] == "write it under spec.template.metadata.annotations"
    assert found[3]["message"] == "a namespace names its policy by a label, so this is ignored"
    assert found[3]["fix"] == "write it under metadata.labels"
    both = mistaken.replace(
        "  labels: {", "  annotations: {fettle.dev/policy: training}\n  labels: {"
    )
    assert [f["line"] for f in findings("-", stdin=both)] == [11, 16, 22]


def test_a_namespace_may_have_its_policy_in_a_label_and_an_annotation() -> None:
    namespace = """\
apiVersion: v1
kind: Namespace
metadata:
  name: ns
  labels: {fettle.dev/policy: training}
  annotations: {fettle.dev/policy: training}
"""
    assert findings("-", stdin=namespace) == []


ROW = """\
objects:
  - name: ticket
    apiVersion: repair.example.com/v1
    kind: Ticket
    when: WHEN
    node: resource.spec.node
    family: memory
    weight: 0.8
    source: our repair desk
"""
TICKETS = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tickets.repair.example.com}
spec:
  group: repair.example.com
  names: {kind: Ticket, plural: tickets, singular: ticket}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {node: {type: string}}}
            status:
              type: object
              properties:
                phase: {type: string}
                details: {type: object, x-kubernetes-preserve-unknown-fields: true}
                counts: {type: object, additionalProperties: {type: integer}}
                conditions:
                  type: array
                  items: {type: object, properties: {type: {type: string}}}
"""


def fields_not_there(folder: Path, *expressions: str) -> list[str]:
    """What is said of each expression, with the definition among the files, and named apart."""
    rows = (
        ROW.replace("WHEN", when).replace("name: ticket", f"name: ticket-{number}")
        for number, when in enumerate(expressions)
    )
    row = "\n".join(row.partition("\n")[2].rstrip() for row in rows)
    (folder / "rules.yaml").write_text(f"objects:\n{row}\n")
    (folder / "tickets.yaml").write_text(TICKETS)
    rules, tickets = str(folder / "rules.yaml"), str(folder / "tickets.yaml")
    beside, named = findings(rules, tickets), findings(rules, "--crds", tickets)
    assert beside == named
    return [f"{one['path']}: {one['message'].split(': ')[-1]}; {one['fix']}" for one in named]


NOT_THERE = [
    ("has(resource.status.phse)", "Ticket.status has no field phse; did you mean phase?"),
    (
        "resource.status.conditions.exists(c, c.typ == 'x')",
        "Ticket.status.conditions.* has no field typ; did you mean type?",
    ),
    ("resource.stats.phase == 'x'", "Ticket has no field stats; did you mean status?"),
    (
        "has(resource.metadata.label.x)",
        "Ticket.metadata has no field label; did you mean labels?",
    ),
]


def test_a_field_that_objects_of_a_rule_cannot_have_is_found(tmp_path: Path) -> None:
    found = fields_not_there(tmp_path, *(when for when, _ in NOT_THERE))
    assert found == [f"objects[{n}].when: {said}" for n, (_, said) in enumerate(NOT_THERE)]


MAY_BE_THERE = (
    "resource.status.phase == 'Open'",
    "resource.status.details.anything.at.all == 1",
    "resource.status.counts.anything == 1",
    "resource.status.conditions[0].type == 'x'",
    "resource.metadata.labels['example.com/x'] == 'y'",
    "resource.status.conditions.filter(c, c.type == 'x').map(c, c.type)[0] == 'x'",
)


def test_a_field_that_may_be_there_is_no_mistake(tmp_path: Path) -> None:
    assert fields_not_there(tmp_path, *MAY_BE_THERE) == []


def test_of_a_kind_without_a_definition_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(ROW.replace("WHEN", "resource.statis.phase == 'x'"))
    assert findings(str(tmp_path / "rules.yaml")) == []


def test_what_kubernetes_own_objects_cannot_have_is_known(tmp_path: Path) -> None:
    row = ROW.replace("repair.example.com/v1", "v1").replace("Ticket", "Pod")
    when = "resource.spec.nodName == 'x'"
    (tmp_path / "rules.yaml").write_text(
        row.replace("WHEN", when).replace(".node\n", ".nodeName\n")
    )
    (one,) = findings(str(tmp_path / "rules.yaml"))
    assert one["fix"] == "did you mean nodeName?"


@pytest.mark.parametrize(
    ("of", "when", "fix"),
    [
        ("v1 Node", "has(resource.status.nodeinfo)", "did you mean nodeInfo?"),
        ("v1 Node", "resource.status.conditions.exists(c, c.typ == 'x')", "did you mean type?"),
        ("v1 Node", "resource.spec.unschedulable", ""),
        ("v1 Node", "resource.status.capacity['nvidia.com/gpu'] == '8'", ""),
        ("v1 Node", "resource.metadata.labels['a'] == 'b'", ""),
        ("v1 Pod", "resource.status.phse == 'Failed'", "did you mean phase?"),
        ("v1 Pod", "resource.status.containerStatuses[0].restartCount > 3", ""),
        ("apps/v1 Deployment", "resource.status.readyReplica < 2", "did you mean readyReplicas?"),
        ("v1 ConfigMap", "resource.dat['x'] == 'y'", "did you mean data?"),
        ("coordination.k8s.io/v1 Lease", "resource.spec.renewTime != ''", ""),
        ("v1 Event", "resource.involvedObject.kind == 'Node'", ""),
        (
            "resource.k8s.io/v1 ResourceClaim",
            "has(resource.status.alocation)",
            "did you mean allocation?",
        ),
    ],
)
def test_what_others_write_into_kubernetes_own_objects_is_known(
    of: str, when: str, fix: str, tmp_path: Path
) -> None:
    api_version, kind = of.split()
    row = ROW.replace("repair.example.com/v1", api_version).replace("Ticket", kind)
    row = row.replace("WHEN", when).replace("resource.spec.node\n", "resource.metadata.name\n")
    (tmp_path / "rules.yaml").write_text(row)
    found = [f for f in findings(str(tmp_path / "rules.yaml")) if f["path"].endswith("when")]
    assert [one["fix"] for one in found] == ([fix] if fix else [])


def test_the_recipes_read_only_fields_that_their_projects_define() -> None:
    kinds = ROOT / "tests" / "controlplane" / "object_kinds.yaml"
    recipes = ROOT / "deploy" / "samples" / "rules" / "objects.yaml"
    assert findings(str(recipes), "--crds", str(kinds)) == []


def test_a_pattern_in_a_job_set_that_is_no_regular_expression_is_found() -> None:
    """JobSet accepts it, logs an error, and takes it as one that matches nothing:
    kubernetes-sigs/jobset, pkg/controllers/failure_policy.go."""
    job_set = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: j}
spec:
  failurePolicy:
    rules:
    - name: a
      action: FailJobSet
      onJobFailureMessagePatterns:
      - 'exit code (1|2)'
      - '%s'
  replicatedJobs:
  - name: w
    template: {spec: {template: {spec: {containers: [{name: c, image: i}]}}}}
"""
    for pattern in ("(bad", "(?=a)", "a{2000}"):
        (one,) = findings("-", stdin=job_set % pattern)
        assert (one["rule"], one["severity"], one["line"]) == ("FTL247", "Warn", 11), pattern
        assert "no regular expression" in one["message"]
    for pattern in (
        "[Ee]xit code [0-9]+",
        r"\bXid 79\b",
        "(?i)ecc",
        "",
        "(" * 400,
        "[^a]{1000}" * 40,
    ):
        assert findings("-", stdin=job_set % pattern) == [], pattern


def test_a_pod_that_may_hold_its_devices_for_hours_after_its_end_is_found() -> None:
    pod = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  terminationGracePeriodSeconds: %s
  containers: [{name: c, image: i, resources: {limits: {%s: 1}}}]
"""
    (one,) = findings("-", stdin=pod % (604800, "nvidia.com/gpu"))
    assert (one["rule"], one["severity"], one["line"]) == ("FTL117", "Warn", 5)
    assert one["message"] == "the pod may hold its devices for 168 hours after it should end"
    for seconds, said in ((3601, "1 hours"), (5400, "1.5 hours"), (86400, "24 hours")):
        (one,) = findings("-", stdin=pod % (seconds, "nvidia.com/gpu"))
        assert f"for {said} after" in one["message"]
    for seconds in (0, 30, 60, 300, 600, 1800, 3600):  # as public manifests have them
        assert findings("-", stdin=pod % (seconds, "nvidia.com/gpu")) == []
    assert findings("-", stdin=pod % (604800, "cpu")) == []
