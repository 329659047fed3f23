"""Jobs whose devices fail, and what is decided about them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.mutating import NAMED

OPTIONAL = shipped.DEPLOY / "rbac" / "optional"

MARKS, EVICTIONS = OPTIONAL / "pod-conditions.yaml", OPTIONAL / "pod-evictions.yaml"

FAILED = "fettle.dev/DeviceFailed"

IGNORES: Object = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": kind, "status": "True"}]}
        for kind in ("DisruptionTarget", FAILED)
    ]
}


def settings(folder: Path, more: str = "", **changes: Any) -> Path:
    how = {"allow": "Evict", "confirmSeconds": 2, "evictionsPerSecond": 10, **changes}
    file = folder / "settings.yaml"
    told = ", ".join(f"{name}: {value}" for name, value in how.items())
    file.write_text(f"deviceFailures: {{{told}}}\n{more}\n")
    return file


async def marked(api: Api, pod: str, reason: str = "DeviceUnhealthy") -> Object:
    """The pod's condition, once it is there with this reason."""
    seen = await waiting.wait_until(
        lambda: api.get("pods", pod),
        lambda one: waiting.condition(one, FAILED).get("reason") == reason,
        what=f"{pod} is marked as {reason}",
    )
    return waiting.condition(seen, FAILED)


async def running(api: Api, labels: str, besides: str = "") -> Object:
    """The only other pod with these labels, once it runs."""

    async def look() -> Object | None:
        pods = await api.list("pods", "default", labels=labels)
        found = [one for one in pods if one["metadata"]["uid"] != besides]
        return next((one for one in found if one["status"].get("phase") == "Running"), None)

    found = await waiting.wait_until(look, what=f"a pod {labels} runs", timeout_s=60)
    assert found is not None
    return found


async def events(api: Api, pod: str, reason: str) -> list[str]:
    found = await api.list("events.events.k8s.io", "default")
    return [e["note"] for e in found if (e["regarding"]["name"], e["reason"]) == (pod, reason)]


async def decided(fettle: FettleProcess, pod: str) -> dict[str, str]:
    """By what the steward writes about the pod: whether it wrote it."""
    _, answer = await fettle.browse("/decisions", pod=f"default/{pod}")
    told = [one for one in answer["decisions"] if one["verb"] == "steward"]
    return {what: one["decided"] for one in told for what in one["reasons"]}


async def until_decided(fettle: FettleProcess, pod: str, wanted: dict[str, str]) -> None:
    await waiting.wait_until(
        lambda: decided(fettle, pod), lambda said: said == wanted, what=f"recorded: {wanted}"
    )


async def train(
    api: Api,
    name: str = "train",
    policy: Object | None = None,
    annotations: Mapping[str, str] = NAMED,
) -> Object:
    """A pod of a Job that may not be tried again, running. `policy`: its podFailurePolicy."""
    job = objects.job(
        name,
        backoff_limit=0,
        job_annotations=NAMED,
        pod_failure_policy=policy,
        annotations=annotations,
        templates={"gpu": "one-gpu"},
    )
    await api.create(job)
    return await running(api, f"job-name={name}")


async def spends_no_retry(api: Api, job: str) -> None:
    found = await api.get("jobs", job)
    assert "failed" not in found["status"]
    assert not waiting.condition(found, "Failed")
