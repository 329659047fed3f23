"""`fettle lint --cluster` without files: what exists in a cluster already."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fettle.cli.linting.existing import Existing, Progress, read_existing, write_reports
from fettle.cli.linting.reports import LintReport
from fettle.cli.sources import Reading
from fettle.config import WorkloadSettings
from fettle.lint import Severity, workload_kinds
from tests.fettle.cli.linted import fettle
from tests.fettle.client.fake_api import FakeApi, fake_api

SERVED = {
    "/api/v1": [("pods", "Pod"), ("namespaces", "Namespace"), ("secrets", "Secret")],
    "apps/v1": [("deployments", "Deployment"), ("deployments/scale", "Scale")],
    "batch/v1": [("jobs", "Job")],
    "resource.k8s.io/v1": [("resourceclaims", "ResourceClaim"), ("deviceclasses", "DeviceClass")],
}
DISCOVERED = {
    path: [{"name": name, "kind": kind} for name, kind in kinds] for path, kinds in SERVED.items()
}
JOB_OF = [
    {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": True}
]


SPEC = {"containers": [{"name": "main", "image": "x"}]}


def job(name: str, namespace: str = "team", **more: Any) -> dict[str, Any]:
    """With a claim that no container uses (FTL036), as the API server stores it."""
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "x"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    }
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    metadata |= {"managedFields": [{"manager": "kubectl"}], **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"template": {"spec": pod}}, **more}


def linted(
    folder: Path, prepare: Callable[[FakeApi], object], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """The API server has a thread of its own, since the command has this one."""
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as thread:
        api = FakeApi()
        api.discovered = DISCOVERED
        prepare(api)
        runner.run(api.start())
        config = str(api.kubeconfig(folder))
        over = asyncio.Event()
        serving = thread.submit(runner.get_loop().run_until_complete, over.wait())
        try:
            return fettle("--kubeconfig", config, *arguments)
        finally:
            runner.get_loop().call_soon_threadsafe(over.set)
            serving.result(10)
            runner.run(api.stop())


def with_template(api: FakeApi, *namespaces: str) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    for each in namespaces:
        metadata = {"name": "gpu", "namespace": each, "uid": f"uid-{each}"}
        spec = {"spec": {"devices": {"requests": [request]}}}
        api.put("resourceclaimtemplates", {"metadata": metadata, "spec": spec})
    api.put("deviceclasses", {"metadata": {"name": "gpu.example.com", "uid": "c"}, "spec": {}})


def two_teams(api: FakeApi) -> None:
    api.put("jobs", job("train"))
    api.put("jobs", job("other", "zoo"))
    with_template(api, "team", "zoo")
    label = {"fettle.dev/policy": "trainin"}
    api.put("namespaces", {"metadata": {"name": "team", "uid": "n", "labels": label}})


def test_what_exists_is_checked_and_told_by_namespace(tmp_path: Path) -> None:
    ran = linted(tmp_path, two_teams)
    places = [line for line in ran.stdout.splitlines() if not line.startswith(" ")]
    assert places == [
        "the cluster: 1 finding",
        "Warn FTL101 ignored-policy: Namespace team",
        "",
        "namespace team: 1 finding",
        "Warn FTL036 unused-claim: Job team/train",
        "",
        "namespace zoo: 1 finding",
        "Warn FTL036 unused-claim: Job zoo/other",
    ]
    assert "4 objects: 0 to deny, 3 to warn about" in ran.stderr
    assert ran.returncode == 0
    assert linted(tmp_path, two_teams, "--fail-on", "warn").returncode == 1


def test_one_namespace_needs_rights_there_alone(tmp_path: Path) -> None:
    ran = linted(tmp_path, two_teams, "-n", "zoo", "-o", "json")
    (found,) = json.loads(ran.stdout)
    assert (found["file"], found["line"]) == ("/apis/batch/v1/namespaces/zoo/jobs/other", 0)
    assert (found["namespace"], found["name"]) == ("zoo", "other")


def test_what_another_object_made_and_what_has_ended_is_left_out(tmp_path: Path) -> None:
    def prepare(api: FakeApi) -> None:
        api.put("jobs", job("made", metadata={"ownerReferences": JOB_OF}))
        done = [{"type": "Complete", "status": "True"}]
        api.put("jobs", job("done", status={"conditions": done}))
        pod = job("over")["spec"]["template"]["spec"]
        metadata = {"name": "over", "namespace": "team", "uid": "o"}
        api.put("pods", {"metadata": metadata, "spec": pod, "status": {"phase": "Failed"}})

    ran = linted(tmp_path, prepare)
    assert (ran.stdout, ran.returncode) == ("", 0)
    assert "0 objects: 0 to deny, 0 to warn about" in ran.stderr


def test_a_finding_is_ignored_by_an_annotation_of_the_object(tmp_path: Path) -> None:
    def prepare(api: FakeApi) -> None:
        ignoring = {
            "ignore-check.fettle.dev/FTL036": "the sidecar uses it",
            "ignore-check.fettle.dev/FTL001": "why",
        }
        api.put("jobs", job("train", metadata={"annotations": ignoring}))
        with_template(api, "team")

    ran = linted(tmp_path, prepare)
    assert ran.stdout == ""
    assert "2 objects: 0 to deny, 0 to warn about, 1 ignored" in ran.stderr


def test_a_kind_that_may_not_be_listed_is_said_and_the_rest_is_checked(tmp_path: Path) -> None:
    def prepare(api: FakeApi) -> None:
        two_teams(api)
        api.forbidden = {("list", "deployments")}

    ran = linted(tmp_path, prepare)
    assert "you may not list deployments: they are not checked" in ran.stderr
    assert "Job team/train" in ran.stdout


def test_who_may_list_nothing_is_told_and_it_is_no_success(tmp_path: Path) -> None:
    def prepare(api: FakeApi) -> None:
        api.forbidden = {("list", name) for kinds in SERVED.values() for name, _ in kinds}

    ran = linted(tmp_path, prepare)
    assert (ran.returncode, "you may list nothing that is checked" in ran.stderr) == (2, True)


@pytest.mark.parametrize("output", ["sarif", "github"])
def test_what_is_in_no_file_has_no_line(tmp_path: Path, output: str) -> None:
    ran = linted(tmp_path, two_teams, "-o", output)
    if output == "github":
        assert ran.stdout.splitlines()[0].startswith("::warning title=FTL101 ")
        return
    first, *_ = json.loads(ran.stdout)["runs"][0]["results"]
    (location,) = first["locations"]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "/api/v1/namespaces/team"}}


def test_more_objects_than_are_checked_are_said(tmp_path: Path) -> None:
    async def read() -> Any:
        async with fake_api() as api:
            api.discovered = DISCOVERED
            for at in range(7):
                api.put("jobs", job(f"j{at}"))
            reading = Reading(api.kubeconfig(tmp_path))
            return await read_existing(
                reading, workload_kinds.POD_TEMPLATES, "", Progress(), most=5
            )

    found = asyncio.run(read())
    assert (len(found.documents), found.whole) == (5, False)
    assert "more than 5 objects: the rest is not checked" in found.notes[0]


REPORTS = [
    {"name": "reports", "kind": "Report"},
    {"name": "clusterreports", "kind": "ClusterReport"},
]
MINE = {"app.kubernetes.io/managed-by": "fettle"}


def reported(folder: Path, *, whole: bool, namespace: str = "") -> tuple[list[str], dict[str, Any]]:
    """Three findings in `team`, none in `zoo`, and reports of both from before."""

    async def write() -> tuple[list[str], dict[str, Any]]:
        async with fake_api() as api:
            api.discovered = {"openreports.io/v1alpha1": REPORTS}
            for each in ("team", "zoo"):
                old = {"name": "fettle", "namespace": each, "labels": MINE}
                api.put("reports", {"metadata": old, "results": []})
            report = LintReport(
                *("FTL036", Severity.WARN, "f", 0, "Job", "team", "j", "spec", "x" * 5000, "")
            )
            existing = Existing([], [], whole)
            reading = Reading(api.kubeconfig(folder))
            said = await write_reports(reading, [report] * 3, existing, namespace, most=2)
            return said, api.objects["reports"]

    return asyncio.run(write())


def test_a_report_is_bounded_and_says_how_many_findings_there_are(tmp_path: Path) -> None:
    said, kept = reported(tmp_path, whole=True)
    assert said == [
        "reports in the cluster: 1 written, 1 removed",
        "1 findings are in no report: each has at most 2",
    ]
    assert list(kept) == ["team/fettle"]
    report = kept["team/fettle"]
    assert (len(report["results"]), report["summary"]["warn"]) == (2, 3)
    assert len(report["results"][0]["message"]) == 1024


def test_reports_stay_where_not_everything_was_read(tmp_path: Path) -> None:
    _, kept = reported(tmp_path, whole=False)
    assert sorted(kept) == ["team/fettle", "zoo/fettle"]
    _, kept = reported(tmp_path, whole=True, namespace="team")
    assert sorted(kept) == ["team/fettle", "zoo/fettle"]


def test_reports_are_for_what_exists(tmp_path: Path) -> None:
    ran = fettle("--report", "-", stdin="")
    assert (ran.returncode, "--report is for --cluster without FILE" in ran.stderr) == (2, True)


def test_a_snapshot_without_files_is_what_is_checked(tmp_path: Path) -> None:
    wrong = {"fettle.dev/min-score": "seven"}
    for name, more in (("alone", {}), ("made", {"ownerReferences": JOB_OF})):
        metadata = {"name": name, "namespace": "team", "annotations": wrong, **more}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": SPEC}
        (tmp_path / f"{name}.json").write_text(json.dumps(pod))
    ran = fettle("--snapshot", str(tmp_path))
    assert f"{tmp_path}/alone.json:1: Warn FTL101 ignored-policy: Pod team/alone" in ran.stdout
    assert "team/made" not in ran.stdout


def test_without_files_and_without_a_cluster_it_says_what_to_name() -> None:
    ran = fettle()
    assert (ran.returncode, "or - for standard input; with --cluster" in ran.stderr) == (2, True)


def test_every_kind_that_holds_pods_or_claims_is_looked_for() -> None:
    settings = [WorkloadSettings(group="example.com", kind="Gang", templates=("spec.template",))]
    kinds = workload_kinds.checked(workload_kinds.with_settings(settings))
    assert {("jobset.x-k8s.io", "JobSet"), ("", "Pod"), ("example.com", "Gang")} <= kinds
    assert ("resource.k8s.io", "ResourceClaimTemplate") in kinds
