"""What becomes, on the real control plane, of what the lint rules about Jobs catch: as in
`rule_failures.py`."""

from __future__ import annotations

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.rule_failures import CAUGHT, Show, named


async def child_jobs_are_refused(api: Api, kubelet: Kubelet, rule: str) -> None:
    for index, case in enumerate(CAUGHT[rule.upper()]):
        (job,) = case.object["spec"]["replicatedJobs"]
        child = objects.job(f"{rule}-{index}")
        with pytest.raises(ApiError) as refusal:
            await api.create({**child, "spec": job["template"]["spec"]})
        assert refusal.value.code == 422


async def one_eviction_fails_the_job(api: Api, kubelet: Kubelet, rule: str) -> None:
    await api.create(named(CAUGHT["FTL048"][0].object, rule))
    await disrupt(api, kubelet, await next_pod(api, rule, set()), 143)
    await job_fails(api, rule)


async def an_ignored_typo_counts(api: Api, kubelet: Kubelet, rule: str) -> None:
    made = named(CAUGHT["FTL050"][0].object, rule)
    made = {**made, "spec": {**made["spec"], "backoffLimit": 0}}
    await api.create(made)
    await disrupt(api, kubelet, await next_pod(api, rule, set()), 1)
    await job_fails(api, rule)


async def no_exit_code_matches(api: Api, kubelet: Kubelet, rule: str) -> None:
    """A process that ends with 298 is seen to end with 42: the Job fails, by another rule."""
    asked = 298
    policy = {
        "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [asked]}}]
    }
    await api.create(objects.job(rule, backoff_limit=0, pod_failure_policy=policy))
    pod = await next_pod(api, rule, set())
    await waiting.in_phase(api, pod, "Running", timeout_s=30)
    await kubelet.exit_containers(pod, asked % 256)
    failed = await job_fails(api, rule)
    assert waiting.condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"


async def next_pod(api: Api, job: str, besides: set[str]) -> str:
    """The name of a pod of the job that is none of these."""

    def others(pods: list[Object]) -> list[str]:
        return [name for pod in pods if (name := pod["metadata"]["name"]) not in besides]

    pods = await waiting.wait_until(
        lambda: api.list("pods", labels=f"job-name={job}"),
        others,
        what="the job made its pod",
        timeout_s=60,
    )
    return others(pods)[0]


async def disrupt(api: Api, kubelet: Kubelet, pod: str, code: int) -> None:
    """It ends with the code, and the condition of disrupted pods; one without a time would count as
    stale, and be taken back."""
    await waiting.in_phase(api, pod, "Running", timeout_s=30)
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "lastTransitionTime": objects.now(),
    }
    await api.patch_status("pods", pod, {"conditions": [condition]}, form="strategic")
    await kubelet.exit_containers(pod, code)


async def job_fails(api: Api, name: str) -> Object:
    failed: Object = await waiting.wait_until(
        lambda: api.get("jobs", name),
        lambda job: waiting.condition(job, "Failed").get("status") == "True",
        what="the job failed",
        timeout_s=30,
    )
    return failed


SHOWN: dict[str, Show] = {
    "ftl046": child_jobs_are_refused,
    "ftl047": child_jobs_are_refused,
    "ftl048": one_eviction_fails_the_job,
    "ftl050": an_ignored_typo_counts,
    "ftl051": no_exit_code_matches,
}
