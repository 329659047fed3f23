"""`fettle rules test`, as users call it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fettle.cli.linted import called

CONDITION = """\
conditions:
  - {name: burn-in, type: GpuBurnIn, faulty: true, family: memory, weight: 0.5, source: ours}
"""
LABEL = """\
labels:
  - {name: check, key: 'example\\.com/x', value: failed, family: driver, weight: 0.8, source: ours}
"""
TICKET = """\
objects:
  - name: ticket
    apiVersion: repair.example.com/v1
    kind: Ticket
    when: resource.status.phase == 'Open'
    node: resource.spec.node
    message: "{resource.spec.what}"
    family: memory
    weight: 0.8
    source: our repair desk
"""
NODE = """\
apiVersion: v1
kind: Node
metadata: {name: gpu-7}
status:
  capacity: {nvidia.com/gpu: "8"}
  allocatable: {nvidia.com/gpu: "8"}
  conditions:
    - {type: GpuBurnIn, status: "True", reason: Failed, message: 3 of 8 GPUs failed}
    - {type: AcceleratedHardwareReady, status: "False", reason: NvidiaXID31Error}
"""
OPEN = """\
apiVersion: repair.example.com/v1
kind: Ticket
metadata: {name: t-17, namespace: repair-desk, uid: a}
spec: {node: gpu-7, what: row remapping failed}
status: {phase: Open}
"""
SLICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpu-7-a}
spec:
  driver: gpu.example.com
  nodeName: gpu-7
  pool: {name: gpu-7, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
"""
NEW = OPEN.replace("t-17", "t-18").replace("status: {phase: Open}\n", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "node.yaml").write_text(NODE)
    return tmp_path


def tried(
    folder: Path, rules: str, *arguments: str, objects: str = ""
) -> subprocess.CompletedProcess[str]:
    (folder / "rules.yaml").write_text(rules)
    if objects:
        (folder / "snapshot" / "objects.yaml").write_text(objects)
    given = (str(folder / "rules.yaml"), "--snapshot", str(folder / "snapshot"))
    return called("rules", "test", *given, *arguments)


def said(folder: Path, rules: str, objects: str = "") -> dict[str, dict[str, Any]]:
    ran = tried(folder, rules, "--output", "json", objects=objects)
    return {one["row"]: one for one in json.loads(ran.stdout)}


def test_each_row_shows_what_it_says_of_which_node(folder: Path) -> None:
    ran = tried(folder, CONDITION + LABEL)
    assert ran.returncode == 0
    assert ran.stdout.splitlines() == [
        "conditions  burn-in: says 1",
        "    + node gpu-7  0.5 memory: GpuBurnIn is True (Failed): 3 of 8 GPUs failed",
        "labels  check: says nothing",
    ]
    assert "2 rows, 1 says nothing" in ran.stderr


def test_a_row_that_says_nothing_fails_only_on_request(folder: Path) -> None:
    assert tried(folder, CONDITION + LABEL, "--fail-on", "silent").returncode == 1
    assert tried(folder, CONDITION, "--fail-on", "silent").returncode == 0


def test_a_row_that_replaces_a_shipped_one_shows_what_that_said(folder: Path) -> None:
    row = "xids: [{name: 31, class: defect, family: memory, text: ours, source: ours}]"
    found = said(folder, row)["31"]
    assert [(one["weight"], one["family"]) for one in found["says"]] == [(1.0, "memory")]
    assert [(one["weight"], one["family"]) for one in found["instead"]] == [(0.0, "driver")]


def test_a_row_about_objects_is_evaluated_on_those_of_the_snapshot(folder: Path) -> None:
    (fact,) = said(folder, TICKET, OPEN)["ticket"]["says"]
    assert fact["about"] == "node gpu-7"
    assert fact["said"] == "Ticket repair-desk/t-17: row remapping failed"


def test_what_an_object_in_a_namespace_says_is_shown_as_bounded(folder: Path) -> None:
    (fact,) = said(folder, TICKET, OPEN)["ticket"]["says"]
    assert (fact["weight"], fact["namespace"]) == (0.35, "repair-desk")
    trusted = TICKET + "    namespaces: [repair-desk]\n"
    (fact,) = said(folder, trusted, OPEN)["ticket"]["says"]
    assert (fact["weight"], fact["namespace"]) == (0.8, "")


def test_what_a_row_says_shows_whether_it_makes_unknown_or_is_latched(folder: Path) -> None:
    trusted = TICKET + "    namespaces: [repair-desk]\n"
    for kind, begins in {
        "unknown": "    + makes node gpu-7 Unknown: Ticket repair-desk/t-17: row remapping",
        "latched": "    + node gpu-7  0.8 memory, latched: Ticket repair-desk/t-17: row",
        "level": "    + node gpu-7  0.8 memory: Ticket repair-desk/t-17: row remapping",
    }.items():
        row = f"{trusted}    evidence: {kind}\n"
        assert tried(folder, row, objects=OPEN).stdout.splitlines()[1].startswith(begins)
        (fact,) = said(folder, row, OPEN)["ticket"]["says"]
        assert fact["evidence"] == kind


def test_an_object_that_matches_and_names_no_node_that_there_is_is_told_of(folder: Path) -> None:
    for node, why in {
        "'node-that-is-not'": "there is no node 'node-that-is-not'",
        "''": "`node` names none",
    }.items():
        row = TICKET.replace("node: resource.spec.node", f'node: "{node}"')
        ran = tried(folder, row, objects=OPEN)
        assert ran.stdout.splitlines() == [
            "objects  ticket: matches 1, and says nothing of 1 Ticket",
            f"    ! matches 1 object Ticket.repair.example.com repair-desk/t-17: {why}",
        ]
        found = said(folder, row, OPEN)["ticket"]
        assert found["absent"] == {"Ticket.repair.example.com repair-desk/t-17": why}


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("nvidia.com/gpu index:99", ": it has 8 nvidia.com/gpu"),
        ("nvidia.com/gpu 8", ": it has 8 nvidia.com/gpu"),
        ("amd.com/gpu index:0", ": it has 0 amd.com/gpu"),
        ("gpu.example.com/gpu-7/gpu-9", ""),
        ("nvidia.com/gpu index:7", None),
        ("nvidia.com/gpu GPU-1a2b3c4d-0000-1111-2222-333344445555", None),
        ("gpu.example.com/gpu-7/gpu-0", None),
        ("", None),
    ],
)
def test_a_device_that_its_node_does_not_have_is_told_of(
    folder: Path, device: str, why: str | None
) -> None:
    row = f"""{TICKET}    device: "'{device}'"\n"""
    ran = tried(folder, row, objects=f"{OPEN}---\n{SLICE}")
    has_not = f"t-17: node gpu-7 has no such device as {device!r}{why}\n"
    assert (has_not in ran.stdout) is (why is not None)
    assert ("no such device" in ran.stdout) is (why is not None)


def test_a_device_that_cannot_be_read_is_told_of_and_blames_no_node(folder: Path) -> None:
    ran = tried(folder, f"""{TICKET}    device: "'gpu-3'"\n""", objects=OPEN)
    assert ran.returncode == 1
    row, why = ran.stdout.splitlines()
    assert row == "objects  ticket: says nothing of 1 Ticket"
    assert why.startswith("    ? cannot be told of 1 object Ticket.repair")
    assert "'gpu-3' names none" in why


def test_why_a_part_of_a_message_cannot_be_told_is_said(folder: Path) -> None:
    row = TICKET.replace("{resource.spec.what}", "{resource.spec.nope}, since ever")
    ran = tried(folder, row, objects=OPEN)
    assert ran.returncode == 0
    assert "Ticket repair-desk/t-17: ?, since ever" in ran.stdout
    assert (
        "? a part of the message cannot be told of 1 object Ticket.repair.example.com "
        "repair-desk/t-17: message: no such member in mapping: 'nope'"
    ) in ran.stdout


def test_what_an_expression_gives_instead_is_said(folder: Path) -> None:
    ran = tried(folder, TICKET.replace("node: resource.spec.node", "node: '7'"), objects=OPEN)
    assert ran.returncode == 1
    assert "t-17: node: it gives an int, not a text or a list of texts\n" in ran.stdout


def test_a_row_that_cannot_be_evaluated_on_an_object_says_on_which_and_fails(folder: Path) -> None:
    ran = tried(folder, TICKET, objects=f"{OPEN}---\n{NEW}")
    assert ran.returncode == 1
    assert "objects  ticket: says 1" in ran.stdout
    assert "? cannot be told of 1 object Ticket.repair.example.com repair-desk/t-18: when: no" in (
        ran.stdout
    )


def test_a_row_about_objects_says_how_many_there_are(folder: Path) -> None:
    assert "objects  ticket: says nothing: there is no Ticket\n" in tried(folder, TICKET).stdout
    closed = OPEN.replace("phase: Open", "phase: Closed")
    assert "objects  ticket: says nothing of 1 Ticket\n" in (
        tried(folder, TICKET, objects=closed).stdout
    )


def test_an_object_in_another_version_than_its_row_reads_is_told_of(folder: Path) -> None:
    older = OPEN.replace("example.com/v1", "example.com/v1beta1")
    ran = tried(folder, TICKET, objects=older)
    only = "there is no Ticket of repair.example.com/v1, only of v1beta1"
    assert ran.stdout == f"objects  ticket: says nothing: {only}\n"
    assert "not a kind that Fettle reads" not in ran.stderr
    both = tried(folder, TICKET, objects=f"{older}---\n{OPEN.replace('t-17', 't-18')}")
    assert both.stdout.startswith("objects  ticket: says 1\n")


def test_an_object_of_a_kind_that_fettle_reads_is_seen_whole(folder: Path) -> None:
    row = """\
objects:
  - name: note
    apiVersion: v1
    kind: Node
    when: resource.metadata.annotations['example.com/note'] == 'bad'
    node: resource.metadata.name
    family: bus
    weight: 0.4
    source: ours
"""
    node = NODE.replace("{name: gpu-7}", "{name: gpu-8, annotations: {example.com/note: bad}}")
    assert [one["about"] for one in said(folder, row, node)["note"]["says"]] == ["node gpu-8"]


def test_rows_about_metrics_are_not_tried(folder: Path) -> None:
    row = """\
metrics:
  - {name: hot, exporter: dcgm, query: DCGM_FI_DEV_GPU_TEMP > 95, family: thermal, weight: 0.3,
     text: hot, source: ours}
"""
    ran = tried(folder, row, "--fail-on", "silent")
    assert ran.returncode == 0
    assert "metrics  hot: no object tells: Prometheus is asked" in ran.stdout


def test_a_file_with_mistakes_is_not_tried(folder: Path) -> None:
    ran = tried(folder, CONDITION.replace("faulty: true, ", ""))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "conditions[0]: row 'burn-in': faulty is missing; say which status" in ran.stderr


def test_what_cannot_be_read_is_an_error(folder: Path) -> None:
    for given in (["absent.yaml"], ["rules.yaml", "--snapshot", "absent"]):
        (folder / "rules.yaml").write_text(CONDITION)
        ran = called("rules", "test", *given, cwd=folder)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr.startswith("fettle: ")


def test_a_snapshot_and_a_cluster_are_not_both_read(folder: Path) -> None:
    ran = tried(folder, CONDITION, "--context", "other")
    assert ran.returncode == 2
    assert "mutually exclusive" in ran.stderr
