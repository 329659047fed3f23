"""Pods that run together, and pods that come back, on the real kube-scheduler.

The scheduler's own scores draw the pods to the node where they should not go, which a pod that is
neither of both shows.
"""

from __future__ import annotations

import time
from typing import Any

from fettle.scheduling.in_flight import SECONDS
from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_gpu_nodes, create_node
from tests.controlplane.installed import register_extender, scores
from tests.controlplane.kubelet import Kubelet

GATES = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
SERVED = "--runtime-config=scheduling.k8s.io/v1beta1=true"
ZONE = "topology.kubernetes.io/zone"
ONE_GPU = {"gpu": "one-gpu"}


def drawn_to(node: str, of: Object) -> Object:
    """The pod or template, which prefers the node by as much as affinity can say: 200 points."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    preference = {"weight": 100, "preference": {"matchExpressions": [term]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    of["spec"]["affinity"] = affinity
    return of


async def wear(kubelet: Kubelet, node: str) -> None:
    """Its devices become Degraded, with a score of 0.7: 150 points less."""
    await kubelet.set_node_condition(node, "FrequentKubeletRestart", "True", "Restarts", "6")


async def until_score(fettle: FettleProcess, pod: str, node: str, score: int) -> None:
    await waiting.wait_until(
        lambda: scores(fettle, pod),
        lambda found: node in found and found[node]["score"] == score,
        what=f"Fettle scores {node} with {score} for {pod}",
    )


async def until_avoided(fettle: FettleProcess, pod: str, node: str) -> None:
    """Until Fettle says that the pod failed there, and nothing else."""

    async def codes() -> list[str]:
        about = (await scores(fettle, pod)).get(node)
        return [note["code"] for note in about["reasons"]["notes"]] if about else []

    await waiting.wait_until(
        codes, lambda found: found == ["FailedHere"], what=f"Fettle says why {node} is avoided"
    )


async def probe(api: Api, name: str, **template: Any) -> Object:
    """A pod that no scheduler places, to be explained."""
    pod = objects.pod(name, gpus=1, **template)
    pod["spec"]["schedulerName"] = "nobody"
    return await api.create(pod)


async def places(api: Api, selector: str, count: int) -> list[str]:
    pods = await waiting.wait_until(
        lambda: api.list("pods", "default", labels=selector),
        lambda pods: sum(bool(waiting.node_of(pod)) for pod in pods) == count,
        what=f"{count} pods of {selector} are bound",
    )
    return sorted(str(waiting.node_of(pod)) for pod in pods)


async def test_a_gang_avoids_the_node_that_would_be_its_only_slow_one(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_gpu_nodes(api, "slow", "good-0", "good-1", "good-2", "good-3", gpus=1)
    await wear(kubelet, "slow")
    await control_plane.start_controller_manager()
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    await probe(api, "probe")
    await until_score(fettle, "probe", "slow", 7)
    await api.create(drawn_to("slow", objects.pod("single", gpus=1)))
    assert await waiting.bound(api, "single") == "slow"
    await api.delete("pods", "single")
    await waiting.gone(api, "pods", "single")

    await api.patch("nodes", "slow", {"spec": {"unschedulable": True}})
    gang = objects.job("gang", completions=3, parallelism=3, gpus=1)
    gang["spec"]["completionMode"] = "Indexed"
    drawn_to("slow", gang["spec"]["template"])
    await api.create(gang)
    await places(api, "job-name=gang", 3)
    await api.patch("nodes", "slow", {"spec": {"unschedulable": None}})
    await api.patch("jobs", "gang", {"spec": {"completions": 4, "parallelism": 4}})
    assert await places(api, "job-name=gang", 4) == [f"good-{number}" for number in range(4)]

    index = "batch.kubernetes.io/job-completion-index=3"
    (last,) = await api.list("pods", "default", labels=f"job-name=gang,{index}")
    slow = (await scores(fettle, last["metadata"]["name"]))["slow"]
    assert slow["score"] == 4
    assert [note["code"] for note in slow["reasons"]["notes"]] == ["SlowsGang"]

    # Nor does the first one go there, though nobody knows where the others will be.
    await api.delete("jobs", "gang")
    await waiting.wait_until(
        lambda: api.list("pods", "default", labels="job-name=gang"),
        lambda pods: not pods,
        what="the first gang is gone",
    )
    late = objects.job("late", completions=4, parallelism=4, gpus=1)
    late["spec"]["completionMode"] = "Indexed"
    drawn_to("slow", late["spec"]["template"])
    await api.create(late)
    assert await places(api, "job-name=late", 4) == [f"good-{number}" for number in range(4)]


async def test_a_stateful_set_pod_comes_back_to_its_sound_node_and_not_to_where_it_failed(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("home", 1, cpu="16"))
    await create_node(api, objects.node("wide", 1, cpu="512"))
    await create_node(api, objects.node("spare", 1, cpu="8"))
    await control_plane.start_controller_manager()
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("single", gpus=1, cpu="4"))
    assert await waiting.bound(api, "single") == "wide"
    stateful = objects.replica_set("web", gpus=1, cpu="4")
    stateful["kind"] = "StatefulSet"
    stateful["spec"] |= {"serviceName": "web", "updateStrategy": {"type": "OnDelete"}}
    await api.create(stateful)
    assert await waiting.bound(api, "web-0") == "home"
    await waiting.in_phase(api, "web-0", "Running")
    await api.delete("pods", "single")
    await waiting.gone(api, "pods", "single")

    first = await api.get("pods", "web-0")
    await api.delete("pods", "web-0")
    second = await again(api, first)
    assert waiting.node_of(second) == "home"

    # The next one is held until Fettle has seen that this one failed.
    gate = [{"name": "example.com/seen"}]
    held = {"spec": {"template": {"spec": {"schedulingGates": gate}}}}
    await api.patch("statefulsets", "web", held)
    await api.patch_status("pods", "web-0", {"phase": "Failed", "reason": "Evicted"})
    await until_avoided(fettle, "web-0", "home")
    await waiting.wait_until(
        lambda: api.get("pods", "web-0"),
        lambda pod: pod["spec"].get("schedulingGates") == gate,
        what="the pod is made anew",
    )
    await api.patch("pods", "web-0", {"spec": {"schedulingGates": None}})
    third = await again(api, second)
    assert waiting.node_of(third) == "wide"


async def test_a_job_s_pod_comes_back_to_its_sound_node_and_not_to_where_it_failed(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("home", 2, cpu="16"))
    await create_node(api, objects.node("wide", 3, cpu="512"))
    await api.patch("nodes", "wide", {"spec": {"unschedulable": True}})
    await control_plane.start_controller_manager()
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    train = objects.job("train", gpus=1, cpu="4")
    train["spec"]["completionMode"] = "Indexed"
    await api.create(train)
    first = await next_of(api, "train", set())
    assert waiting.node_of(first) == "home"
    await api.patch("nodes", "wide", {"spec": {"unschedulable": None}})
    await api.create(objects.pod("other", gpus=1, cpu="4"))
    assert await waiting.bound(api, "other") == "wide", "as the scheduler would have it"

    # Somebody deletes it: that is no failure of the node.
    await api.delete("pods", first["metadata"]["name"])
    second = await next_of(api, "train", {first["metadata"]["uid"]})
    assert waiting.node_of(second) == "home"
    name = second["metadata"]["name"]
    await waiting.wait_until(
        lambda: preferred(fettle, name),
        lambda found: found == {"home": 12},
        what="the decision on the second pod says why",
    )

    await api.patch_status("pods", name, {"phase": "Failed"})
    seen = {one["metadata"]["uid"] for one in (first, second)}
    third = await next_of(api, "train", seen)  # after the Job's pause of ten seconds
    assert waiting.node_of(third) == "wide"
    await until_avoided(fettle, third["metadata"]["name"], "home")


async def next_of(api: Api, job: str, seen: set[str]) -> Object:
    """The Job's bound pod whose UID is not among these."""

    async def look() -> list[Object]:
        pods = await api.list("pods", "default", labels=f"job-name={job}")
        return [pod for pod in pods if pod["metadata"]["uid"] not in seen]

    pods: list[Object] = await waiting.wait_until(
        look,
        lambda pods: pods and all(waiting.node_of(pod) for pod in pods),
        what=f"the next pod of {job} is bound",
        timeout_s=60,
    )
    return pods[0]


async def preferred(fettle: FettleProcess, pod: str) -> Object:
    """Some of the best nodes, as the last decision on the pod has them."""
    _, answer = await fettle.browse("/decisions", pod=f"default/{pod}")
    return {
        node: score for one in answer["decisions"][:1] for node, score in one["preferred"].items()
    }


async def again(api: Api, before: Object) -> Object:
    """The pod of the same name that comes after this one, once it is bound."""
    uid = before["metadata"]["uid"]
    return await waiting.wait_until(
        lambda: api.get("pods", before["metadata"]["name"]),
        lambda pod: pod["metadata"]["uid"] != uid and waiting.node_of(pod),
        what="the pod is made anew and bound",
    )


# Kubernetes' own PodGroups


def pod_group(name: str, count: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": count}},
            "schedulingConstraints": {"topology": [{"key": ZONE}]},
        },
    }


async def start_with_groups(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> FettleProcess:
    """The scheduler asks Fettle about all pods, so those with claims need no marker."""
    await api.create(objects.claim_template("one-gpu"))
    await control_plane.start_controller_manager(GATES)
    fettle = await start_fettle("extender")
    configuration = shipped.scheduler_configuration(fettle.extender_url)
    for entry in configuration["extenders"]:
        del entry["managedResources"]
    await control_plane.start_scheduler(configuration, GATES)
    return fettle


async def create_group(api: Api, name: str, count: int) -> None:
    await api.create(pod_group(name, count))
    for number in range(count):
        pod = objects.pod(f"{name}-{number}", templates=ONE_GPU)
        pod["spec"]["schedulingGroup"] = {"podGroupName": name}
        await api.create(pod)


async def test_pods_of_pod_group_placements_that_came_to_nothing_are_not_in_flight(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await control_plane.restart_api_server(GATES, SERVED)
    lost = {number: [objects.taint("gpu.nvidia.com/xid", "None", "79")] for number in (2, 3)}
    zones = {f"small-{n}": (f"small-{n}", objects.gpu_devices(3)) for n in range(4)}
    zones |= {"half": ("zone", objects.gpu_devices(4, taints=lost))}
    zones |= {"worn": ("zone", objects.gpu_devices(4))}
    for name, (zone, devices) in zones.items():
        await create_dra_node(api, name, devices, objects.node(name, labels={ZONE: zone}))
    await wear(kubelet, "worn")
    await start_with_groups(control_plane, api, start_fettle)

    # Each zone is tried, in an order that differs from run to run. In a zone that is too small,
    # three pods pass; if they were in flight afterwards, two sound devices would be too few.
    await create_group(api, "gang", 4)
    bound = [await waiting.bound(api, f"gang-{number}") for number in range(4)]
    assert sorted(bound) == ["half", "half", "worn", "worn"]


async def test_pods_of_a_pod_group_that_could_not_be_placed_are_not_in_flight(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await control_plane.restart_api_server(GATES, SERVED)
    lost = {2: [objects.taint("gpu.nvidia.com/xid", "None", "79")]}
    devices = objects.gpu_devices(3, taints=lost)
    await create_dra_node(api, "edge", devices, objects.node("edge", labels={ZONE: "edge"}))
    fettle = await start_with_groups(control_plane, api, start_fettle)
    alone = objects.pod("alone", templates=ONE_GPU)

    async def score() -> int:
        asked = {"Pod": alone, "NodeNames": ["edge", "other"]}
        _, reply = await fettle.ask_extender("prioritize", asked)
        return next(int(entry["Score"]) for entry in reply if entry["Host"] == "edge")

    async def answered_at(group: str) -> float:
        _, found = await fettle.browse("/decisions")
        return max(float(one["last"]) for one in found["decisions"] if group in one["key"])

    within_s = []
    for group in ("first", "second", "third"):  # in case this machine is slow
        await create_group(api, group, 4)
        await waiting.refused(api, f"{group}-0", saying="pod group is unschedulable")
        await waiting.wait_until(score, lambda found: found >= 10, what="nothing is in flight")
        within_s.append(time.time() - await answered_at(group))
        if within_s[-1] < 0.8 * SECONDS:
            break
        await api.delete("podgroups", group)
    assert min(within_s) < 0.8 * SECONDS, within_s

    for number in range(2):
        other = objects.pod(f"other-{number}", templates=ONE_GPU)
        await fettle.ask_extender("filter", {"Pod": other, "NodeNames": ["edge"]})
    assert await score() < 10
