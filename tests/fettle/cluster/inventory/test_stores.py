"""Mappings that are shown never change, whatever happens to the store."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fettle.cluster.inventory.stores import LayeredDict, changed_keys

KEYS = st.integers(0, 200).map(str)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS),
        st.tuples(st.just("drop"), KEYS),
        st.tuples(st.just("show"), st.booleans()),
    ),
    max_size=300,
)


@given(st.integers(0, 200), STEPS)
def test_what_was_shown_is_what_was_there_at_that_time(
    at_first: int, steps: list[tuple[str, str | bool]]
) -> None:
    store: LayeredDict[object] = LayeredDict()
    model: dict[str, object] = {}
    for number in range(at_first):
        store[str(number)] = model[str(number)] = object()
    shown = []
    for step, what in steps:
        if step == "put":
            store[str(what)] = model[str(what)] = object()
        elif step == "drop":
            assert store.pop(str(what), None) is model.pop(str(what), None)
        else:
            shown.append((store.shown(), dict(model)))
            if what:  # somebody goes through all of it
                assert [*shown[-1][0].items()] == [*shown[-1][0].items()]
    shown.append((store.shown(), dict(model)))
    assert dict(store) == model
    for (before, then), (after, now) in pairwise(shown):
        differ = {key for key in {*then, *now} if then.get(key) is not now.get(key)}
        assert {*changed_keys(before, after)} == differ
    for seen, expected in shown:
        assert len(seen) == len(expected)
        assert all(seen.get(str(k)) is expected.get(str(k)) for k in range(202))
        assert all((str(k) in seen) == (str(k) in expected) for k in range(202))
        assert {key: seen[key] for key in seen} == dict(seen) == expected
        assert seen == expected
        assert set(seen.keys()) == set(expected)
        assert set(seen.values()) == set(expected.values())


def test_what_did_not_change_is_shown_as_the_very_same_mapping() -> None:
    store: LayeredDict[int] = LayeredDict()
    store["a"] = 1
    before = store.shown()
    assert store.shown() is before
    store["b"] = 2
    assert store.shown() is not before
    assert dict(before) == {"a": 1}


def test_an_entry_that_is_gone_is_missing_and_nothing_else() -> None:
    store: LayeredDict[int] = LayeredDict()
    for number in range(500):
        store[str(number)] = number
    full = store.shown()
    del store["7"]
    less = store.shown()
    assert "7" in full
    assert "7" not in less
    assert less.get("7", "default") == "default"
    assert "7" not in dict(less)
    assert len(less) == len(dict(less)) == 499


def test_entries_stay_in_their_order() -> None:
    store: LayeredDict[int] = LayeredDict()
    for number in range(500):
        store[str(number)] = number
    store.shown()
    store["3"] = -3
    store["new"] = 0
    assert [*store.shown()] == [*map(str, range(500)), "new"]


def test_a_change_costs_no_copy_of_all_entries() -> None:
    store: LayeredDict[int] = LayeredDict()
    for number in range(10_000):
        store[str(number)] = number
    before = store.shown()
    store["3"] = -3
    after = store.shown()
    assert after._base is before._base  # type: ignore[attr-defined]
