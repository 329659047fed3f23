"""A stand-in for the kubelets of all nodes: it runs every pod that gets bound and lets go of every
pod that is deleted, and a test makes it fail pods, report devices and end containers. Statuses are
written as the real kubelet writes them: other writers' pod conditions stay."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping

import aiohttp

from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.objects import node_condition, now
from tests.controlplane.waiting import in_phase

_UNHEALTHY = "no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu"

_CRASH_LOOP = {
    "reason": "CrashLoopBackOff",
    "message": "back-off 10s restarting failed container",
}

_EVERYDAY = (ApiError, aiohttp.ClientError, OSError, TimeoutError)
"""Ended watches, deleted pods, and an API server that a test stopped."""


class Kubelet:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._task: asyncio.Task[None] | None = None
        self._refusing: dict[str, Object] = {}
        self._preparing_nothing: dict[str, str] = {}
        self._starting_nothing: dict[str, str] = {}
        self._addresses = itertools.count(1)
        self.termination_s = 0.0
        """How long a deleted pod takes to stop."""
        self._stopping: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="kubelet")

    async def stop(self) -> None:
        if self._task is not None:
            await _cancelled(self._task)  # first: no further pod is let go then
        self._task = None
        await _cancelled(*self._stopping.values())

    # --- what a test makes it do

    def refuse_pods_on(self, node: str, cause: str = _UNHEALTHY, *, reason: str = "") -> None:
        """From now on the node swallows pods: each one bound to it fails admission. With a
        `reason`, that and `cause` are all that the kubelet says."""
        refusal = _admission_failure(cause)
        if reason:
            refusal |= {"reason": reason, "message": f"Pod was rejected: {cause}"}
        self._refusing[node] = refusal

    def run_out_on(self, node: str, resource: str) -> None:
        """As above, but by the kubelet's own check: the device plugin is away."""
        self._refusing[node] = _out_of(resource)

    def accept_pods_on(self, node: str) -> None:
        self._refusing.pop(node, None)

    def prepare_nothing_on(self, node: str, cause: str) -> None:
        """From now on the node's DRA driver fails: pods with claims are bound to it, and wait."""
        self._preparing_nothing[node] = cause

    def start_nothing_of(self, workload: str, cause: str) -> None:
        """The container runtime cannot start this workload's containers, on whatever node."""
        self._starting_nothing[workload] = cause

    async def fail_admission(
        self, pod: str, cause: str = _UNHEALTHY, namespace: str = "default"
    ) -> None:
        """Fail this pod as the kubelet does when the device plugin cannot allocate."""
        await self._set(pod, namespace, _admission_failure(cause))

    async def set_device_health(
        self,
        pod: str,
        health: Mapping[str, str],
        *,
        resource: str = "nvidia.com/gpu",
        message: str | None = None,
        namespace: str = "default",
    ) -> None:
        """`allocatedResourcesStatus` of the pod's first container: device id to Healthy, Unhealthy
        or Unknown. For a claim the resource is `claim:NAME` or `claim:NAME/REQUEST`, the id
        `driver/pool/device`. Waits until the pod runs."""
        running = await in_phase(self._api, pod, "Running", namespace=namespace)
        said = {"message": message} if message else {}
        resources = [{"resourceID": i, "health": h, **said} for i, h in health.items()]
        statuses = running["status"]["containerStatuses"]
        others = [
            s for s in statuses[0].get("allocatedResourcesStatus", []) if s["name"] != resource
        ]
        statuses[0]["allocatedResourcesStatus"] = [
            *others,
            {"name": resource, "resources": resources},
        ]
        await self._set(pod, namespace, {"containerStatuses": statuses})

    async def exit_containers(
        self, pod: str, code: int, *, namespace: str = "default", reason: str | None = None
    ) -> None:
        """All containers end with the code: the pod ends, or restarts as its restartPolicy says.
        Waits until the pod runs."""
        running = await in_phase(self._api, pod, "Running", namespace=namespace)
        policy = running["spec"]["restartPolicy"]
        if policy == "Always" or (policy == "OnFailure" and code != 0):
            status = _restarted(running, code, reason)
        else:
            status = _ended(running, code, reason)
        await self._set(pod, namespace, status)

    async def loop_in_crashes(self, pod: str, code: int, *, namespace: str = "default") -> None:
        """The containers have ended with the code, and the kubelet waits before it starts them
        again. Waits until the pod runs."""
        running = await in_phase(self._api, pod, "Running", namespace=namespace)
        status = _restarted(running, code, None)
        for container in status["containerStatuses"]:
            container |= {"ready": False, "state": {"running": None, "waiting": _CRASH_LOOP}}
        await self._set(pod, namespace, status)

    async def set_node_condition(
        self,
        node: str,
        kind: str,
        status: str,
        reason: str = "Set",
        message: str = "",
        *,
        since: str | None = None,
    ) -> None:
        conditions = [node_condition(kind, status, reason, message, since=since)]
        await self._api.patch_status("nodes", node, {"conditions": conditions}, form="strategic")

    async def set_allocatable(
        self, node: str, count: int, *, resource: str = "nvidia.com/gpu"
    ) -> None:
        """As after the device plugin withdrew devices; capacity stays."""
        await self._api.patch_status("nodes", node, {"allocatable": {resource: str(count)}})

    # --- what it does by itself

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(*_EVERYDAY):
                async with contextlib.aclosing(self._api.watch("pods")) as changes:
                    async for kind, pod in changes:
                        if kind == "ERROR":
                            break
                        if kind != "DELETED" and pod["spec"].get("nodeName"):
                            await self._attend(pod)
            await asyncio.sleep(0.1)

    async def _attend(self, pod: Object) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            if uid not in self._stopping:
                self._stopping[uid] = asyncio.create_task(self._let_go(pod))
        elif pod["status"]["phase"] == "Pending":
            if pod["status"].get("startTime"):
                return  # it waits, as it was told to
            status = await self._took(pod)
            with contextlib.suppress(ApiError):  # gone, or changed: the watch will tell
                await self._set(name, pod["metadata"]["namespace"], status, uid)

    async def _took(self, pod: Object) -> Object:
        """The status of a pod that was just bound."""
        node = pod["spec"]["nodeName"]
        if refusal := self._refusing.get(node):
            return {**refusal, "startTime": now()}
        if (cause := self._preparing_nothing.get(node)) and pod["spec"].get("resourceClaims"):
            await self._api.create(_prepare_failed(pod, cause))
            return _not_started(pod, "ContainerCreating")
        for workload, cause in self._starting_nothing.items():
            if pod["metadata"]["name"].startswith(f"{workload}-"):
                return _not_started(pod, "RunContainerError", cause)
        return _running(pod, next(self._addresses))

    async def _let_go(self, pod: Object) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        uid = pod["metadata"]["uid"]
        try:
            await asyncio.sleep(self.termination_s)
            with contextlib.suppress(*_EVERYDAY):
                if pod["status"]["phase"] == "Running":
                    await self._set(name, namespace, _ended(pod, 143, "Error"), uid)
                elif pod["status"].get("startTime"):  # what never ran ends as Failed, too
                    await self._set(name, namespace, {"phase": "Failed"}, uid)
                await self._api.delete("pods", name, namespace, grace_s=0, uid=uid)
        finally:
            del self._stopping[uid]

    async def _set(self, pod: str, namespace: str, status: Object, uid: str | None = None) -> None:
        body: Object = {"status": status} | ({"metadata": {"uid": uid}} if uid else {})
        await self._api.patch("pods", pod, body, namespace, form="strategic", subresource="status")


def _conditions(ready: bool, reason: str = "") -> list[Object]:
    at = now()
    readiness = {"status": str(ready), "lastTransitionTime": at, "reason": reason}
    return [
        {"type": "PodReadyToStartContainers", "status": str(ready), "lastTransitionTime": at},
        {"type": "Initialized", "status": "True", "lastTransitionTime": at},
        {"type": "ContainersReady", **readiness},
        {"type": "Ready", **readiness},
    ]


def _running(pod: Object, address: int) -> Object:
    at, ip = now(), f"10.244.{address // 250 % 250}.{address % 250 + 1}"
    return {
        "phase": "Running",
        "startTime": at,
        "hostIP": "192.0.2.10",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": _conditions(ready=True),
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": container["image"],
                "containerID": f"containerd://{pod['metadata']['uid']}-{container['name']}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": at}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def _not_started(pod: Object, reason: str, message: str = "") -> Object:
    waiting = {"reason": reason} | ({"message": message} if message else {})
    return {
        "phase": "Pending",
        "startTime": now(),
        "conditions": _conditions(ready=False, reason="ContainersNotReady"),
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": {"waiting": waiting},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def _prepare_failed(pod: Object, cause: str) -> Object:
    """The Event that the kubelet records."""
    at, metadata = now(), pod["metadata"]
    said = "Failed to prepare dynamic resources: prepare dynamic resources"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.1", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Warning",
        "reason": "FailedPrepareDynamicResources",
        "message": f"{said}: {cause}",
        "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _admission_failure(cause: str) -> Object:
    return {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": f"Pod was rejected: Allocate failed due to {cause}, which is unexpected",
        "startTime": now(),
    }


def _out_of(resource: str) -> Object:
    return {
        "phase": "Failed",
        "reason": f"OutOf{resource}",
        "message": f"Pod was rejected: Node didn't have enough resource: {resource}, requested: 1, "
        "used: 0, capacity: 0",
        "startTime": now(),
    }


def _terminated(container: Object, code: int, reason: str | None) -> Object:
    began = container["state"].get("running", {}).get("startedAt", now())
    reason = reason or ("Completed" if code == 0 else "Error")
    return {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": now()}


def _ended(pod: Object, code: int, reason: str | None) -> Object:
    statuses = [
        {
            **container,
            "ready": False,
            "started": False,
            "state": {"running": None, "terminated": _terminated(container, code, reason)},
        }
        for container in pod["status"].get("containerStatuses", [])
    ]
    phase = "Succeeded" if code == 0 else "Failed"
    done = "PodCompleted" if code == 0 else "PodFailed"
    return {
        "phase": phase,
        "conditions": _conditions(ready=False, reason=done),
        "containerStatuses": statuses,
    }


def _restarted(pod: Object, code: int, reason: str | None) -> Object:
    statuses = [
        {
            **container,
            "restartCount": container["restartCount"] + 1,
            "lastState": {"terminated": _terminated(container, code, reason)},
            "state": {"running": {"startedAt": now()}},
        }
        for container in pod["status"]["containerStatuses"]
    ]
    return {"containerStatuses": statuses}
