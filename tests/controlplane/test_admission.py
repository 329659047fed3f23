"""What users write goes through the webhook and the API server as they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controlplane import mutating, objects, waiting
from tests.controlplane.api import Api, ApiError
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_gpu_nodes
from tests.controlplane.installed import register_webhooks, start_registered
from tests.controlplane.kubelet import Kubelet

TRAINING = {"fettle.dev/policy": "training"}


def claim_too_large() -> Any:
    return objects.claim("wrong", objects.claim_spec(33))


def template_that_wants_devices_together_and_apart() -> Any:
    spec, root = objects.claim_spec(2), "resource.kubernetes.io/pcieRoot"
    spec["devices"]["constraints"] = [{"matchAttribute": root}, {"distinctAttribute": root}]
    return objects.claim_template("wrong", spec)


def pod_with_unknown_request() -> Any:
    made = objects.pod("wrong", templates={"gpu": "one-gpu"})
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu", "request": "typo"}]
    return made


BROKEN = [
    pytest.param(claim_too_large, "resourceclaims", "FTL010", "33", id="claim of row 10"),
    pytest.param(
        template_that_wants_devices_together_and_apart,
        "resourceclaimtemplates",
        "FTL058",
        "constraints[1]",
        id="template of row 58",
    ),
    pytest.param(pod_with_unknown_request, "pods", "FTL035", "typo", id="pod of row 35"),
]


@pytest.mark.parametrize(("broken", "resource", "rule", "says"), BROKEN)
async def test_what_can_never_work_is_refused_where_it_is_written(
    api: Api, start_fettle: StartFettle, broken: Any, resource: str, rule: str, says: str
) -> None:
    await api.create(objects.claim_template("one-gpu"))
    await api.create(broken())
    await api.delete(resource, "wrong")
    await waiting.gone(api, resource, "wrong")

    await start_registered(api, start_fettle, "webhook")
    with pytest.raises(ApiError) as refusal:
        await api.create(broken())
    assert "fettle" in str(refusal.value)
    assert rule in str(refusal.value)
    assert says in str(refusal.value)


async def test_a_job_with_a_policy_gets_its_failure_policy_and_runs(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_gpu_nodes(api, "w0")
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(objects.job("before", gpus=1, job_annotations=TRAINING))
    assert "podFailurePolicy" not in (await api.get("jobs", "before"))["spec"]

    fettle = await start_fettle("webhook")
    await register_webhooks(api, fettle)
    await api.create(objects.job("train", gpus=1, job_annotations=TRAINING))
    job = await api.get("jobs", "train")
    first = job["spec"]["podFailurePolicy"]["rules"][0]
    assert first["action"] == "Ignore"
    assert first["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert job["spec"]["podReplacementPolicy"] == "Failed"
    template = job["spec"]["template"]
    assert template["metadata"]["annotations"]["fettle.dev/policy"] == "training"
    (pod,) = await waiting.wait_until(
        lambda: api.list("pods", labels="job-name=train"), what="the job made its pod"
    )
    seconds = {
        t["key"]: t["tolerationSeconds"]
        for t in pod["spec"]["tolerations"]
        if t["effect"] == "NoExecute"
    }
    assert seconds == {
        "node.kubernetes.io/not-ready": 60,
        "node.kubernetes.io/unreachable": 60,
    }
    await kubelet.exit_containers(pod["metadata"]["name"], 0)
    await waiting.wait_until(
        lambda: api.get("jobs", "train"),
        lambda j: waiting.condition(j, "Complete").get("status") == "True",
        what="the job is complete",
    )


async def test_a_second_pass_over_what_is_stored_changes_nothing(
    api: Api, start_fettle: StartFettle
) -> None:
    await start_registered(api, start_fettle, "webhook")
    await api.create(objects.job("train", gpus=1, job_annotations=TRAINING))
    before = await api.get("jobs", "train")
    await api.patch("jobs", "train", {"metadata": {"labels": {"touched": "yes"}}})
    after = await api.get("jobs", "train")
    assert after["spec"] == before["spec"]
    again = dict(before["spec"])
    for made_by_the_server in ("selector", "manualSelector"):
        again.pop(made_by_the_server, None)
    labels = again["template"]["metadata"].get("labels", {})
    again["template"]["metadata"]["labels"] = {
        k: v for k, v in labels.items() if "controller-uid" not in k and "job-name" not in k
    }
    metadata = {
        "name": "copy",
        "namespace": "default",
        "annotations": before["metadata"]["annotations"],
    }
    copy = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": again}
    await api.create(copy)
    stored = await api.get("jobs", "copy")
    assert stored["spec"]["podFailurePolicy"] == before["spec"]["podFailurePolicy"]
    assert stored["metadata"]["annotations"] == before["metadata"]["annotations"]


async def test_a_pod_without_devices_or_policy_is_never_sent_to_the_webhook(
    api: Api, start_fettle: StartFettle
) -> None:
    fettle = await start_registered(api, start_fettle, "webhook")
    for i in range(5):
        await api.create(objects.pod(f"plain-{i}"))
    assert await mutating.reviewed(fettle, "mutate") == 0
    assert await mutating.reviewed(fettle, "validate") == 0
    await api.create(objects.pod("named", annotations=TRAINING))
    assert await mutating.reviewed(fettle, "mutate") == 1


async def test_with_the_webhook_down_pods_and_claims_are_made_as_before(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    fettle = await start_registered(api, start_fettle, "webhook")
    fettle.kill()
    await api.create(objects.claim_template("one-gpu"))
    await api.create(claim_too_large())
    await api.create(objects.pod("p", templates={"gpu": "one-gpu"}, annotations=TRAINING))


async def test_conditions_of_the_webhooks_take_no_time_for_very_many_annotations(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    """To look at each of them would take the API server four seconds."""
    many = {f"{number:05}": "" for number in range(52_000)}
    await start_registered(api, start_fettle, "webhook")
    before_s = await conditions_s(control_plane)
    for given in (many, many | TRAINING):
        await api.create(objects.job("many", job_annotations=given), dry_run=True)
    assert await conditions_s(control_plane) - before_s < 1.0


async def conditions_s(control_plane: ControlPlane) -> float:
    """What the API server has spent on conditions so far."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in (await control_plane.metrics("kube-apiserver")).splitlines()
        if line.startswith("apiserver_admission_match_condition_evaluation_seconds_sum")
    )
