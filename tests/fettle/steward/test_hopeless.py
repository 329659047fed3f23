"""Controllers that are told that no node or device will ever suit their pods."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from fettle.api import core
from fettle.api.meta import OwnerReference
from fettle.cel import SelectorEngine
from fettle.client import EventRecorder, Session
from fettle.config import Settings
from fettle.explain import text
from fettle.health import FailedStart
from fettle.lint import DEFAULT_LEVELS, Linter
from fettle.model import Mode, RuleSeverity, Validation
from fettle.observing import DecisionMetrics
from fettle.records import DecisionLog, Journal, Recorder
from fettle.scheduling import Answers
from fettle.scheduling.placed import Comebacks
from fettle.steward import STEWARD, HopelessOwners, HopelessPods, JobSuspension, Owners
from tests.fettle import building as b
from tests.fettle.client.fake_api import fake_api
from tests.fettle.others import WatchedPublisher

NOW = 1_000_000.0
WAITS_S = 31.0
RS = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs"}
ABOVE = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web"}
TOO_MANY = 40
"""Devices that no claim can have."""


def template(count: int) -> Any:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
    return b.template(
        {
            "metadata": {"name": "t", "namespace": "default", "resourceVersion": "1"},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
    )


def pod(name: str, *, waits_s: float = WAITS_S, node: str = "", **spec: Any) -> core.Pod:
    raw = b.gpu_pod(name=name)
    raw["metadata"] |= {"uid": f"uid-{name}", "ownerReferences": [RS | {"controller": True}]}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    raw["spec"] = {"containers": [], "resourceClaims": claims, "nodeName": node or None, **spec}
    since = datetime.fromtimestamp(NOW - waits_s, UTC).isoformat()
    waits = {"type": "PodScheduled", "status": "False", "lastTransitionTime": since}
    raw["status"] = {"phase": "Pending", "conditions": [] if node else [waits]}
    return b.pod(raw)


def start(name: str, *, ago_s: float = 301.0, message: str = "nvml error") -> FailedStart:
    nodes = ("a", "b")
    owner = OwnerReference(kind="ReplicaSet", name="rs", uid="uid-rs")
    made = pod(name, node="a")
    return FailedStart(pod=made, workload=owner, message=message, at=NOW - ago_s, blamed=nodes)


async def told(
    tmp_path: Path,
    *pods: core.Pod,
    count: int = TOO_MANY,
    starts: tuple[FailedStart, ...] = (),
    mode: Mode = Mode.ENFORCE,
    levels: Validation = DEFAULT_LEVELS,
) -> dict[str, str]:
    """What is said to which controller, after two rounds of two leaders."""
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        controlled = {"ownerReferences": [ABOVE | {"controller": True}]}
        metadata = {"name": "rs", "namespace": "default", "uid": "uid-rs"}
        found = {"metadata": metadata | controlled}
        api.objects["replicasets"] = {"default/rs": found}
        for _ in range(2):
            publisher = WatchedPublisher()
            view = b.view(
                pods={one.metadata.key: one for one in pods},
                templates={"default/t": template(count)},
                failed_starts={one.pod.metadata.key: one for one in starts},
            )
            publisher.publish(view, frozenset())
            settings = Settings(mode=mode)
            answers = Answers(publisher, SelectorEngine(), settings)
            log, metrics = DecisionLog(100, 2**20), DecisionMetrics(CollectorRegistry())
            records = Recorder(answers, log, Journal(None, 2**20), metrics)
            recorder = EventRecorder(session, STEWARD, "one")
            owners = HopelessOwners(
                publisher, Comebacks(), Linter(), lambda *_: levels, lambda: NOW
            )
            hopeless = HopelessPods(
                publisher,
                owners,
                recorder,
                Owners(session),
                JobSuspension(session, answers, settings, records),
                lambda _: mode is not Mode.OBSERVE,
            )
            for _ in range(2):
                await hopeless.record()
                await recorder.write()
        events = [*api.objects.get("events", {}).values()]
        assert all(event["reason"] == "PodsComeBack" for event in events)
        said = {event["regarding"]["kind"]: event["note"] for event in events}
        for one in pods:  # the same, to who asks
            why = await owners.why(one)
            assert said == {} or (why is not None and text(why) == said["ReplicaSet"])
        assert len(said) == len(events)
        return said


async def test_a_controller_and_what_controls_it_are_told_once_and_with_a_count(
    tmp_path: Path,
) -> None:
    gated = pod("gated", schedulingGates=[{"name": "g"}])
    said = await told(tmp_path, pod("new", waits_s=1.0), pod("p"), pod("q"), gated)
    assert said.keys() == {"ReplicaSet", "Deployment"}
    assert said["ReplicaSet"] == said["Deployment"]
    assert said["Deployment"].startswith(
        "no device will ever satisfy ResourceClaimTemplate default/t, for which 3 of its pods wait:"
    )
    assert said["Deployment"].endswith("(FTL010)")


@pytest.mark.parametrize(
    ("pods", "count"),
    [
        ([pod("p", waits_s=29.0)], TOO_MANY),
        ([pod("p", schedulingGates=[{"name": "g"}])], TOO_MANY),
        ([pod("p"), pod("placed", node="a")], TOO_MANY),
        ([pod("p")], 8),
        ([], TOO_MANY),
    ],
    ids=["waits for a moment", "is gated", "one has a node", "may fit", "none"],
)
async def test_who_may_be_helped_by_waiting_is_not_hopeless(
    tmp_path: Path, pods: list[core.Pod], count: int
) -> None:
    assert await told(tmp_path, *pods, count=count) == {}


@pytest.mark.parametrize(
    ("levels", "count"),
    [
        (Validation(rules={"FTL010": RuleSeverity.WARN}), TOO_MANY),
        (Validation(rules={"FTL010": RuleSeverity.OFF}), TOO_MANY),
        (Validation(strict=True, rules={"FTL009": RuleSeverity.DENY}), 8),
    ],
)
async def test_who_loosens_a_rule_is_believed_and_who_tightens_it_proves_nothing(
    tmp_path: Path, levels: Validation, count: int
) -> None:
    assert await told(tmp_path, pod("p"), count=count, levels=levels) == {}


async def test_a_controller_whose_pods_start_nowhere_is_told_how_many(tmp_path: Path) -> None:
    said = await told(tmp_path, starts=(start("p"), start("q", ago_s=5.0)))
    assert said["ReplicaSet"].startswith("2 pods of ReplicaSet rs start on none of 2 nodes (a, b)")


@pytest.mark.parametrize(
    "one",
    [
        start("p", ago_s=299.0),
        start("p", message=""),
        msgspec.structs.replace(start("p"), blamed=()),
    ],
    ids=["not for long", "nothing is said of devices", "it is not to blame"],
)
async def test_starts_that_may_have_other_causes_are_not_told(
    tmp_path: Path, one: FailedStart
) -> None:
    assert await told(tmp_path, starts=(one,)) == {}


async def test_in_observe_mode_no_controller_is_written_about(tmp_path: Path) -> None:
    assert await told(tmp_path, pod("p"), mode=Mode.OBSERVE) == {}
