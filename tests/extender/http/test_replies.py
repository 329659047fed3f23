"""Replies that leave out what kube-scheduler reads the same without, and replies that are full."""

import itertools
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.http.replies import COMPACT_RELEASES, SHORT, Form, Replies
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView
from fettle.config import ExtenderSettings
from fettle.dra.allocator.features import parse_git_version
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.scores import MAX_SCORE
from fettle.scheduling.tables import Narrowed, SelectorOutcomes, Table
from tests.controlplane import building
from tests.extender.conftest import Extender, listening
from tests.fettle import building as b
from tests.fettle.scheduling.judge.judging import INFERENCE, SCAVENGER, units

POD = b.gpu_pod()
PLAIN = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c"}]}}
TEXT = "no sound devices"
POLICIES = st.sampled_from((INFERENCE, SCAVENGER))
WORTHS = st.sampled_from([tenth / 10 for tenth in range(11)])


def replies(form: Form | None, version: str = "") -> Replies:
    return Replies(form, lambda: version)


COMPACT, FULL = replies("compact"), replies("full")


# -- scores


def listed(form: Replies, table: Table, names: Sequence[str]) -> dict[str, int]:
    entries = msgspec.json.decode(form.scores(table, [*names]))
    return {entry["Host"]: entry["Score"] for entry in entries}


def read(form: Replies, table: Table, names: Sequence[str]) -> dict[str, int]:
    """By name as kube-scheduler reads the reply: it counts a missing host as 0."""
    found = listed(form, table, names)
    assert found.keys() <= set(names)
    return dict.fromkeys(names, 0) | found


@given(POLICIES, WORTHS, st.lists(WORTHS, max_size=2 * SHORT), st.integers(0, 2 * SHORT), st.data())
def test_differences_between_nodes_are_those_of_their_scores_in_either_form(
    policy: object, usual: float, others: list[float], count: int, data: st.DataObject
) -> None:
    demand = units(policy)  # type: ignore[arg-type]
    table = Table(demand, Acceptance(demand.policy.placement))
    match = SelectorOutcomes(SelectorEngine())
    for at, worth in enumerate((*others, *[usual] * count)):
        table.judge(b.node(f"n{at}", gpus=8, own=b.health(worth)), match)
    names = [*table.verdicts, "unheard"]
    names = names[data.draw(st.integers(0, len(names))) :]
    scores = {name: table.score_of(name) for name in names}
    assert all(0 <= score <= MAX_SCORE for score in scores.values())
    assert list(listed(FULL, table, names).items()) == list(scores.items())
    compact = read(COMPACT, table, names)
    assert len({scores[name] - compact[name] for name in names}) <= 1
    if len(names) <= SHORT:
        assert list(listed(COMPACT, table, names).items()) == list(scores.items())


@pytest.mark.parametrize("form", [COMPACT, FULL], ids=["compact", "full"])
def test_a_score_is_listed_as_it_is_by_now_whatever_was_listed_before(form: Replies) -> None:
    demand = units(INFERENCE)
    table = Table(demand, Acceptance(demand.policy.placement))
    match = SelectorOutcomes(SelectorEngine())

    def judge(name: str, worth: float) -> int:
        table.judge(b.node(name, gpus=8, own=b.health(worth)), match)
        return table.verdicts[name].score

    unknown = listed(form, table, ["a", "c"])["a"]
    sound = judge("a", 1.0)
    assert listed(form, table, ["a"]) == {"a": sound}
    worn = judge("a", 0.6)
    assert listed(form, table, ["a"]) == {"a": worn}
    judge("b", 1.0)
    table.take_over("b", ["a", "c"])
    assert listed(form, table, ["a", "c"]) == {"a": sound, "c": sound}
    assert len({unknown, sound, worn}) == 3


# -- refusals

NODES = st.lists(st.booleans(), max_size=3 * SHORT)


@given(NODES)
def test_full_replies_name_each_node_once_as_passed_or_as_refused(passes: list[bool]) -> None:
    names = [f"n{at}" for at in range(len(passes))]
    passed = list(itertools.compress(names, passes))
    reply = msgspec.json.decode(FULL.narrowed(Narrowed(names, passed), TEXT))
    refused = [name for name in names if name not in set(passed)]
    assert reply["NodeNames"] == passed
    assert reply["FailedAndUnresolvableNodes"] == dict.fromkeys(refused, TEXT)
    assert reply["FailedNodes"] == {}


@given(NODES)
def test_compact_replies_differ_only_in_long_lists_of_which_some_node_passes(
    passes: list[bool],
) -> None:
    names = [f"n{at}" for at in range(len(passes))]
    narrowed = Narrowed(names, list(itertools.compress(names, passes)))
    full = msgspec.json.decode(FULL.narrowed(narrowed, TEXT))
    compact = msgspec.json.decode(COMPACT.narrowed(narrowed, TEXT))
    if any(passes) and len(names) > SHORT:
        full["FailedAndUnresolvableNodes"] = {}
    assert compact == full


# -- which form


@pytest.mark.parametrize(
    ("form", "version", "compact"),
    [
        (None, "", False),
        (None, "v1.37.1", True),
        (None, "v1.37.0-alpha.1+k3s1", True),
        (None, "v1.36.3-eks-abc", True),
        (None, "v1.35.6", False),
        (None, "v1.38.0", False),
        (None, "unreadable", False),
        ("compact", "", True),
        ("compact", "v1.30.0", True),
        ("full", "v1.37.1", False),
    ],
)
def test_replies_are_compact_where_that_is_set_or_was_tested_with_the_schedulers_release(
    form: Form | None, version: str, compact: bool
) -> None:
    assert replies(form, version).compact is compact


def test_releases_that_take_compact_replies_are_among_those_that_the_tests_can_run() -> None:
    older = [file.stem for file in building.SOURCES.glob("v*.mod")]
    assert {parse_git_version(v)[:2] for v in (building.NEWEST, *older)} >= COMPACT_RELEASES
    assert parse_git_version(building.NEWEST)[:2] in COMPACT_RELEASES


# -- over HTTP


@pytest.fixture
async def compact() -> AsyncIterator[Extender]:
    async with listening(Extender(ExtenderSettings(replies="compact"))) as extender:
        yield extender


@pytest.fixture
async def full() -> AsyncIterator[Extender]:
    async with listening(Extender(ExtenderSettings(replies="full"))) as extender:
        yield extender


def many(extender: Extender, *others: NodeView) -> list[str]:
    """The names of more sound nodes than a list that is always full, and of the others."""
    sound = [b.node(f"n{number}", gpus=8) for number in range(SHORT + 1)]
    extender.show(*sound, *others)
    return [node.name for node in (*sound, *others)]


WORN = b.node("worn", gpus=8, own=b.health(0.9))
DEAD = b.node("dead", gpus=8, own=b.health(0.1))


async def test_without_a_known_version_long_replies_are_full(extender: Extender) -> None:
    names = many(extender, WORN, DEAD)
    passed = await extender.filter(POD, *names)
    assert list(passed["FailedAndUnresolvableNodes"]) == ["dead"]
    assert await extender.prioritize(POD, *names[:-1]) == dict.fromkeys(names[:-2], 10) | {
        "worn": 9
    }


async def test_once_the_servers_version_is_known_long_replies_are_as_its_scheduler_takes_them(
    extender: Extender,
) -> None:
    names = many(extender, WORN, DEAD)
    for version, refused, hosts in (("v1.37.1", 0, 1), ("v1.35.3", 1, len(names) - 1)):
        extender.answers.predict_as(version)
        reply = await extender.filter(POD, *names)
        assert len(reply["FailedAndUnresolvableNodes"]) == refused
        assert len(await extender.prioritize(POD, *reply["NodeNames"])) == hosts


async def test_full_replies_list_every_score_whatever_filter_was_asked_before(
    full: Extender,
) -> None:
    names = many(full, WORN)
    scores = dict.fromkeys(names[:-1], 10) | {"worn": 9}
    assert await full.prioritize(POD, *names) == scores
    assert (await full.filter(POD, *names))["NodeNames"] == names
    assert await full.prioritize(POD, *names) == scores
    assert await full.prioritize(PLAIN, *names) == dict.fromkeys(names, 0)


@pytest.mark.parametrize(("more", "named"), [(SHORT - 2, True), (SHORT - 1, False)])
async def test_compact_replies_about_many_names_leave_the_refused_out_while_some_node_is_left(
    compact: Extender, more: int, named: bool
) -> None:
    """A dropped node is unresolvable to the scheduler as one that is named, and the text is for a
    pod that fits nowhere."""
    compact.show(b.node("good", gpus=8), DEAD)
    others = [f"other-{number}" for number in range(more)]
    reply = await compact.filter(POD, "good", "dead", *others)
    text = {"dead": f"fettle: no sound devices ({b.RESOURCE})"}
    assert reply["NodeNames"] == ["good", *others]
    assert reply["FailedAndUnresolvableNodes"] == (text if named else {})
    assert reply["FailedNodes"] == {}
    assert compact.count("fettle_extender_nodes_total", result="refused") == 1
    decisions = "fettle_extender_decisions_total"
    assert compact.count(decisions, verb="filter", result="narrowed") == 1


async def test_compact_replies_name_each_of_many_nodes_where_all_are_refused(
    compact: Extender,
) -> None:
    names = [f"n{number}" for number in range(SHORT + 1)]
    sound = (b.node(f"sound-{number}", gpus=8) for number in range(9 * SHORT))  # no breaker opens
    compact.show(*(b.node(name, gpus=8, own=b.health(0.1)) for name in names), *sound)
    reply = await compact.filter(POD, *names)
    text = f"fettle: no sound devices ({b.RESOURCE})"
    assert reply["NodeNames"] == []
    assert reply["FailedAndUnresolvableNodes"] == dict.fromkeys(names, text)


async def test_compact_replies_list_none_of_many_hosts_that_score_alike_since_a_missing_one_has_0(
    compact: Extender,
) -> None:
    names = many(compact)
    assert await compact.prioritize(POD, *names) == {}
    assert (await compact.filter(POD, *names))["NodeNames"] == names
    assert await compact.prioritize(POD, *names) == {}
    assert await compact.prioritize(POD, *names[:SHORT]) == dict.fromkeys(names[:SHORT], 10)
    assert await compact.prioritize(PLAIN, *names) == {}


async def test_compact_replies_list_those_of_many_hosts_that_differ_from_most_and_by_how_much(
    compact: Extender,
) -> None:
    names = many(compact, b.node("worn", gpus=8, own=b.health(0.9)))
    assert await compact.prioritize(POD, *names) == {"worn": -1}
    assert await compact.prioritize(POD, *names[:-1], "unheard") == {"unheard": -2}
    assert (await compact.filter(POD, *names))["NodeNames"] == names
    assert await compact.prioritize(POD, *names) == {"worn": -1}


async def test_compact_replies_list_all_of_many_hosts_where_most_differ_from_each_other(
    compact: Extender,
) -> None:
    half = [b.node(f"w{i}", gpus=8, own=b.health(0.9 - i % 5 / 10)) for i in range(SHORT + 2)]
    names = many(compact, *half)
    scores = await compact.prioritize(POD, *names)
    assert list(scores) == names
    assert scores["n0"] == 10
    assert scores["w0"] == 9
    assert await compact.prioritize(POD, *names[:-1]) == {
        name: score - 10 for name, score in scores.items() if score < 10 and name != names[-1]
    }


async def test_compact_replies_list_others_below_most_hosts_where_most_are_preferred(
    compact: Extender,
) -> None:
    scavenger = b.gpu_pod(annotations={"fettle.dev/policy": "scavenger"})
    worn = [b.node(f"w{i}", gpus=8, own=b.health(0.9)) for i in range(2 * SHORT + 1)]
    names = many(compact, *worn)
    scores = await compact.prioritize(scavenger, *names)
    assert scores == dict.fromkeys((name for name in names if name[0] == "n"), -1)


async def test_compact_replies_list_a_host_once_it_gets_worse_than_the_others(
    compact: Extender,
) -> None:
    names = many(compact, b.node("n", gpus=8))
    assert await compact.prioritize(POD, *names) == {}
    many(compact, b.node("n", gpus=8, own=b.health(0.9)))
    assert (await compact.prioritize(POD, *names))["n"] == -1
