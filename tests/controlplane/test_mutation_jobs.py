"""Jobs with an injected podFailurePolicy, under the real controllers and a stand-in kubelet."""

from __future__ import annotations

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_gpu_nodes
from tests.controlplane.installed import start_registered
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.mutating import NAMED, installed, reviewed


async def _only_pod(api: Api, job: str, besides: str = "") -> Object:
    async def look() -> Object | None:
        pods = await api.list("pods", "default", labels=f"job-name={job}")
        return next((p for p in pods if p["metadata"]["name"] != besides), None)

    found = await waiting.wait_until(look, what=f"job {job} has a pod", timeout_s=30)
    assert found is not None
    return found


def _failed(job: Object) -> str:
    return str(waiting.condition(job, "Failed").get("reason", ""))


async def test_a_lost_device_is_ignored_and_an_exit_code_counts(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_gpu_nodes(api, "w0")
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    failure = {"ignoreDisruptions": True, "failJobOnExitCodes": [42]}
    await installed(api, start_fettle, {"failure": failure})
    await api.create(objects.job("train", gpus=1, backoff_limit=0, job_annotations=NAMED))
    first = (await _only_pod(api, "train"))["metadata"]["name"]
    await waiting.in_phase(api, first, "Running")
    failed = {"type": "fettle.dev/DeviceFailed", "status": "True"}
    await api.patch_status("pods", first, {"conditions": [failed]}, form="strategic")
    await kubelet.exit_containers(first, 1)
    second = (await _only_pod(api, "train", besides=first))["metadata"]["name"]
    job = await api.get("jobs", "train")
    assert not _failed(job)
    await waiting.in_phase(api, second, "Running")
    await kubelet.exit_containers(second, 42)
    failed_job = await waiting.wait_until(
        lambda: api.get("jobs", "train"), _failed, what="exit code 42 fails the job"
    )
    assert _failed(failed_job) == "PodFailurePolicy"

    await api.create(objects.job("counts", gpus=1, backoff_limit=0, job_annotations=NAMED))
    pod = (await _only_pod(api, "counts"))["metadata"]["name"]
    await kubelet.exit_containers(pod, 1)
    failed_job = await waiting.wait_until(
        lambda: api.get("jobs", "counts"), _failed, what="any other exit code counts"
    )
    assert _failed(failed_job) == "BackoffLimitExceeded"


async def test_another_policy_for_a_job_that_exists_is_a_warning(
    api: Api, start_fettle: StartFettle
) -> None:
    fettle = await start_registered(api, start_fettle, "webhook")
    made = await api.create(
        objects.job("train", gpus=1, job_annotations={"fettle.dev/policy": "training"})
    )
    before = await reviewed(fettle)
    made["metadata"]["annotations"]["fettle.dev/policy"] = "inference"
    stored = await api.replace(made)
    assert await reviewed(fettle) - before == 1
    assert "this Job keeps what it was created with" in " ".join(api.warnings)
    assert stored["spec"] == made["spec"]
