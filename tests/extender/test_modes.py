"""What kube-scheduler is told where Fettle may not refuse: in the modes observe and steer."""

from typing import Any

import pytest

from fettle.model import Inherited
from tests.extender.conftest import Extender
from tests.fettle import building as b

BAD, GOOD = "bad", "good"


def show(extender: Extender, mode: str) -> None:
    nodes = b.node(BAD, gpus=1, own=b.health(0.0)), b.node(GOOD, gpus=1)
    extender.show(*nodes, namespaces={"default": {"fettle.dev/mode": mode}})


async def test_enforce_refuses_what_steer_and_observe_let_pass(extender: Extender) -> None:
    pod = b.gpu_pod()
    show(extender, "enforce")
    assert (await extender.filter(pod, BAD, GOOD))["NodeNames"] == [GOOD]
    for mode in ("steer", "observe"):
        show(extender, mode)
        reply = await extender.filter(pod, BAD, GOOD)
        assert reply["NodeNames"] == [BAD, GOOD]
        assert reply["FailedAndUnresolvableNodes"] == {}


@pytest.mark.parametrize("named", ["training", "scavenger"])
async def test_a_pods_workload_is_asked_for_before_it_is_judged(
    extender: Extender, named: str
) -> None:
    worn = b.node(BAD, gpus=1, own=b.health(0.5)), b.node(GOOD, gpus=1)
    extender.show(*worn)
    pod = b.gpu_pod()
    owner = {"kind": "Job", "name": "train", "uid": "j", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    annotations = {"fettle.dev/policy": named}
    extender.arrivals.inherited = {"default/j": Inherited("Job train", annotations)}
    wanted = [GOOD] if named == "training" else [BAD, GOOD]
    assert (await extender.filter(pod, BAD, GOOD))["NodeNames"] == wanted


async def test_steer_ranks_and_observe_scores_all_alike(extender: Extender) -> None:
    pod = b.gpu_pod()
    show(extender, "steer")
    await extender.filter(pod, BAD, GOOD)
    assert await extender.prioritize(pod, BAD, GOOD) == {BAD: 0, GOOD: 10}
    show(extender, "observe")
    await extender.filter(pod, BAD, GOOD)
    assert await extender.prioritize(pod, BAD, GOOD) == {BAD: 0, GOOD: 0}


@pytest.mark.parametrize("mode", ["steer", "observe"])
async def test_no_victims_are_spared_where_nothing_is_refused(
    extender: Extender, mode: str
) -> None:
    victims = {BAD: {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}
    body: dict[str, Any] = {"Pod": b.gpu_pod(), "NodeNameToMetaVictims": victims}
    show(extender, "enforce")
    assert (await extender.post("preempt", body))[1]["NodeNameToMetaVictims"] == {}
    show(extender, mode)
    assert (await extender.post("preempt", body))[1]["NodeNameToMetaVictims"] == victims


async def test_observe_answers_also_while_fettle_is_not_ready(extender: Extender) -> None:
    show(extender, "observe")
    extender.problem = "pods are not synced"
    reply = await extender.filter(b.gpu_pod(), BAD, GOOD)
    assert reply["NodeNames"] == [BAD, GOOD]
    assert reply["Error"] == ""
    assert extender.recorder.all() == []  # what is not known yet would be recorded as refused
    show(extender, "enforce")
    assert "not ready" in (await extender.filter(b.gpu_pod(), BAD, GOOD))["Error"]


async def test_a_label_changes_the_reply_to_the_very_same_request(extender: Extender) -> None:
    for mode, passed in (("enforce", []), ("observe", [BAD]), ("enforce", [])):
        show(extender, mode)
        assert (await extender.filter(b.gpu_pod(), BAD))["NodeNames"] == passed
