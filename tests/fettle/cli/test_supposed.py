"""`fettle what-if FILE`: where pods could go that are in no cluster yet."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fettle.cli.commands import main
from tests.controlplane import objects
from tests.fettle.cli.linted import logging_restored
from tests.fettle.cli.test_direct import Reader, put_fleet
from tests.fettle.client.fake_api import fake_api

GPU = "nvidia.com/gpu"
TEMPLATE = "gpu"


def workload(kind: str, spec: dict[str, Any], api_version: str = "batch/v1", **more: Any) -> Any:
    metadata = {"name": "train", **more}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def job(gpus: int = 0, **more: Any) -> Any:
    return workload("Job", {"template": {"spec": pod_spec(gpus)}}, **more)


def pod_spec(gpus: int) -> dict[str, Any]:
    limits = {GPU: gpus} if gpus else {}
    return {"containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}]}


def claiming(template: str) -> Any:
    return objects.pod("train", templates={"g": template}, namespace="ml")


def template() -> Any:
    return objects.claim_template(TEMPLATE, namespace="ml")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """n1 has eight sound devices, of which a pod has four; n2 is broken; d1 has a DRA device."""
    broken = objects.node_condition("CperHardwareErrorFatal", "True", "CPERFatal", "memory error")
    busy = objects.pod("train", gpus=4, namespace="ml")
    busy["metadata"]["uid"] = "u-busy"
    busy["spec"]["nodeName"] = "n1"
    busy["status"] = {"phase": "Running"}
    slices = [objects.resource_slice("d1", 1)]
    folder = tmp_path / "cluster"
    folder.mkdir()
    for name, items in {
        "nodes": [
            objects.node("n1", 8),
            objects.node("n2", 8, conditions=[broken]),
            objects.node("d1"),
        ],
        "pods": [busy],
        "resourceslices": slices,
        "deviceclasses": [objects.device_class()],
        "resourceclaims": [],
    }.items():
        listed = {"kind": "List", "apiVersion": "v1", "items": items}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(listed))
    return folder


class Asking:
    def __init__(self, fleet: Path, folder: Path) -> None:
        self._fleet = fleet
        self._file = folder / "asked.yaml"

    def run(self, *written: Any, more: tuple[str, ...] = ()) -> Result:
        self._file.write_text(yaml.safe_dump_all(written))
        given = ["what-if", str(self._file), "-n", "ml", "--snapshot", str(self._fleet), *more]
        with logging_restored():
            return CliRunner().invoke(main, given)

    def told(self, *written: Any, more: tuple[str, ...] = ()) -> Any:
        ended = self.run(*written, more=("-o", "json", *more))
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout)["pods"]


@pytest.fixture
def asking(fleet: Path, tmp_path: Path) -> Asking:
    return Asking(fleet, tmp_path)


def fitting(told: Any) -> list[str]:
    return [name for name, verdict in told["nodes"].items() if verdict["fits"]]


def test_a_workload_is_told_which_nodes_would_take_its_pod_now(asking: Asking) -> None:
    (told,) = asking.told(job(4))
    assert (told["pod"], fitting(told)) == ("ml/train-2", ["n1"])
    (told,) = asking.told(job(5))
    assert fitting(told) == []  # a pod that has the same name keeps its four
    said = asking.run(job(4)).stdout.splitlines()
    assert said[0].startswith("ml/train-2 fits 1 of 3 nodes; best n1")


def test_what_the_workload_names_is_its_policy(asking: Asking) -> None:
    (told,) = asking.told(job(1, annotations={"fettle.dev/policy": "training"}))
    assert told["policy"]["name"] == "training"
    assert "Job train" in told["policy"]["origin"]


async def test_no_cluster_is_asked_for_a_workload_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job(1, annotations={"fettle.dev/policy": "training"})))
    with logging_restored():
        async with fake_api() as api:
            put_fleet(api)
            (told,) = (await Reader(api, tmp_path).told("what-if", str(file)))["pods"]
    assert told["policy"]["origin"] == "annotation fettle.dev/policy of Job train"


def test_a_template_of_the_file_makes_the_claims_of_its_pods(asking: Asking) -> None:
    (told,) = asking.told(template(), claiming(TEMPLATE))
    assert fitting(told) == ["d1"]
    assert "ClaimsNotCreated" not in str(told["reasons"])
    said = asking.run(claiming("absent")).stdout
    assert "absent" in said
    assert "undecided" in said


def test_a_change_may_be_asked_for_too(asking: Asking) -> None:
    (told,) = asking.told(job(8), more=("--mend", "n2"))
    assert (told["before"]["fit"], told["after"]["fit"]) == (0, 1)


def test_each_template_of_a_workload_is_a_pod_of_its_own(asking: Asking) -> None:
    replicas = {
        role: {"template": {"spec": pod_spec(count)}}
        for role, count in (("Master", 0), ("Worker", 2))
    }
    torch = workload("PyTorchJob", {"pytorchReplicaSpecs": replicas}, "kubeflow.org/v1")
    ended = asking.run(torch)
    assert "ml/train-2 needs no devices: every node is allowed" in ended.stdout
    assert "ml/train-3 fits 1 of 3 nodes" in ended.stdout


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}, "has no pod, and no"),
        (workload("Pod", {"containers": 3}, "v1"), "this Pod cannot be read"),
        (template() | {"apiVersion": "resource.k8s.io/v9"}, "it is read as resource.k8s.io/v1"),
        ({"no": "kind"}, "asked.yaml"),
    ],
)
def test_a_file_that_is_of_no_use_is_said_to_be_so(asking: Asking, written: Any, said: str) -> None:
    ended = asking.run(written)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert said in ended.stderr


def test_no_server_is_asked_about_a_file(asking: Asking) -> None:
    ended = CliRunner().invoke(main, ["what-if", "a.yaml", "--server", "http://127.0.0.1:9"])
    assert ended.exit_code == 2
    said = " ".join(ended.output.split())
    assert "give its settings with --settings FILE" in said


def test_without_a_cluster_a_file_needs_a_snapshot_and_no_server(tmp_path: Path) -> None:
    file = tmp_path / "asked.yaml"
    file.write_text(yaml.safe_dump(job(1)))
    with logging_restored():
        given = ["what-if", str(file), "--kubeconfig", str(tmp_path / "none")]
        ended = CliRunner().invoke(main, given)
    assert ended.exit_code != 0
    assert "or --snapshot DIR to ask of a folder" in ended.stderr
    assert "--server" not in ended.stderr
