"""The pods of each kind of group, with what their controllers really write on them.

Sources: JobSet 08dfbdfd `labelAndAnnotateObject`; LeaderWorkerSet 060ab4d `pod_webhook.go` and
`constructWorkerStatefulSetApplyConfiguration`; Kubeflow training-operator 1.9 `createNewPod` and
`podgroup_control.go`; mpi-operator `newWorker`, `newLauncherPodTemplate`; Volcano ed72c7c
`createJobPod`, `GeneratePodgroupName`; Kueue ff69552 `SetPodGroupName`; Kubernetes 1.37.1
`pkg/controller/job`.
"""

from typing import Any

import msgspec
import pytest

from fettle.api import core
from fettle.scheduling.gangs import Gangs, group_of
from tests.fettle import building as b

Raw = dict[str, Any]

SIZE = "kueue.x-k8s.io/pod-group-total-count"


def controlled_by(kind: str, name: str, api: str = "batch/v1") -> Raw:
    return {
        "apiVersion": api,
        "kind": kind,
        "name": name,
        "uid": f"uid-{kind}-{name}",
        "controller": True,
    }


def of_job(job: str, index: int | None = None) -> Raw:
    labels = {"batch.kubernetes.io/job-name": job, "job-name": job}
    annotations = {}
    if index is not None:
        labels["batch.kubernetes.io/job-completion-index"] = str(index)
        annotations["batch.kubernetes.io/job-completion-index"] = str(index)
    return {
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [controlled_by("Job", job)],
    }


def of_job_set(replicated: str, number: int, index: int) -> Raw:
    """A pod of a JobSet, which may be a TrainJob's."""
    job = f"train-{replicated}-{number}"
    pod = of_job(job, index)
    of_set = {
        "jobset.sigs.k8s.io/jobset-name": "train",
        "jobset.sigs.k8s.io/jobset-uid": "5c0",
        "jobset.sigs.k8s.io/replicatedjob-name": replicated,
        "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
        "jobset.sigs.k8s.io/global-replicas": "3",
        "jobset.sigs.k8s.io/restart-attempt": "0",
        "jobset.sigs.k8s.io/job-index": str(number),
        "jobset.sigs.k8s.io/job-key": f"sha-{job}",
    }
    pod["labels"] |= of_set
    pod["annotations"] |= of_set
    return pod


def with_group_of(pod: Raw, name: str) -> Raw:
    """With a PodGroup that Kubernetes' Job controller made (gate WorkloadWithJob)."""
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": name}
    owners = [*pod["ownerReferences"], {**group, "uid": f"uid-{name}"}]
    return {**pod, "ownerReferences": owners, "podGroup": name}


def of_leader_worker_set(group: int, index: int) -> Raw:
    """The leader is of the set's own StatefulSet, workers are of one that the leader owns."""
    annotations = {"leaderworkerset.sigs.k8s.io/size": "3"}
    if index:
        annotations["leaderworkerset.sigs.k8s.io/leader-name"] = f"serve-{group}"
    return {
        "labels": {
            "leaderworkerset.sigs.k8s.io/name": "serve",
            "leaderworkerset.sigs.k8s.io/template-revision-hash": "5b9",
            "leaderworkerset.sigs.k8s.io/group-index": str(group),
            "leaderworkerset.sigs.k8s.io/group-key": f"sha-{group}",
            "leaderworkerset.sigs.k8s.io/worker-index": str(index),
        },
        "annotations": annotations,
        "ownerReferences": [
            controlled_by("StatefulSet", f"serve-{group}" if index else "serve", "apps/v1")
        ],
    }


def with_kueue(pod: Raw, name: str, size: int, *, labelled: bool = True) -> Raw:
    """By a label, or by an annotation (Kueue's gate WorkloadIdentifierAnnotations)."""
    key = {"kueue.x-k8s.io/pod-group-name": name}
    told = {SIZE: str(size)}
    return {
        **pod,
        "labels": {**pod.get("labels", {}), **(key if labelled else {})},
        "annotations": {**pod.get("annotations", {}), **told, **({} if labelled else key)},
    }


def of_kubeflow(kind: str, job: str, replica: str, index: int) -> Raw:
    return {
        "labels": {
            "training.kubeflow.org/job-name": job,
            "training.kubeflow.org/operator-name": f"{kind.lower()}-controller",
            "training.kubeflow.org/replica-type": replica,
            "training.kubeflow.org/replica-index": str(index),
        },
        "ownerReferences": [controlled_by(kind, job, "kubeflow.org/v1")],
    }


def of_mpi(role: str, index: int = 0) -> Raw:
    """The launcher is the pod of a Job that the MPIJob owns."""
    labels = {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "mpi",
        "training.kubeflow.org/job-role": role,
    }
    if role == "launcher":
        pod = of_job("mpi-launcher")
        return {**pod, "labels": pod["labels"] | labels}
    labels["training.kubeflow.org/replica-index"] = str(index)
    return {
        "labels": labels,
        "ownerReferences": [controlled_by("MPIJob", "mpi", "kubeflow.org/v2beta1")],
    }


def of_volcano(task: str, index: int) -> Raw:
    told = {"volcano.sh/job-name": "vc", "volcano.sh/task-spec": task, "volcano.sh/task-index": "0"}
    return {
        "labels": {**told, "volcano.sh/job-namespace": "default"},
        "annotations": {**told, "scheduling.k8s.io/group-name": f"vc-{'0' * 8}"},
        "ownerReferences": [controlled_by("Job", "vc", "batch.volcano.sh/v1alpha1")],
    }


def for_volcano(pod: Raw) -> Raw:
    """Volcano names a group for the pods of any controller, for a Deployment's too."""
    (owner,) = pod["ownerReferences"]
    name = {"scheduling.k8s.io/group-name": f"podgroup-{owner['uid']}"}
    return {**pod, "annotations": {**pod.get("annotations", {}), **name}}


REPLICA = {"ownerReferences": [controlled_by("ReplicaSet", "web-5d9", "apps/v1")]}
BARE: Raw = {}
IN_POD_GROUP = {**BARE, "podGroup": "bring-your-own"}

GANGS = {
    "Indexed Job": [of_job("j", index) for index in range(3)],
    "Indexed Job with a PodGroup": [with_group_of(of_job("j", i), "j-pg") for i in range(3)],
    "Indexed Job under Volcano": [for_volcano(of_job("j", index)) for index in range(3)],
    "JobSet": [of_job_set("worker", n, i) for n in range(2) for i in range(2)]
    + [of_job_set("driver", 0, 0)],
    "JobSet whose Jobs have PodGroups": [
        with_group_of(of_job_set("worker", n, i), f"train-{n}") for n in range(2) for i in range(2)
    ],
    "JobSet under Kueue": [with_kueue(of_job_set("worker", n, 0), "wl", 3) for n in range(3)],
    "LeaderWorkerSet": [of_leader_worker_set(1, index) for index in range(3)],
    "LeaderWorkerSet under Kueue": [
        with_kueue(of_leader_worker_set(1, index), "wl-1", 3) for index in range(3)
    ],
    "LeaderWorkerSet under Volcano": [
        {
            **(raw := of_leader_worker_set(1, index)),
            "annotations": {**raw["annotations"], "scheduling.k8s.io/group-name": "serve-1-5b9"},
        }
        for index in range(3)
    ],
    "PyTorchJob": [of_kubeflow("PyTorchJob", "torch", "master", 0)]
    + [of_kubeflow("PyTorchJob", "torch", "worker", index) for index in range(2)],
    "PyTorchJob with coscheduling": [
        {
            **(raw := of_kubeflow("PyTorchJob", "torch", "worker", index)),
            "labels": {**raw["labels"], "scheduling.x-k8s.io/pod-group": "torch"},
        }
        for index in range(2)
    ],
    "MPIJob": [of_mpi("launcher"), of_mpi("worker", 0), of_mpi("worker", 1)],
    "Volcano Job": [of_volcano("master", 0), of_volcano("worker", 0), of_volcano("worker", 1)],
    "Kueue's plain pods": [with_kueue(BARE, "group", 3) for _ in range(3)],
    "Kueue's plain pods by annotation": [
        with_kueue(BARE, "group", 3, labelled=False) for _ in range(3)
    ],
    "coscheduling": [{"labels": {"scheduling.x-k8s.io/pod-group": "g"}} for _ in range(2)],
    "PodGroup": [IN_POD_GROUP, IN_POD_GROUP],
    "Job of a user's PodGroup": [{**of_job("j"), "podGroup": "mine"} for _ in range(2)],
}
"""Each is one gang."""

OTHERS = {
    "another group of the LeaderWorkerSet": of_leader_worker_set(0, 0),
    "another PyTorchJob": of_kubeflow("PyTorchJob", "other", "worker", 0),
    "another group of Kueue": with_kueue(BARE, "other", 2),
}

ALONE = {
    "Job": of_job("queue"),
    "Job with a PodGroup": with_group_of(of_job("queue"), "queue-pg"),
    "Job under Volcano": for_volcano(of_job("queue")),
    "Deployment": REPLICA,
    "Deployment under Volcano": for_volcano(REPLICA),
    "bare pod": BARE,
}


def pod(shape: Raw, name: str) -> core.Pod:
    raw = b.gpu_pod(name=name, count=8)
    raw["metadata"] |= {"uid": f"u-{name}", **shape}
    if group := raw["metadata"].pop("podGroup", None):
        raw["spec"]["schedulingGroup"] = {"podGroupName": group}
    return b.pod(raw)


def following(*pods: core.Pod) -> Gangs:
    gangs, view = Gangs(), b.view()
    known = {pod.metadata.key: pod for pod in pods}
    gangs.observe_view(view, msgspec.structs.replace(view, pods=known))
    return gangs


@pytest.mark.parametrize("kind", GANGS)
def test_all_pods_of_a_group_are_one_gang(kind: str) -> None:
    pods = [pod(shape, f"p{number}") for number, shape in enumerate(GANGS[kind])]
    others = [pod(shape, f"o{number}") for number, shape in enumerate(OTHERS.values())]
    gangs = following(*pods, *others)
    (group,) = {group_of(one) for one in pods}
    assert group
    assert group not in {group_of(other) for other in others}
    assert {gangs.unplaced(one, now=0.0) for one in pods} == {len(pods)}


@pytest.mark.parametrize("kind", ALONE)
def test_pods_that_do_not_wait_for_each_other_are_no_gang(kind: str) -> None:
    pods = [pod(ALONE[kind], name) for name in "abc"]
    gangs = following(*pods)
    assert not any(gangs.is_member(one) or gangs.unplaced(one, now=0.0) for one in pods)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        (of_leader_worker_set(0, 0), 3),
        (with_kueue(BARE, "g", 5), 5),
        (with_kueue(BARE, "g", 5, labelled=False), 5),
        (of_job_set("worker", 0, 0), 3),  # Jobs, of one pod at least
        (of_job("j", 0), 2),  # an Indexed Job has more than one pod as a rule
        (IN_POD_GROUP, 2),
        (of_kubeflow("PyTorchJob", "torch", "master", 0), 2),
        ({"ownerReferences": [controlled_by("StatefulSet", "web", "apps/v1")]}, 0),
        ({"annotations": {SIZE: "9"}}, 0),  # of no group
        ({**with_kueue(BARE, "g", 5), "annotations": {SIZE: "many"}}, 2),
        ({**with_kueue(BARE, "g", 5), "annotations": {SIZE: "-1"}}, 2),
    ],
)
def test_the_first_pod_of_a_group_knows_how_many_there_are_at_least(shape: Raw, size: int) -> None:
    first = pod(shape, "first")
    assert following(first).unplaced(first, now=0.0) == size
