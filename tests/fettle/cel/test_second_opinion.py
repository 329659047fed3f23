"""Plain CEL means the same to Fettle and to cel-python, an independent implementation."""

import sys

import celpy
import pytest
from celpy.evaluation import CELEvalError
from hypothesis import given, settings
from hypothesis import strategies as st

from fettle.cel.runtime.outcomes import OutcomeKind
from tests.fettle.cel.devices import judged


def _joined(operators: list[str], parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda left, operator, right: f"({left} {operator} {right})",
        parts,
        st.sampled_from(operators),
        parts,
    )


numbers = st.recursive(
    st.integers(0, 20).map(str) | st.sampled_from(['size("abc")', "size([1, 2])", "[4, 5][1]"]),
    lambda parts: _joined(["+", "-", "*", "/", "%"], parts),
    max_leaves=6,
)
texts = st.sampled_from(['"a"', '"ab"', '"b"', '""', "'é'"])
truths = st.recursive(
    st.sampled_from(["true", "false"])
    | _joined(["<", "<=", ">", ">=", "==", "!="], numbers)
    | _joined(["<", "==", "!="], texts)
    | st.builds(lambda one, other: f"{one}.startsWith({other})", texts, texts)
    | st.builds(lambda one, other: f"{one}.contains({other})", texts, texts)
    | st.builds(lambda one: f"({one} in [1, 2, 3])", numbers)
    | st.builds(lambda one: f"[1, 2, 3].all(x, x < {one})", numbers)
    | st.builds(lambda one: f"[1, 2, 3].exists(x, x == {one})", numbers),
    lambda parts: (
        _joined(["&&", "||"], parts)
        | st.builds(lambda part: f"!({part})", parts)
        | st.builds(lambda a, b, c: f"({a} ? {b} : {c})", parts, parts, parts)
    ),
    max_leaves=6,
)


def theirs(expression: str) -> OutcomeKind:
    before = sys.getrecursionlimit()  # cel-python lowers it
    try:
        environment = celpy.Environment()
        result = environment.program(environment.compile(expression)).evaluate({})
    except CELEvalError:
        return OutcomeKind.WOULD_ABORT
    finally:
        sys.setrecursionlimit(before)
    return OutcomeKind.MATCH if result else OutcomeKind.NO_MATCH


@pytest.mark.long
@settings(max_examples=100)
@given(truths)
def test_fettle_and_cel_python_find_the_same_outcome(expression: str) -> None:
    assert judged(expression).kind is theirs(expression)
