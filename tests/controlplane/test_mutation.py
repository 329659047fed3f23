"""What the webhook changes, judged by the real API server, scheduler and controllers."""

from __future__ import annotations

import copy
import re
import time
from typing import Any

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies, define_workloads
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_gpu_nodes, create_node
from tests.controlplane.installed import register_extender, register_webhooks
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.test_policies import policy

NAMED = {"fettle.dev/policy": "own"}
KEY = "example.com/maintenance"
DEGRADED = "fettle.dev/degraded"
KEPT = "fettle.dev/kept-for-tests"
TOLERATION = {"key": KEY, "operator": "Exists", "effect": "NoSchedule"}
EVERYTHING: Object = {
    "tolerations": {
        "notReadySeconds": 45,
        "unreachableSeconds": 45,
        "devices": [{"key": KEY, "seconds": 600}],
        "degradedAsFallback": True,
    },
    "failure": {
        "ignoreDisruptions": True,
        "failJobOnExitCodes": [42],
        "restartContainerOnExitCodes": [75],
        "backoffLimitPerIndex": 2,
        "jobSet": {
            "maxRestarts": 3,
            "rules": [{"name": "lost", "action": "RestartJobSet"}],
        },
    },
}


async def installed(
    api: Api, start_fettle: StartFettle, spec: Object, scheduled_by: ControlPlane | None = None
) -> FettleProcess:
    """The webhook with a policy `own`, which it knows; with the scheduler it is registered too,
    so that pods with claims, which get the marker, find a node."""
    await define_policies(api)
    await api.create(policy("own", spec))
    fettle = await start_fettle("webhook", *(["extender"] if scheduled_by else []))
    await register_webhooks(api, fettle)
    if scheduled_by is not None:
        await register_extender(scheduled_by, fettle)
    await waiting.wait_until(
        lambda: fettle.browse("/policy", name="own"),
        lambda answer: answer[0] == 200,
        what="the policy is known",
    )
    await waiting.wait_until(
        lambda: _log(fettle), lambda log: '"restart_rules": true' in log, what="gates are known"
    )
    return fettle


async def _log(fettle: FettleProcess) -> str:
    return (fettle.folder / "fettle.log").read_text()


async def reviewed(fettle: FettleProcess, webhook: str = "mutate") -> float:
    """How many reviews that webhook was sent."""
    _, metrics = await fettle.browse("/metrics")
    found = re.findall(rf'reviews_total{{.*webhook="{webhook}".*}} (\S+)', metrics)
    return sum(map(float, found))


# --- every kind, applied twice


def _template(**more: Any) -> Object:
    return objects.pod_template(gpus=1, labels={"app": "w"}, **more)


def workload(kind: str, spec: Object) -> Object:
    api_version, _, name = kind.rpartition("/")
    metadata = {"name": "w", "namespace": "default", "annotations": dict(NAMED)}
    return {"apiVersion": api_version, "kind": name, "metadata": metadata, "spec": spec}


SELECTED: Object = {"selector": {"matchLabels": {"app": "w"}}}
STANDING = {"restart_policy": "Always"}
WORKLOADS: dict[str, Object] = {
    "apps/v1/Deployment": {**SELECTED, "template": _template(**STANDING)},
    "apps/v1/StatefulSet": {**SELECTED, "serviceName": "w", "template": _template(**STANDING)},
    "apps/v1/DaemonSet": {**SELECTED, "template": _template(**STANDING)},
    "apps/v1/ReplicaSet": {**SELECTED, "template": _template(**STANDING)},
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


async def test_every_mutation_is_accepted_and_the_same_again_changes_nothing(
    api: Api, start_fettle: StartFettle
) -> None:
    await define_workloads(api)
    await installed(api, start_fettle, EVERYTHING)
    for kind, spec in WORKLOADS.items():
        made = await api.create(workload(kind, copy.deepcopy(spec)))
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


async def _replace(api: Api, plural: str, manifest: Object) -> None:
    """As `kubectl replace` does."""
    newest = (await api.get(plural, "w"))["metadata"]["resourceVersion"]
    manifest["metadata"]["resourceVersion"] = newest
    await api.replace(manifest)


async def test_what_is_stored_is_what_the_policy_says(api: Api, start_fettle: StartFettle) -> None:
    await define_workloads(api)
    await installed(api, start_fettle, EVERYTHING)
    made = {}
    for kind, spec in WORKLOADS.items():
        made[kind] = (await api.create(workload(kind, copy.deepcopy(spec))))["spec"]
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
    assert container["restartPolicyRules"][0]["exitCodes"]["values"] == [75]
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


# --- Jobs


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


# --- claims


async def test_claims_made_from_templates_carry_the_tolerations_of_their_pods_policy(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    """A tainted device: nobody gets it but who tolerates that. A key of ours says nothing about the
    device's health, so Fettle itself does not refuse it."""
    tainted = objects.gpu_devices(1, taints={0: [objects.taint(KEPT)]})
    await create_dra_node(api, "w0", tainted)
    await control_plane.start_controller_manager()
    spec = {"tolerations": {"devices": [{"key": KEPT}]}}
    fettle = await installed(api, start_fettle, spec, control_plane)
    await api.create(objects.claim_template("one-gpu"))
    await api.create(objects.pod("other", templates={"gpu": "one-gpu"}))
    await waiting.refused(api, "other")
    before = await reviewed(fettle)
    await api.create(objects.pod("tolerant", templates={"gpu": "one-gpu"}, annotations=NAMED))
    assert await waiting.bound(api, "tolerant") == "w0"
    (claim,) = [
        claim
        for claim in await api.list("resourceclaims", "default")
        if claim["metadata"]["ownerReferences"][0]["name"] == "tolerant"
    ]
    tolerations = claim["spec"]["devices"]["requests"][0]["exactly"]["tolerations"]
    assert [(t["key"], t["effect"]) for t in tolerations] == [
        (KEPT, "NoSchedule"),
        (KEPT, "NoExecute"),
    ]
    allocated = claim["status"]["allocation"]["devices"]["results"][0]
    assert len(allocated["tolerations"]) == 2
    assert await reviewed(fettle) - before == 2  # the pod and its claim, and no update of either


async def test_degraded_devices_are_taken_when_the_sound_ones_are_gone(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_dra_node(api, "w0", 2)
    await create_dra_node(api, "w1", 2)
    for number, (node, device) in enumerate((("w0", "gpu-0"), ("w0", "gpu-1"), ("w1", "gpu-0"))):
        rule = objects.device_taint_rule(
            f"degraded-{number}", DEGRADED, driver=objects.DRIVER, pool=node, device=device
        )
        await api.create(rule)
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(objects.claim_template("plain"))
    for name in ("before-0", "before-1"):
        await api.create(objects.pod(name, templates={"gpu": "plain"}))
    bound = await waiting.wait_until(
        lambda: api.list("pods", "default"),
        lambda pods: any(map(waiting.node_of, pods)),
        what="one pod gets the sound device",
    )
    (waits,) = [p["metadata"]["name"] for p in bound if not waiting.node_of(p)]
    await waiting.refused(api, waits)  # without the rewriting, degraded devices are nobody's
    for name in ("before-0", "before-1"):
        await api.delete("pods", name, grace_s=0)
        await waiting.gone(api, "pods", name)
    await waiting.wait_until(
        lambda: api.list("resourceclaims", "default"), lambda left: left == [], what="claims gone"
    )

    spec = {"tolerations": {"degradedAsFallback": True}}
    await installed(api, start_fettle, spec, control_plane)
    await api.create(objects.claim_template("steered", annotations=NAMED))
    chosen = []
    for number in range(4):
        name = f"p{number}"
        await api.create(objects.pod(name, templates={"gpu": "steered"}))
        node = await waiting.bound(api, name)
        (claim,) = [
            claim
            for claim in await api.list("resourceclaims", "default")
            if claim["metadata"]["ownerReferences"][0]["name"] == name
        ]
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        chosen.append((node, result["device"], result["request"]))
    assert chosen[0] == ("w1", "gpu-1", "gpu/sound")
    assert {request for _, _, request in chosen[1:]} == {"gpu/degraded"}
    assert len({(node, device) for node, device, _ in chosen}) == 4


async def test_a_claim_that_the_scheduler_makes_and_its_updates_are_never_sent(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_dra_node(api, "w0", 1)
    await api.apply(objects.device_class(extended_resource="example.com/gpu"))
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    fettle = await installed(api, start_fettle, EVERYTHING)
    await api.patch("namespaces", "default", {"metadata": {"labels": NAMED}})
    before = await reviewed(fettle)
    await api.create(objects.pod("p", gpus=1, resource="example.com/gpu"))
    assert await waiting.bound(api, "p") == "w0"
    (claim,) = await waiting.wait_until(
        lambda: api.list("resourceclaims", "default"), what="the scheduler made a claim"
    )
    assert "fettle.dev/injected" not in claim["metadata"]["annotations"]
    assert await reviewed(fettle) - before == 1  # the pod


async def test_audit_changes_and_refuses_nothing(
    api: Api, start_fettle: StartFettle, tmp_path: Any
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("webhook: {mode: audit}\n")
    fettle = await start_fettle("webhook", settings=settings)
    await register_webhooks(api, fettle)
    made = await api.create(objects.pod("p", gpus=1, annotations={"fettle.dev/policy": "training"}))
    assert "would be changed" in " ".join(api.warnings)
    assert "fettle.dev/injected" not in made["metadata"]["annotations"]
    await api.create(objects.claim("wrong", objects.claim_spec(33)))
    assert "FTL010" in " ".join(api.warnings)
    _, metrics = await fettle.browse("/metrics")
    assert 'result="would_be_denied"' in metrics
    assert 'result="would_be_patched"' in metrics
    events = await waiting.wait_until(
        lambda: api.events_about("default"),
        lambda events: len(events) == 2,
        what="an Event for what would have been changed, and one for what would have been refused",
    )
    assert {event["reason"] for event in events} == {"WouldBeChanged", "WouldBeRefused"}


async def test_another_policy_for_a_job_that_exists_is_a_warning(
    api: Api, start_fettle: StartFettle
) -> None:
    fettle = await start_fettle("webhook")
    await register_webhooks(api, fettle)
    made = await api.create(
        objects.job("train", gpus=1, job_annotations={"fettle.dev/policy": "training"})
    )
    before = await reviewed(fettle)
    made["metadata"]["annotations"]["fettle.dev/policy"] = "inference"
    stored = await api.replace(made)
    assert await reviewed(fettle) - before == 1
    assert "this Job goes on as it was made" in " ".join(api.warnings)
    assert stored["spec"] == made["spec"]


async def test_an_unknown_policy_is_a_warning_and_the_pod_runs(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("w0", 8))
    await control_plane.start_scheduler()
    fettle = await start_fettle("webhook")
    await register_webhooks(api, fettle)
    await api.create(objects.pod("p", gpus=1, annotations={"fettle.dev/policy": "trainig"}))
    assert "trainig" in " ".join(api.warnings)
    assert await waiting.bound(api, "p") == "w0"
    _, metrics = await fettle.browse("/metrics")
    assert "fettle_webhook_unknown_policies_total 1.0" in metrics


async def test_where_the_cluster_drops_tolerations_none_are_injected(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await control_plane.stop_api_server(kill=True)
    off = "--feature-gates=DRADeviceTaints=false,DRADeviceTaintRules=false"
    await control_plane.start_api_server(off)
    dropped = await api.create(objects.claim("own", objects.claim_spec(tolerations=[TOLERATION])))
    assert "tolerations" not in dropped["spec"]["devices"]["requests"][0]["exactly"]
    await installed(api, start_fettle, EVERYTHING)
    made = await api.create(objects.claim("c", annotations=NAMED))
    assert "fettle.dev/injected" not in made["metadata"]["annotations"]
    assert "drops tolerations" in " ".join(api.warnings)
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


async def test_while_the_webhook_hangs_the_life_of_claims_goes_on(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_dra_node(api, "w0", 1)
    await control_plane.start_controller_manager()
    webhook = await installed(api, start_fettle, EVERYTHING)
    await register_extender(control_plane, await start_fettle("extender"))
    await api.patch("namespaces", "default", {"metadata": {"labels": NAMED}})
    await api.create(objects.claim_template("one-gpu"))
    await api.patch("nodes", "w0", {"spec": {"unschedulable": True}})
    await api.create(objects.pod("p", templates={"gpu": "one-gpu"}, annotations=NAMED))
    await waiting.refused(api, "p")
    (claim,) = await api.list("resourceclaims", "default")
    assert "firstAvailable" in claim["spec"]["devices"]["requests"][0]
    webhook.freeze()
    try:
        began = time.monotonic()
        await api.patch("nodes", "w0", {"spec": {"unschedulable": None}})
        await waiting.bound(api, "p")
        await api.delete("pods", "p", grace_s=0)
        await waiting.gone(api, "resourceclaims", claim["metadata"]["name"])
        assert time.monotonic() - began < 2.5  # a call that waits for us takes 3 s
    finally:
        webhook.thaw()


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
    validated = {"ResourceClaim", "ResourceClaimTemplate", "JobSet", "LeaderWorkerSet"}
    assert await reviewed(fettle, "validate") == len(validated)


def _without_gpus(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_gpus(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_gpus(entry) for key, entry in value.items() if key != "limits"}
