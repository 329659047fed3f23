"""Which hopeless Jobs are suspended, and which are left alone."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from fettle.api import core
from fettle.api.meta import OwnerReference
from fettle.cel import SelectorEngine
from fettle.client import Session
from fettle.config import Settings, StewardSettings
from fettle.model import Failure, Mode, Policy
from fettle.observing import DecisionMetrics
from fettle.records import DecisionLog, Journal, Recorder
from fettle.scheduling import Answers
from fettle.steward import JobSuspension
from tests.fettle import building as b
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.fettle.others import WatchedPublisher
from tests.fettle.scheduling.clusters import kept
from tests.waiting import until

WHY = "no device will ever satisfy its claim"
JOB = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="uid-j")
ENDING = Policy(name="ending", failure=Failure(suspend_hopeless_jobs=True))


def labels(uid: str) -> dict[str, str]:
    """Those of a Job's pods, and of its selector (on a kube-apiserver 1.37.1)."""
    return {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}


def job(spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    own = {"name": "j", "namespace": "default", "uid": "uid-j", "resourceVersion": "7"}
    selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": (own | metadata)["uid"]}}
    return {
        "metadata": own | metadata,
        "spec": {"selector": selector} | (spec or {}),
        "status": status or {},
    }


def controlled(kind: str) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": "above", "uid": "u", "controller": True}]}


def pod(policy: str = "ending", owner: OwnerReference = JOB, **metadata: Any) -> core.Pod:
    raw = b.gpu_pod(annotations={"fettle.dev/policy": policy})
    raw["metadata"] |= {
        "labels": labels(owner.uid),
        "ownerReferences": [msgspec.to_builtins(owner) | {"controller": True}],
    }
    raw["metadata"] |= metadata
    return b.pod(raw)


class Suspending:
    """Suspends Jobs on a fake API server."""

    def __init__(self, session: Session, settings: Settings) -> None:
        publisher = WatchedPublisher()
        observed = msgspec.structs.replace(ENDING, name="observed", mode=Mode.OBSERVE)
        view = b.view(policies={"ending": ENDING, "observed": observed})
        publisher.publish(view, frozenset())
        answers = Answers(publisher, SelectorEngine(), settings)
        log, metrics = DecisionLog(100, 2**20), DecisionMetrics(CollectorRegistry())
        self.recorder = Recorder(answers, log, Journal(None, 2**20), metrics)
        self.jobs = JobSuspension(session, answers, settings, self.recorder, longest_pause_s=0.05)

    def acts(self) -> list[tuple[str, str]]:
        return [(one.key, str(one.decided)) for one in self.recorder.all()]


async def suspended(
    tmp_path: Path,
    found: dict[str, Any],
    *,
    owner: OwnerReference = JOB,
    of: core.Pod | None = None,
    policy: str = "ending",
    settings: Settings | None = None,
) -> tuple[dict[str, Any], list[tuple[str, str]], FakeApi]:
    """The Job after it was looked at twice, and what is recorded."""
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        api.objects["jobs"] = {"default/j": found}
        suspending = Suspending(session, settings or Settings())
        for _ in range(2):
            await suspending.jobs.suspend([(owner, of or pod(policy, owner), WHY)])
        return api.objects["jobs"]["default/j"], suspending.acts(), api


async def test_a_job_is_suspended_once_and_says_why(tmp_path: Path) -> None:
    after, acts, api = await suspended(tmp_path, job())
    assert after["spec"]["suspend"] is True
    assert after["metadata"]["annotations"] == {"fettle.dev/suspended": WHY}
    assert acts == [("default/j", "wrote")]
    assert [asked.verb for asked in api.asked].count("patch") == 1


@pytest.mark.parametrize(
    "found",
    [
        job({"suspend": True}),
        job(annotations={"fettle.dev/suspended": WHY}),
        job(status={"conditions": [{"type": "Failed", "status": "True"}]}),
        job(**controlled("JobSet")),
        job({"managedBy": "kueue.x-k8s.io/multikueue"}),
        job(labels={"kueue.x-k8s.io/queue-name": "q"}),
        job(deletionTimestamp="2026-01-01T00:00:00Z"),
        job(uid="another"),
    ],
    ids=["suspended", "resumed", "failed", "jobset", "managed", "queued", "deleted", "new"],
)
async def test_a_job_that_is_not_ours_to_suspend_is_left_alone(
    tmp_path: Path, found: dict[str, Any]
) -> None:
    before = found["spec"].get("suspend")
    after, acts, _ = await suspended(tmp_path, found)
    assert after["spec"].get("suspend") == before
    assert acts == []


@pytest.mark.parametrize(
    "name",
    [
        "../../victim/jobs/backup",
        "..%2F..%2Fvictim%2Fjobs%2Fbackup",
        "..",
        ".",
        "",
        "j/status",
    ],
)
async def test_an_owner_whose_name_would_lead_elsewhere_is_not_asked_for(
    tmp_path: Path, name: str
) -> None:
    owner = msgspec.structs.replace(JOB, name=name)
    _, acts, api = await suspended(tmp_path, job(), owner=owner)
    assert acts == []
    assert not [asked for asked in api.asked if asked.target.plural == "jobs"]


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({}, {"labels": {}}),
        ({}, {"labels": labels("another")}),
        ({}, {"ownerReferences": []}),
        ({"manualSelector": True, "selector": {"matchLabels": labels("uid-j")}}, {}),
        ({"manualSelector": True, "selector": {"matchLabels": {"app": "x"}}}, {}),
        ({"selector": {}}, {}),
    ],
    ids=["no label", "another's label", "no owner", "manual", "own selector", "no selector"],
)
async def test_a_job_is_left_alone_if_it_does_not_select_the_pod(
    tmp_path: Path, spec: dict[str, Any], word: dict[str, Any]
) -> None:
    """Whoever creates a pod writes its owner; only the Job says which pods are its own."""
    after, acts, _ = await suspended(tmp_path, job(spec), of=pod(**word))
    assert "suspend" not in after["spec"]
    assert acts == []


async def test_the_job_of_a_cron_job_is_suspended_too(tmp_path: Path) -> None:
    after, _, _ = await suspended(tmp_path, job(**controlled("CronJob")))
    assert after["spec"]["suspend"] is True


@pytest.mark.parametrize(
    "how",
    [
        {"policy": "training"},
        {"owner": OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="j", uid="r")},
        {"owner": OwnerReference(api_version="example.com/v1", kind="Job", name="j", uid="x")},
    ],
    ids=["its policy does not say so", "it is no Job", "it is another Job"],
)
async def test_what_nobody_asked_to_be_suspended_is_not_even_read(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    _, acts, api = await suspended(tmp_path, job(), **how)
    assert acts == []
    assert not [asked for asked in api.asked if asked.target.plural == "jobs"]


async def test_what_was_only_recorded_is_suspended_once_that_is_allowed(tmp_path: Path) -> None:
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        api.objects["jobs"] = {"default/j": job()}
        suspending = Suspending(session, Settings())
        await suspending.jobs.suspend([(JOB, pod("observed"), WHY)])
        assert "suspend" not in api.objects["jobs"]["default/j"]["spec"]
        await suspending.jobs.suspend([(JOB, pod(), WHY)])
        assert api.objects["jobs"]["default/j"]["spec"]["suspend"] is True
        assert {said for _, said in suspending.acts()} == {"wouldWrite", "wrote"}


async def test_a_dry_run_records_no_job_that_would_be_left_alone(tmp_path: Path) -> None:
    settings = Settings(steward=StewardSettings(dry_run=True))
    _, acts, _ = await suspended(tmp_path, job(**controlled("JobSet")), settings=settings)
    assert acts == []


@pytest.mark.parametrize(
    "settings",
    [
        Settings(mode=Mode.OBSERVE),
        Settings(mode=Mode.STEER),
        Settings(steward=StewardSettings(dry_run=True)),
    ],
    ids=["observe", "steer", "dry run"],
)
async def test_where_nothing_is_written_it_is_recorded_what_would_have_been(
    tmp_path: Path, settings: Settings
) -> None:
    after, acts, _ = await suspended(tmp_path, job(), settings=settings)
    assert "suspend" not in after["spec"]
    assert acts == [("default/j", "wouldWrite")]


async def test_a_missing_right_is_named(tmp_path: Path) -> None:
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        api.objects["jobs"] = {"default/j": job()}
        api.forbidden.add(("get", "jobs"))
        suspending = Suspending(session, Settings())
        await suspending.jobs.suspend([(JOB, pod(), WHY)])
        (note,) = suspending.jobs.notes()
        assert note.startswith("Jobs cannot be suspended: ")
        assert "deploy/rbac/optional/suspend-jobs.yaml grants the rights" in note
        assert suspending.acts() == []


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("dies_after", [0, 1, 2])
async def test_a_leader_that_dies_between_two_jobs_leaves_the_other_one_to_the_next(
    tmp_path: Path, dies_after: int, *, answered: bool
) -> None:
    """Whether it still learned that its last write was done, or not."""
    found = [
        OwnerReference(api_version="batch/v1", kind="Job", name=name, uid=f"uid-{name}")
        for name in ("j", "k")
    ]

    async def lead(session: Session) -> None:
        suspending = Suspending(session, Settings())
        while True:
            await suspending.jobs.suspend((owner, pod(owner=owner), WHY) for owner in found)
            await asyncio.sleep(0.01)

    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        for owner in found:
            api.put("jobs", job(name=owner.name, uid=owner.uid))
        api.dies_after, api.loses_last = dies_after, not answered
        async with kept(lead(session)):
            await until(lambda: api.written == dies_after)
            await asyncio.sleep(0.03)
        suspended = [one["spec"].get("suspend") for one in api.objects["jobs"].values()]
        assert suspended.count(True) == api.written == dies_after

        api.dies_after = None
        async with kept(lead(session)):
            await until(lambda: api.written == 2)
            await asyncio.sleep(0.05)
        assert api.written == 2
        for one in api.objects["jobs"].values():
            assert one["spec"]["suspend"] is True
            assert one["metadata"]["annotations"] == {"fettle.dev/suspended": WHY}


async def test_while_the_api_server_is_away_a_job_waits_and_is_then_suspended_once(
    tmp_path: Path,
) -> None:
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        api.put("jobs", job())
        suspending = Suspending(session, Settings())
        await api.stop()
        await suspending.jobs.suspend([(JOB, pod(), WHY)])
        (note,) = suspending.jobs.notes()
        assert "cannot be reached" in note
        await api.start()

        async def lead() -> None:
            while True:
                await suspending.jobs.suspend([(JOB, pod(), WHY)])
                await asyncio.sleep(0.01)

        async with kept(lead()):
            await until(lambda: api.written == 1)
            await asyncio.sleep(0.05)
        assert (api.written, suspending.jobs.notes()) == (1, [])
        assert suspending.acts() == [("default/j", "wrote")]
