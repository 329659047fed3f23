"""What is said of scores ranks nodes as their scores do, however much is left unsaid."""

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fettle.cel import SelectorEngine
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.ranking import MAX_SCORE
from fettle.scheduling.tables.tables import MANY, Matching, Table
from tests.fettle import building as b
from tests.fettle.scheduling.judged import INFERENCE, SCAVENGER, units

POLICIES = st.sampled_from((INFERENCE, SCAVENGER))
WORTHS = st.sampled_from([tenth / 10 for tenth in range(11)])


def said(table: Table, names: Sequence[str]) -> dict[str, int]:
    """By name as kube-scheduler reads the reply: it counts a missing host as 0."""
    listed = {
        entry["Host"]: entry["Score"] for entry in map(msgspec.json.decode, table.score([*names]))
    }
    assert listed.keys() <= set(names)
    return dict.fromkeys(names, 0) | listed


@given(POLICIES, WORTHS, st.lists(WORTHS, max_size=2 * MANY), st.integers(0, 2 * MANY), st.data())
def test_differences_between_nodes_are_those_of_their_scores(
    policy: object, usual: float, others: list[float], count: int, data: st.DataObject
) -> None:
    demand = units(policy)  # type: ignore[arg-type]
    table = Table(demand, Acceptance(demand.policy.placement, frozenset()))
    match = Matching(SelectorEngine())
    for at, worth in enumerate((*others, *[usual] * count)):
        table.judge(b.node(f"n{at}", gpus=8, own=b.health(worth)), match)
    names = [*table.verdicts, "unheard"]
    names = names[data.draw(st.integers(0, len(names))) :]
    whole = {name: entry for name in names for entry in said(table, [name]).values()}
    told = said(table, names)
    shifts = {whole[name] - told[name] for name in names}
    assert len(shifts) <= 1
    assert all(0 <= score <= MAX_SCORE for score in whole.values())
    if len(names) <= MANY:
        assert told == whole


def test_a_score_is_told_as_it_is_by_now_whatever_was_told_before() -> None:
    demand = units(INFERENCE)
    table = Table(demand, Acceptance(demand.policy.placement, frozenset()))
    match = Matching(SelectorEngine())

    def judge(name: str, worth: float) -> int:
        table.judge(b.node(name, gpus=8, own=b.health(worth)), match)
        return table.verdicts[name].score

    unknown = said(table, ["a", "c"])["a"]
    sound = judge("a", 1.0)
    assert said(table, ["a"]) == {"a": sound}
    worn = judge("a", 0.6)
    assert said(table, ["a"]) == {"a": worn}
    judge("b", 1.0)
    table.follow("b", ["a", "c"])
    assert said(table, ["a", "c"]) == {"a": sound, "c": sound}
    assert len({unknown, sound, worn}) == 3
