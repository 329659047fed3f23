"""What workloads name counts for pods that nothing was stamped on, whoever was asleep."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from fettle.api import Finding, Inheritance, core
from fettle.client import METADATA_ONLY, Session
from fettle.cluster import Publisher
from fettle.cluster.feeds import WorkloadFeed
from fettle.cluster.feeds import workloads as feed
from fettle.config import Settings
from fettle.lint import workload_kinds
from fettle.model import ANNOTATION, NOTHING_INHERITED, Inherited
from tests.fettle import building as b
from tests.fettle.client.fake_api import FakeApi

KINDS = workload_kinds.passing_on(Settings().webhook.workloads)
API_VERSIONS = {
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "ReplicaSet": "apps/v1",
    "Deployment": "apps/v1",
    "Notebook": "kubeflow.org/v1",
}


def owned_by(kind: str, name: str, uid: str | None = None) -> dict[str, Any]:
    uid = uid if uid is not None else f"uid-{name}"
    reference = {"apiVersion": API_VERSIONS[kind], "kind": kind, "name": name, "uid": uid}
    return {"ownerReferences": [{**reference, "controller": True}]}


def pod(owner: Mapping[str, Any], annotations: Mapping[str, str] | None = None) -> core.Pod:
    metadata = {"namespace": "team", "name": "p", "uid": "p", "annotations": annotations, **owner}
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    spec = {"containers": [{"name": "main", "resources": limits}]}
    return b.pod({"metadata": metadata, "spec": spec})


class Cluster:
    """Workloads that a feed asks for, and what it found, by the UID of the controller."""

    def __init__(self, api: FakeApi, session: Session, learnt_within_s: float = 20) -> None:
        self.api = api
        self.now = 0.0
        self.found: dict[str, Inherited] = {}
        self.feed = WorkloadFeed(
            session, Publisher(), self._find, KINDS, lambda: self.now, learnt_within_s
        )

    async def _find(self, found: Finding) -> None:
        assert isinstance(found, Inheritance)
        namespace, _, uid = found.identity.partition("/")
        assert namespace == "team"
        self.found[uid] = found.inherited

    def create(
        self, plural: str, name: str, policy: str = "", *, owner: Any = None, **more: str
    ) -> None:
        annotations = {ANNOTATION: policy} if policy else {}
        metadata = {
            "namespace": "team",
            "name": name,
            "uid": f"uid-{name}",
            "annotations": {"other": "x", **annotations, **more},
            **(owner or {}),
        }
        self.api.put(plural, {"metadata": metadata, "spec": {}})

    async def learnt(self, of: core.Pod) -> Inherited:
        await self.feed.learn(of)
        return self.found[of.metadata.controller.uid]  # type: ignore[union-attr]


@pytest.fixture
async def cluster(api: FakeApi, session: Session) -> Cluster:
    return Cluster(api, session)


async def test_a_pod_inherits_what_its_job_names(cluster: Cluster) -> None:
    cluster.create("jobs", "train", "training", **{"fettle.dev/min-score": "0.9"})
    found = await cluster.learnt(pod(owned_by("Job", "train")))
    named = {ANNOTATION: "training", "fettle.dev/min-score": "0.9"}
    assert found == Inherited("Job train", named)
    asked = cluster.api.asked[-1]
    assert (asked.verb, asked.headers["Accept"]) == ("get", METADATA_ONLY)


@pytest.mark.parametrize("nearest", ["", "scavenger"])
async def test_the_nearest_owner_that_names_a_policy_counts(cluster: Cluster, nearest: str) -> None:
    cluster.create("deployments", "web", "training")
    cluster.create("replicasets", "web-1", nearest, owner=owned_by("Deployment", "web"))
    found = await cluster.learnt(pod(owned_by("ReplicaSet", "web-1")))
    wanted = ("ReplicaSet web-1", "scavenger") if nearest else ("Deployment web", "training")
    assert (found.owner, found.annotations[ANNOTATION]) == wanted


async def test_who_names_nothing_is_asked_for_once(cluster: Cluster) -> None:
    cluster.create("jobs", "train")
    for _ in range(3):
        cluster.feed.observe(pod(owned_by("Job", "train")))
    task = asyncio.create_task(cluster.feed.run())
    async with asyncio.timeout(20):
        while "uid-train" not in cluster.found:
            await asyncio.sleep(0.01)
    cluster.feed.observe(pod(owned_by("Job", "train")))
    await asyncio.sleep(0.05)
    assert cluster.found["uid-train"] == NOTHING_INHERITED
    assert cluster.api.verbs("jobs") == ["get"]

    # What it names later counts for pods that come later.
    cluster.create("jobs", "train", "training")
    cluster.now += feed.ASK_AGAIN_S
    cluster.feed.observe(pod(owned_by("Job", "train")))
    async with asyncio.timeout(20):
        while cluster.found["uid-train"] == NOTHING_INHERITED:
            await asyncio.sleep(0.01)
    task.cancel()


@pytest.mark.parametrize(
    "owner",
    [
        owned_by("Job", "train", "another's"),
        owned_by("Job", "gone"),
        owned_by("Job", "../../other/jobs/train"),
        owned_by("Notebook", "train"),
    ],
)
async def test_a_pod_cannot_choose_whose_policy_it_has(
    cluster: Cluster, owner: dict[str, Any]
) -> None:
    cluster.create("jobs", "train", "training")
    assert await cluster.learnt(pod(owner)) == NOTHING_INHERITED
    assert all(asked.target.namespace == "team" for asked in cluster.api.asked)


async def test_owners_that_own_each_other_are_not_followed_for_ever(cluster: Cluster) -> None:
    cluster.create("jobs", "a", owner=owned_by("Job", "b"))
    cluster.create("jobs", "b", owner=owned_by("Job", "a"))
    assert await cluster.learnt(pod(owned_by("Job", "a"))) == NOTHING_INHERITED
    assert len(cluster.api.asked) == feed.MOST_LEVELS


async def test_a_workload_that_may_not_be_read_is_said(cluster: Cluster) -> None:
    cluster.create("jobs", "train", "training")
    cluster.api.forbidden.add(("get", "jobs"))
    found = await cluster.learnt(pod(owned_by("Job", "train")))
    assert (found.owner, found.annotations) == ("Job train", {})
    assert "get" in found.unknown
    assert "jobs" in found.unknown


async def test_answers_do_not_wait_for_an_api_server_that_is_away(
    api: FakeApi, session: Session
) -> None:
    cluster = Cluster(api, session, feed.LEARNT_WITHIN_S)
    cluster.create("jobs", "train", "training")
    wanted = pod(owned_by("Job", "train"))
    cluster.api.answers_nothing = True
    async with asyncio.timeout(20):
        await cluster.feed.learn(wanted)
    assert not cluster.feed.lacks(wanted)

    cluster.api.answers_nothing = False
    task = asyncio.create_task(cluster.feed.run())
    async with asyncio.timeout(20):
        while "uid-train" not in cluster.found:
            await asyncio.sleep(0.01)
    task.cancel()


@pytest.mark.parametrize(
    ("of", "lacks"),
    [
        (pod(owned_by("Job", "train")), True),
        (pod(owned_by("Job", "train"), {ANNOTATION: "training"}), False),
        (pod({}), False),
        (b.pod({"metadata": {"name": "p", **owned_by("Job", "train")}, "spec": {}}), False),
    ],
)
async def test_only_pods_with_devices_that_name_nothing_wait(
    cluster: Cluster, of: core.Pod, lacks: bool
) -> None:
    assert cluster.feed.lacks(of) is lacks
