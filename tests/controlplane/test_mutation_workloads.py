"""Every kind that the webhook changes: accepted by the real API server, the same if applied again,
and nothing where no devices are used."""

from __future__ import annotations

import copy
from typing import Any

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_workloads
from tests.controlplane.mutating import DEGRADED, EVERYTHING, KEY, NAMED, installed, reviewed


def _template(**more: Any) -> Object:
    return objects.pod_template(gpus=1, labels={"app": "w"}, **more)


def workload(kind: str, spec: Object) -> Object:
    api_version, _, name = kind.rpartition("/")
    metadata = {"name": "w", "namespace": "default", "annotations": dict(NAMED)}
    return {"apiVersion": api_version, "kind": name, "metadata": metadata, "spec": spec}


SELECTED: Object = {"selector": {"matchLabels": {"app": "w"}}}
STANDING = {"restart_policy": "Always"}
RAY_CLUSTER: Object = {
    "headGroupSpec": {"rayStartParams": {}, "template": _template(**STANDING)},
    "workerGroupSpecs": [
        {
            "groupName": "gpus",
            "minReplicas": 1,
            "maxReplicas": 4,
            "rayStartParams": {},
            "template": _template(**STANDING),
        }
    ],
}
WORKLOADS: dict[str, Object] = {
    "apps/v1/Deployment": {**SELECTED, "template": _template(**STANDING)},
    "apps/v1/StatefulSet": {**SELECTED, "serviceName": "w", "template": _template(**STANDING)},
    "apps/v1/DaemonSet": {**SELECTED, "template": _template(**STANDING)},
    "apps/v1/ReplicaSet": {**SELECTED, "template": _template(**STANDING)},
    "v1/ReplicationController": {"selector": {"app": "w"}, "template": _template(**STANDING)},
    "batch/v1/Job": {
        "completionMode": "Indexed",
        "completions": 4,
        "parallelism": 4,
        "template": _template(),
    },
    "batch/v1/CronJob": {
        "schedule": "0 3 * * *",
        "jobTemplate": {"spec": {"template": _template()}},
    },
    "jobset.x-k8s.io/v1alpha2/JobSet": {
        "replicatedJobs": [{"name": "workers", "template": {"spec": {"template": _template()}}}]
    },
    "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet": {
        "leaderWorkerTemplate": {
            "size": 2,
            "leaderTemplate": _template(**STANDING),
            "workerTemplate": _template(**STANDING),
        }
    },
    "kubeflow.org/v1/PyTorchJob": {
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": _template()},
            "Worker": {"replicas": 3, "template": _template()},
        }
    },
    "ray.io/v1/RayCluster": RAY_CLUSTER,
    "ray.io/v1/RayJob": {
        "entrypoint": "python train.py",
        "rayClusterSpec": RAY_CLUSTER,
        "submitterPodTemplate": _template(),
    },
    "trainer.kubeflow.org/v1alpha1/TrainJob": {"runtimeRef": {"name": "torch"}},
    "v1/Pod": objects.pod_template(gpus=1)["spec"],
    "resource.k8s.io/v1/ResourceClaim": objects.claim_spec(2),
    "resource.k8s.io/v1/ResourceClaimTemplate": {"spec": objects.claim_spec(2)},
}
REPLACED = [
    kind
    for kind in WORKLOADS
    if not kind.endswith(("/Pod", "/Job", "/TrainJob"))  # a Job's selector cannot be left out
]


async def test_what_is_stored_is_what_the_policy_says_and_the_same_again_changes_nothing(
    api: Api, start_fettle: StartFettle
) -> None:
    await define_workloads(api)
    await installed(api, start_fettle, EVERYTHING)
    stored = {}
    for kind, spec in WORKLOADS.items():
        made = await api.create(workload(kind, copy.deepcopy(spec)))
        stored[kind] = made["spec"]
        record = made["metadata"]["annotations"]["fettle.dev/injected"]
        assert '"policy":"own"' in record, kind
        plural = f"{made['kind'].lower()}s"
        await api.patch(plural, "w", {"metadata": {"labels": {"touched": "yes"}}})
        touched = await api.get(plural, "w")
        assert touched["spec"] == made["spec"], kind
        assert touched["metadata"]["annotations"]["fettle.dev/injected"] == record, kind
        applied = await api.apply(workload(kind, copy.deepcopy(spec)))
        assert applied["spec"] == made["spec"], kind
        assert applied["metadata"]["annotations"]["fettle.dev/injected"] == record, kind
        if kind != "v1/Pod":  # whose tolerations may only become more
            merged = await api.patch(plural, "w", {"spec": copy.deepcopy(spec)})
            assert merged["spec"] == made["spec"], kind
        if kind in REPLACED:
            await _replace(api, plural, workload(kind, copy.deepcopy(spec)))
            replaced = await api.get(plural, "w")
            assert replaced["spec"] == made["spec"], kind
            assert replaced["metadata"]["annotations"]["fettle.dev/injected"] == record, kind
        await api.delete(plural, "w", grace_s=0)
    are_what_the_policy_says(stored)


async def _replace(api: Api, plural: str, manifest: Object) -> None:
    """As `kubectl replace` does."""
    newest = (await api.get(plural, "w"))["metadata"]["resourceVersion"]
    manifest["metadata"]["resourceVersion"] = newest
    await api.replace(manifest)


def are_what_the_policy_says(made: dict[str, Object]) -> None:
    """Specs of workloads, by kind."""
    (request,) = made["resource.k8s.io/v1/ResourceClaim"]["devices"]["requests"]
    sound, degraded = request["firstAvailable"]
    assert (sound["name"], degraded["name"]) == ("sound", "degraded")
    assert (sound["count"], degraded["count"]) == (2, 2)
    assert [(t["key"], t["effect"]) for t in degraded["tolerations"]] == [
        (KEY, "NoSchedule"),
        (KEY, "NoExecute"),
        (DEGRADED, "NoSchedule"),
    ]
    assert degraded["tolerations"][1]["tolerationSeconds"] == 600
    job = made["batch/v1/Job"]
    assert (job["backoffLimitPerIndex"], job["backoffLimit"]) == (2, 2**31 - 1)
    assert job["podReplacementPolicy"] == "Failed"
    assert [rule["action"] for rule in job["podFailurePolicy"]["rules"]] == [
        "Ignore",
        "Ignore",
        "FailJob",
    ]
    (container,) = made["v1/Pod"]["containers"]
    assert container["restartPolicy"] == "Never"
    (rule,) = container["restartPolicyRules"]
    assert rule["exitCodes"]["values"] == [75]
    assert rule["action"] == "RestartAllContainers"
    assert {t["key"]: t["tolerationSeconds"] for t in made["v1/Pod"]["tolerations"]} == {
        "node.kubernetes.io/not-ready": 45,
        "node.kubernetes.io/unreachable": 45,
    }
    jobset = made["jobset.x-k8s.io/v1alpha2/JobSet"]
    assert jobset["failurePolicy"]["maxRestarts"] == 3
    template = jobset["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"]["annotations"] == NAMED
    workers = made["leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"]["leaderWorkerTemplate"]
    for which in ("leaderTemplate", "workerTemplate"):
        assert workers[which]["metadata"]["annotations"] == NAMED
    replicas = made["kubeflow.org/v1/PyTorchJob"]["pytorchReplicaSpecs"]
    rays = [made["ray.io/v1/RayCluster"], made["ray.io/v1/RayJob"]["rayClusterSpec"]]
    groups = [group for ray in rays for group in (ray["headGroupSpec"], *ray["workerGroupSpecs"])]
    for group in (*replicas.values(), *groups):
        assert group["template"]["metadata"]["annotations"] == NAMED


async def test_a_jobset_restarts_in_place_where_its_definition_has_that_and_its_jobs_allow_it(
    api: Api, start_fettle: StartFettle
) -> None:
    """As JobSet's example for the agent as a sidecar has them."""
    await define_workloads(api)
    policy = {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"}
    await installed(api, start_fettle, {"failure": {"jobSet": policy}})
    template = _template()
    template["spec"]["initContainers"] = [
        {
            "name": "in-place-restart-agent",
            "image": "registry.example.com/agent:1",
            "restartPolicy": "Always",
            "env": [{"name": "JOBSET_NAME", "value": "w"}, {"name": "POD_NAME", "value": "w-0"}],
        }
    ]
    job = {
        "completions": 2,
        "parallelism": 2,
        "backoffLimit": 2147483647,
        "podReplacementPolicy": "Failed",
        "template": template,
    }
    made = {}
    for name, spec in (("a", job), ("b", {**job, "backoffLimit": 6})):
        jobs = [{"name": "workers", "template": {"spec": spec}}]
        jobset = workload("jobset.x-k8s.io/v1alpha2/JobSet", {"replicatedJobs": jobs})
        jobset["metadata"]["name"] = name
        made[name] = (await api.create(jobset))["spec"]["failurePolicy"]
    assert made["a"] == policy
    assert made["b"] == {**policy, "restartStrategy": "Recreate"}  # the definition's default


async def test_controllers_make_their_pods_once_of_stamped_templates(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    """A stamp on what a controller compares with its own template would never come to rest."""
    await installed(api, start_fettle, {"tolerations": {"notReadySeconds": 45}})
    await control_plane.start_controller_manager()
    kind = "apps/v1/Deployment"
    await api.create(workload(kind, {**WORKLOADS[kind], "replicas": 2}))
    pods = await waiting.wait_until(
        lambda: api.list("pods", "default", labels="app=w"),
        lambda found: len(found) == 2,
        what="the Deployment has its pods",
    )
    for pod in pods:
        assert pod["metadata"]["annotations"]["fettle.dev/policy"] == "own"
        assert pod["spec"]["tolerations"][0]["tolerationSeconds"] == 45
    assert len(await api.list("replicasets", "default")) == 1
    await api.patch("deployments", "w", {"metadata": {"annotations": {"fettle.dev/policy": None}}})
    await waiting.wait_until(
        lambda: api.list("replicasets", "default"),
        lambda found: len(found) == 2,
        what="another template after the policy was withdrawn",
    )
    deployment = await api.get("deployments", "w")
    annotations = deployment["spec"]["template"]["metadata"].get("annotations", {})
    assert "fettle.dev/policy" not in annotations


async def test_what_uses_no_devices_and_names_no_policy_is_never_sent(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    """Nor are the pods, ReplicaSets and Jobs that controllers make of it."""
    await define_workloads(api)
    fettle = await installed(api, start_fettle, EVERYTHING)
    await control_plane.start_controller_manager()
    for kind, spec in WORKLOADS.items():
        plain = workload(kind, _without_gpus(spec))
        del plain["metadata"]["annotations"]
        await api.create(plain)
    await waiting.wait_until(
        lambda: api.list("pods", "default"),
        lambda pods: len(pods) >= 8,  # one by itself, one each by three controllers, the Job's four
        what="controllers made their pods",
    )
    assert await reviewed(fettle) == 0
    validated = {
        *("ResourceClaim", "ResourceClaimTemplate"),
        *("JobSet", "LeaderWorkerSet", "PyTorchJob", "RayCluster", "RayJob"),
    }
    assert await reviewed(fettle, "validate") == len(validated)


def _without_gpus(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_gpus(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_gpus(entry) for key, entry in value.items() if key != "limits"}
