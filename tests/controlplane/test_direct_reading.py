"""Commands without a server, on a real API server: with the rights that docs/without-a-server.md
names and no others, and as people choose a context and another user."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies, define_reports, define_workloads
from tests.controlplane.fettle_process import REPOSITORY
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.test_browse_access import run
from tests.fettle.cli.test_ui import page_of

PAGE = REPOSITORY / "docs" / "without-a-server.md"
LOST = [objects.taint("gpu.nvidia.com/gpu-lost", "None")]
RBAC = "rbac.authorization.k8s.io"
READER = "system:serviceaccount:default:reader"

NO_SUCH_CLASS = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: none.example.com}}]}}
"""


def shipped_role() -> Any:
    """The ClusterRole of the page."""
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return yaml.safe_load(found[1])


@pytest.fixture
async def reader(control_plane: ControlPlane, api: Api, kubelet: Kubelet) -> Path:
    """The kubeconfig of a ServiceAccount with that role. A pod runs on a node with a fault, and its
    Job names the policy `training`; a DRA device is lost."""
    account = {"name": "reader", "namespace": "default"}
    await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    await api.create(shipped_role())
    await api.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "fettle-direct"},
            "subjects": [{"kind": "ServiceAccount", **account}],
        }
    )
    broken = objects.node_condition("CperHardwareErrorFatal", "True", "CPERFatal", "memory error")
    await create_node(api, objects.node("bad", 8, conditions=[broken]))
    lost, sound = objects.device("gpu-0"), objects.device("gpu-1")
    await create_dra_node(api, "dra", [{**lost, "taints": LOST}, sound])
    job = await api.create(objects.job("j", job_annotations={"fettle.dev/policy": "training"}))
    pod = objects.pod("p", gpus=1)
    pod["spec"]["nodeName"] = "bad"
    pod["metadata"]["ownerReferences"] = [
        {
            **{name: job[name] for name in ("apiVersion", "kind")},
            **{name: job["metadata"][name] for name in ("name", "uid")},
            "controller": True,
        }
    ]
    await api.create(pod)
    await waiting.in_phase(api, "p", "Running")
    return await control_plane.kubeconfig_for_service_account("reader", "default")


async def told(reader: Path, folder: Path, *arguments: str, code: int = 0) -> tuple[Any, list[str]]:
    """The JSON of a command, and the sentences on standard error."""
    ended, said = await run([*arguments, "-o", "json"], reader, folder)
    assert ended == code, said
    start = said.index("{\n")
    return json.loads(said[start:]), said[:start].splitlines()


async def test_the_page_of_an_account_that_may_only_read_follows_the_cluster(
    reader: Path, api: Api, tmp_path: Path
) -> None:
    async with page_of(reader, tmp_path, "--no-open") as page:
        assert (await page.get("/"))[0] == 200
        assert (await page.get("/fleet"))[0] == 401
        fleet = await page.told("/fleet", lambda told: len(told["nodes"]) == 2)
        states = {name: state for name, _, _, state, *_ in fleet["nodes"]}
        assert states == {"bad": "U", "dra": "H"}
        headline = await page.told("/headline", lambda told: told["atRisk"])
        assert headline["mode"] == "not known"
        assert "judged as in observe" in headline["problems"][0]
        await page.told(
            "/pods?at-risk=true",  # its workload, which names the policy, is asked for by and by
            lambda told: (
                [(pod["pod"], pod["policy"]) for pod in told["pods"]] == [("default/p", "training")]
            ),
        )
        await create_node(api, objects.node("late", 8))
        await page.told("/fleet", lambda told: len(told["nodes"]) == 3)


async def test_an_account_that_may_only_read_sees_what_is_wrong_and_who_sits_on_it(
    reader: Path, tmp_path: Path
) -> None:
    devices, said = await told(reader, tmp_path, "devices")
    assert {node["node"]: node["state"] for node in devices["nodes"]} == {
        "bad": "Unhealthy",
        "dra": "Healthy",
    }
    (lost,) = next(node["devices"] for node in devices["nodes"] if node["node"] == "dra")
    assert (lost["device"], lost["state"]) == ("gpu.nvidia.com/dra/gpu-0", "Unhealthy")
    assert devices["unseen"] == []
    (absent,) = said  # nothing is installed
    assert "does not serve devicehealths.fettle.dev, " in absent

    pods, _ = await told(reader, tmp_path, "pods", "--at-risk", code=3)
    assert [(pod["pod"], pod["policy"]) for pod in pods["pods"]] == [("default/p", "training")]
    explained, _ = await told(reader, tmp_path, "explain", "pod", "default/p")
    assert {name: one["fits"] for name, one in explained["nodes"].items()} == {
        "bad": False,
        "dra": False,
    }
    node, _ = await told(reader, tmp_path, "explain", "node", "bad")
    assert (node["state"], node["usedBy"]) == ("Unhealthy", ["default/p"])
    device, _ = await told(reader, tmp_path, "explain", "device", "dra/gpu-0")
    assert device["state"] == "Unhealthy"

    (tmp_path / "claim.yaml").write_text(NO_SUCH_CLASS)
    _, said_of_claim = await run(
        ["lint", "--cluster", str(tmp_path / "claim.yaml")], reader, tmp_path
    )
    assert "FTL001 unknown-class" in said_of_claim


async def test_each_right_that_is_missing_is_said_and_the_rest_is_shown(
    api: Api, reader: Path, tmp_path: Path
) -> None:
    role = await api.get("clusterroles", "fettle-direct")
    for rule in role["rules"]:
        rule["resources"] = [r for r in rule["resources"] if r not in ("pods", "resourceslices")]
    await api.replace(role)

    async def listed() -> tuple[Any, list[str]]:
        return await told(reader, tmp_path, "devices")

    devices, said = await waiting.wait_until(
        listed, lambda answer: len(answer[0]["unseen"]) == 2, what="the rights are gone"
    )
    assert [node["node"] for node in devices["nodes"]] == ["bad"]
    assert any("you may not list resourceslices.resource.k8s.io: " in line for line in said)
    _, said = await told(reader, tmp_path, "pods", "--at-risk", code=1)
    assert any(line.startswith("fettle: you may not list pods: ") for line in said)


async def test_it_reads_another_context_and_as_somebody_else(
    control_plane: ControlPlane, reader: Path, tmp_path: Path
) -> None:
    admin = json.loads(control_plane.tester_kubeconfig.read_text())
    here = admin["contexts"][0]
    nowhere = {"name": "nowhere", "cluster": {"server": "https://127.0.0.1:9"}}
    admin["clusters"].append(nowhere)
    admin["contexts"].append(
        {"name": "nowhere", "context": {**here["context"], "cluster": "nowhere"}}
    )
    admin["current-context"] = "nowhere"
    path = tmp_path / "two"
    path.write_text(json.dumps(admin))

    code, said = await run(["devices"], path, tmp_path)
    assert (code, "https://127.0.0.1:9 cannot be reached" in said) == (1, True)
    devices, _ = await told(path, tmp_path, "devices", "--context", here["name"])
    assert devices["unseen"] == []
    as_reader = ("--context", here["name"], "--as", READER)
    devices, _ = await told(path, tmp_path, "devices", *as_reader)
    assert devices["unseen"] == []
    code, said = await run(["devices", *as_reader[:-1], "nobody"], path, tmp_path)
    assert (code, said.count("\n")) == (1, 1)
    assert '"nodes" of the core API group in all namespaces to nobody' in said
    code, said = await run(["devices", "--as", "somebody"], reader, tmp_path)
    assert (code, "may not impersonate" in said) == (1, True)


async def test_what_exists_already_is_linted_as_kubectl_prints_it(
    reader: Path, api: Api, tmp_path: Path
) -> None:
    """With status, managed fields and all that the API server adds: none of it is a finding."""
    await api.create(yaml.safe_load(NO_SUCH_CLASS))
    existing = [
        {**one, "apiVersion": version, "kind": kind}
        for resource, version, kind in (
            ("pods", "v1", "Pod"),
            ("jobs", "batch/v1", "Job"),
            ("resourceclaims", "resource.k8s.io/v1", "ResourceClaim"),
        )
        for one in await api.list(resource)
    ]
    assert {one["kind"] for one in existing} == {"Pod", "Job", "ResourceClaim"}
    assert any("status" in one and "managedFields" in one["metadata"] for one in existing)
    file = tmp_path / "existing.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": existing}))
    given = ["lint", "--cluster", "--fail-on", "warn", "--output", "json", str(file)]
    code, said = await run(given, reader, tmp_path)
    found = json.loads(said[said.index("[") : said.rindex("]") + 1])
    assert (code, {(one["rule"], one["kind"]) for one in found}) == (
        1,
        {("FTL001", "ResourceClaim")},
    ), said


async def test_what_exists_already_is_linted_without_files_by_rights_to_list(
    reader: Path, api: Api, tmp_path: Path
) -> None:
    await api.create(yaml.safe_load(NO_SUCH_CLASS))
    code, said = await run(["lint", "--cluster", "--fail-on", "warn"], reader, tmp_path)
    assert code == 1
    assert "namespace default: 1 finding\nWarn FTL001 " in said
    assert "you may not list podtemplates, replicationcontrollers: " in said
    assert "objects: 0 to deny, 1 to warn about" in said


@pytest.mark.parametrize(
    ("group", "plural"), [("openreports.io", "reports"), ("wgpolicyk8s.io", "policyreports")]
)
async def test_findings_are_kept_as_reports_of_whichever_definition_is_there(
    control_plane: ControlPlane, api: Api, tmp_path: Path, group: str, plural: str
) -> None:
    admin = control_plane.tester_kubeconfig
    given = ["lint", "--cluster", "--report", "--fail-on", "never"]
    await api.create(yaml.safe_load(NO_SUCH_CLASS))
    code, said = await run(given, admin, tmp_path)
    assert (code, "serves neither openreports.io/v1alpha1 nor" in said) == (2, True)
    await define_reports(api, group)
    for metadata in ({"name": "zoo"}, {"name": "odd", "labels": {"fettle.dev/policy": "trainin"}}):
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    await api.create(yaml.safe_load(NO_SUCH_CLASS.replace("namespace: default", "namespace: zoo")))

    async def reported() -> dict[str, list[dict[str, Any]]]:
        code, said = await run(given, admin, tmp_path)
        assert code == 0, said
        return {
            one["metadata"]["namespace"]: one["results"]
            for one in await api.list(plural, namespace=None)
        }

    found = await reported()
    assert set(found) == {"default", "zoo"}
    (result,) = found["default"]
    claim = await api.get("resourceclaims", "c")
    assert (result["policy"], result["rule"], result["result"]) == (
        "FTL001",
        "unknown-class",
        "warn",
    )
    (subject,) = result["resources"]
    assert (subject["kind"], subject["uid"]) == ("ResourceClaim", claim["metadata"]["uid"])
    (of_cluster,) = await api.list(f"cluster{plural}")
    assert [one["policy"] for one in of_cluster["results"]] == ["FTL101"]
    assert of_cluster["summary"] == {"pass": 0, "fail": 0, "warn": 1, "error": 0, "skip": 0}

    # what is mended goes, and what others report stays
    theirs = await api.get(plural, "fettle")
    theirs["metadata"] = {"name": "theirs", "namespace": "default"}
    await api.create(theirs)
    await api.delete("resourceclaims", "c")
    assert set(await reported()) == {"default", "zoo"}
    assert [one["metadata"]["name"] for one in await api.list(plural, "default")] == ["theirs"]


@pytest.mark.parametrize(
    ("group", "plural"), [("openreports.io", "reports"), ("wgpolicyk8s.io", "policyreports")]
)
async def test_the_account_of_the_scheduled_reports_reads_all_that_is_checked_and_writes_them(
    control_plane: ControlPlane, api: Api, tmp_path: Path, group: str, plural: str
) -> None:
    await define_policies(api)
    await define_workloads(api)
    await define_reports(api, group)
    await shipped.apply_rbac(api)
    file = shipped.DEPLOY / "reports" / "lint-reports.yaml"
    await shipped.apply(api, shipped.manifests(file))
    (cron_job,) = (one for one in shipped.manifests(file) if one["kind"] == "CronJob")
    pod = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    given = [one for one in pod["containers"][0]["args"] if not one.startswith("--settings")]
    account = await control_plane.kubeconfig_for_service_account(
        pod["serviceAccountName"], "fettle-system"
    )
    await api.create(yaml.safe_load(NO_SUCH_CLASS))
    labels = {"fettle.dev/policy": "trainin"}
    await api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "odd", "labels": labels}}
    )

    async def linted() -> str:
        code, said = await run(given, account, tmp_path)
        assert code == 0, said
        assert "may not" not in said
        return said

    async def kept() -> list[str]:
        both = [*await api.list(plural), *await api.list(f"cluster{plural}")]
        return [one["metadata"].get("namespace", "") for one in both]

    await linted()
    assert sorted(await kept()) == ["", "default"]
    await api.delete("resourceclaims", "c")
    odd = await api.get("namespaces", "odd")
    odd["metadata"]["labels"] = {}
    await api.replace(odd)
    await linted()
    assert await kept() == []
