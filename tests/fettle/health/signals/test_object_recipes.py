"""deploy/samples/rules/objects.yaml: what each recipe says of objects as their producers write
them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from fettle.api import ObjectFact
from fettle.cel import ObjectJudge, RowOutcome
from fettle.health import SignalRules, load_rules, rule_mistakes

SAMPLE = Path(__file__).parents[4] / "deploy" / "samples" / "rules" / "objects.yaml"
NOW = 1_790_000_000.0  # 2026-09-21T14:13:20Z
GPU = "GPU-a1b2c3d4-e5f6-a7b8-c9d0-e1f2a3b4c5d6"


class Case(NamedTuple):
    row: str
    object: str
    said: tuple[tuple[str, str, str], ...] = ()
    """Node, device, and how what people read begins."""


RESET = """
metadata: {name: maintenance-gpu-7}
spec: {nodeName: gpu-7%s}
status:
  startTime: "2026-09-21T13:53:04Z"
  completionTime: "2026-09-21T13:54:24Z"
  conditions:
    - {type: Ready, status: "True", reason: ReadyForReset, message: Node ready for GPU reset}
    - {type: ResetJobCompleted, status: "True", reason: ResetJobFailed, message: GPU reset failed}
    - {type: Complete, status: "True", reason: %s, message: GPU reset failed}
"""
SLURMD = """
metadata: {name: slinky-0, namespace: slurm}
spec: {nodeName: gpu-7}
status:
  conditions:
    - {type: Ready, status: "True"}
    - {type: SlurmNodeStateIdle, status: "True"}
    - {type: %s, status: "%s", message: "%s"}
"""
MACHINE = """
metadata: {name: md-0-abc, namespace: default}
spec: {clusterName: c}
status:
  nodeRef: {name: gpu-7}
  conditions:
    - {type: NodeReady, status: "True", reason: NodeReady, message: ""}
    - {type: HealthCheckSucceeded, status: "%s", reason: %s, message: ""}
"""
MODULES = """
metadata: {name: gpu-7, creationTimestamp: "2026-09-21T13:00:00Z"}
spec:
  modules:
    - name: amdgpu
      namespace: kmm
      config: {kernelVersion: 6.8.0-1, containerImage: "amdgpu:2"}
%s
"""
LOADED = """
status:
  modules:
    - name: amdgpu
      namespace: kmm
      bootId: 1c1d
      config: {kernelVersion: 6.8.0-1, containerImage: "amdgpu:%s"}
"""
MORE = """\
    - name: sound
      namespace: kmm
      config: {kernelVersion: 6.8.0-1, containerImage: "sound:1"}
"""
NOT_LOADED = "a kernel module is not loaded as it is wanted"
DOMAIN = """
metadata: {name: imex, namespace: ml, creationTimestamp: "2026-09-21T%sZ"}
spec: {numNodes: 2}
status:
  status: NotReady
  nodes:
    - {name: gpu-7, ipAddress: 10.0.0.7, cliqueID: a.0, index: 0, status: Ready}
    - {name: gpu-8, ipAddress: 10.0.0.8, cliqueID: a.0, index: 1, status: NotReady}
"""
CASES = {
    "a failed reset of one GPU": Case(
        "nvsentinel-gpu-reset",
        RESET % (f", selector: {{uuids: [{GPU}]}}", "ResetJobFailed"),
        (("gpu-7", f"nvidia.com/gpu {GPU}", "the reset failed: ResetJobFailed"),),
    ),
    "a failed reset of all GPUs": Case(
        "nvsentinel-gpu-reset",
        RESET % ("", "RestoreTimeoutExceeded"),
        (("gpu-7", "", "the reset failed: RestoreTimeoutExceeded"),),
    ),
    "a failed reset of GPUs by their addresses": Case(
        "nvsentinel-gpu-reset",
        RESET % (f", selector: {{uuids: [{GPU}], pciBusIDs: ['0000:1B:00.0']}}", "ResetJobFailed"),
        (
            ("gpu-7", f"nvidia.com/gpu {GPU}", "the reset failed: ResetJobFailed"),
            ("gpu-7", "nvidia.com/gpu pci:0000:1B:00.0", "the reset failed: ResetJobFailed"),
        ),
    ),
    "a reset that failed a day ago": Case(
        "nvsentinel-gpu-reset",
        (RESET % ("", "ResetJobFailed")).replace("09-21T13:54:24Z", "09-20T13:54:24Z"),
    ),
    "a reset that succeeded": Case("nvsentinel-gpu-reset", RESET % ("", "GPUResetSucceeded")),
    "a reset that has not begun": Case(
        "nvsentinel-gpu-reset", "{metadata: {name: m}, spec: {nodeName: gpu-7}}"
    ),
    "a Slurm node that is down": Case(
        "slinky-node-failed",
        SLURMD % ("SlurmNodeStateDown", "True", "Not responding"),
        (("gpu-7", "", "Slurm says SlurmNodeStateDown"),),
    ),
    "a Slurm node that is down no more": Case(
        "slinky-node-failed", SLURMD % ("SlurmNodeStateDown", "False", "")
    ),
    "a Slurm node that is drained": Case(
        "slinky-node-drained",
        SLURMD % ("SlurmNodeStateDrain", "True", "kernel update"),
        (("gpu-7", "", "Slurm drains it: kernel update"),),
    ),
    "any other pod": Case(
        "slinky-node-failed", "{metadata: {name: p, namespace: ml}, spec: {}, status: {}}"
    ),
    "a Machine that its health check calls unhealthy": Case(
        "cluster-api-machine-unhealthy",
        MACHINE % ("False", "UnhealthyNode"),
        (("gpu-7", "", "Cluster API: UnhealthyNode"),),
    ),
    "a sound Machine": Case(
        "cluster-api-machine-unhealthy", MACHINE % ("True", "HealthCheckSucceeded")
    ),
    "a module that is not loaded": Case(
        "kmm-module-not-loaded", MODULES % "", (("gpu-7", "", f"{NOT_LOADED}: amdgpu"),)
    ),
    "the second of two modules is not loaded": Case(
        "kmm-module-not-loaded",
        (MODULES % (LOADED % "2")).replace("status:", f"{MORE}status:"),
        (("gpu-7", "", f"{NOT_LOADED}: sound"),),
    ),
    "a module that is being loaded": Case(
        "kmm-module-not-loaded", (MODULES % "").replace("13:00:00", "14:10:00")
    ),
    "a module of another version": Case(
        "kmm-module-not-loaded",
        MODULES % (LOADED % "1"),
        (("gpu-7", "", f"{NOT_LOADED}: amdgpu"),),
    ),
    "a module that is loaded": Case("kmm-module-not-loaded", MODULES % (LOADED % "2")),
    "a domain that does not become ready": Case(
        "compute-domain-not-ready", DOMAIN % "13:00:00", (("gpu-8", "", "it is not ready"),)
    ),
    "a domain that forms": Case("compute-domain-not-ready", DOMAIN % "14:10:00"),
}


@pytest.fixture(scope="module")
def rules() -> SignalRules:
    return load_rules(SAMPLE)


@pytest.fixture(scope="module")
def outcomes(rules: SignalRules) -> dict[str, RowOutcome]:
    async def judge() -> dict[str, RowOutcome]:
        judge, found = ObjectJudge(), {}
        for name, case in CASES.items():
            raw = json.dumps(yaml.safe_load(case.object)).encode()
            row = rules.objects[case.row].expressions
            (found[name],) = await judge.judge((row,), raw, NOW)
        await judge.close()
        return found

    return asyncio.run(judge())


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_says_what_its_producer_means(name: str, outcomes: dict[str, RowOutcome]) -> None:
    outcome = outcomes[name]
    assert outcome.problem == ""

    def shown(fact: ObjectFact, begins: str) -> Any:
        return fact.node, fact.device, fact.said[: len(begins)]

    expected = CASES[name].said
    assert len(outcome.facts) == len(expected)
    assert [shown(f, e[2]) for f, e in zip(outcome.facts, expected, strict=True)] == [*expected]


def test_each_recipe_has_a_case_that_it_names_and_one_that_it_does_not(rules: SignalRules) -> None:
    assert rule_mistakes(SAMPLE.read_text(), "objects.yaml") == []
    assert {case.row for case in CASES.values() if case.said} == set(rules.objects)


def test_the_language_differs_from_kubernetes_as_the_page_of_rules_says() -> None:
    async def conditions() -> tuple[bool | str, ...]:
        judge = ObjectJudge()
        given = json.dumps({"resource": {"count": 1, "share": 1.0}}).encode()
        asked = (
            *("1 == 1.0", "'1' != 1", "resource.count == null", "resource.count == resource.share"),
            *("double(resource.count) == 1.0", "!has(resource.a.b)"),
        )
        found = await judge.conditions(asked, given)
        await judge.close()
        return found

    *unknown, double, absent = asyncio.run(conditions())
    assert all("no matching overload" in str(one) for one in unknown)
    assert (double, absent) == (True, True)
