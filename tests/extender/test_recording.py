"""What the extender decides is recorded, whatever the mode."""

from typing import Any

import pytest

from fettle.model import Mode
from fettle.records import Decided, Decision, Verb
from tests.extender.conftest import Extender
from tests.fettle import building as b
from tests.fettle.browse.showing import known, told
from tests.fettle.others import settled

UNHEALTHY = {"NodeUnhealthy": 1, "TooFewAcceptableUnits": 1}


def show(extender: Extender, mode: str = "enforce") -> None:
    nodes = (
        b.node("bad", gpus=1, own=b.health(0.0)),
        b.node("held", gpus=1, own=b.health(0.0, held=True)),
    )
    extender.show(*nodes, b.node("good", gpus=1), namespaces={"default": {"fettle.dev/mode": mode}})


async def recorded(extender: Extender) -> list[Decision]:
    await settled()
    return extender.recorder.select(0.0)[::-1]


def pod(name: str = "p") -> dict[str, Any]:
    made = b.gpu_pod(name=name)
    owner = {"kind": "Job", "name": "train", "uid": "u", "controller": True}
    made["metadata"] |= {"uid": f"uid-{name}", "ownerReferences": [owner]}
    return made


async def test_a_narrowed_filter_says_which_reasons_refused_how_many_nodes(
    extender: Extender,
) -> None:
    show(extender)
    await extender.filter(pod(), "bad", "held", "good")
    (one,) = await recorded(extender)
    assert (one.verb, one.decided, one.mode) == (Verb.FILTER, Decided.NARROWED, Mode.ENFORCE)
    assert (one.key, one.owner, one.policy) == ("default/p", "Job/train", "inference")
    assert (one.nodes, one.refused) == (3, 2)
    # A node's health is that of its units too.
    assert one.reasons == {"NodeUnhealthy": 1, "NodeHeld": 1, "TooFewAcceptableUnits": 2}
    assert one.preferred == {"good": 10}
    assert one.why


async def test_of_a_request_that_names_some_nodes_only_these_count(extender: Extender) -> None:
    show(extender)
    await extender.filter(pod(), "bad", "good")
    (one,) = await recorded(extender)
    assert (one.nodes, one.refused, one.reasons) == (2, 1, UNHEALTHY)
    assert one.refused_nodes == ("bad",)


async def test_hundreds_of_repeated_refusals_are_one_decision(extender: Extender) -> None:
    show(extender)
    for _ in range(300):
        await extender.filter(pod(), "bad", "held")
    (one,) = await recorded(extender)
    assert (one.decided, one.count) == (Decided.REFUSED, 300)
    await extender.recorder.write()
    of = {"verb": "filter", "policy": "inference", "reason": "NodeHeld"}
    assert extender.count("fettle_decision_reasons_total", **of) == 300


async def test_observe_records_what_it_would_have_refused(extender: Extender) -> None:
    show(extender, "observe")
    await extender.filter(pod(), "bad", "held")
    (one,) = await recorded(extender)
    assert (one.decided, one.mode, one.refused) == (Decided.REFUSED, Mode.OBSERVE, 2)


async def test_prioritize_is_noted_with_the_filter_before_it(extender: Extender) -> None:
    show(extender)
    await extender.filter(pod(), "bad", "good")
    await settled()
    await extender.prioritize(pod(), "good")
    await extender.prioritize(pod("another-replica-filtered"), "good")
    one, other = await recorded(extender)
    assert (one.verb, one.ranked) == (Verb.FILTER, 1)
    assert (other.verb, other.ranked, other.preferred) == (Verb.PRIORITIZE, 1, {"good": 10})


async def test_preempt_is_recorded_with_the_nodes_that_it_spared(extender: Extender) -> None:
    show(extender)
    victims = {n: {"Pods": [{"UID": "v"}], "NumPDBViolations": 0} for n in ("bad", "good")}
    await extender.post("preempt", {"Pod": pod(), "NodeNameToMetaVictims": victims})
    (one,) = await recorded(extender)
    assert (one.verb, one.decided, one.reasons) == (
        Verb.PREEMPT,
        Decided.NARROWED,
        UNHEALTHY,
    )


async def test_a_malformed_call_is_neither_recorded_nor_the_last_one_asked(
    extender: Extender,
) -> None:
    show(extender)
    assert (await extender.post("filter", b"{}"))[0] == 400
    assert await recorded(extender) == []
    assert extender.misconfiguration.last.at == {}
    await extender.filter(pod(), "good")
    assert "filter" in extender.misconfiguration.last.at


async def test_a_policy_that_exists_no_more_is_counted_as_other(extender: Extender) -> None:
    show(extender)
    await extender.filter(pod(), "bad")
    (one,) = await recorded(extender)
    one.policy = "gone"
    await extender.recorder.write()
    of = {"verb": "filter", "policy": "other", "reason": "NodeUnhealthy"}
    assert extender.count("fettle_decision_reasons_total", **of) == 1


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 200), ("since=7d", 200), ("since=soon", 400), ("since=", 400), ("since=-1h", 400)],
)
@pytest.mark.parametrize("path", ["decisions", "records"])
async def test_what_was_decided_is_answered_and_bad_ages_are_told_what_to_write(
    extender: Extender, path: str, query: str, status: int
) -> None:
    show(extender)
    await extender.filter(pod(), "bad")
    await recorded(extender)
    shown = known(extender.answers, recorder=extender.recorder)
    answered, body = await told(shown, f"/{path}?{query}")
    assert answered == status
    if status == 400:
        assert "write a number and a unit, such as 90s, 30m, 1h or 7d" in body["error"]
    else:
        assert body["notes"]
