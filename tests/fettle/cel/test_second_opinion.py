"""Plain CEL means the same to Fettle and to cel-expr-python, the C++ implementation of CEL."""

import pytest
from cel_expr_python import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from fettle.cel.runtime.protocol import OutcomeKind
from tests.fettle.cel.devices import judged


def _joined(operators: list[str], parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda left, operator, right: f"({left} {operator} {right})",
        parts,
        st.sampled_from(operators),
        parts,
    )


numbers = st.recursive(
    st.integers(0, 20).map(str)
    | st.sampled_from(
        ['size("abc")', "size([1, 2])", "[4, 5][1]", "[4, 5][2]", "-9223372036854775808"]
    )
    | st.sampled_from(['{"a": 3}["a"]', '{"a": 3}.b', 'int("7")', "int(2.9)"])
    | st.sampled_from(["size([1, 2, 3].filter(x, x > 1))", "[1, 2].map(x, x * 2)[1]"]),
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
    | st.builds(lambda one: f"string({one}).matches('^[0-9]+$')", numbers)
    | st.sampled_from(['has({"a": 1}.a)', 'has({"a": 1}.b)', '"a" in {"a": 1}', "1.5 < 2.0"])
    | st.builds(lambda one: f"({one} in [1, 2, 3])", numbers)
    | st.builds(lambda one: f"[1, 2, 3].all(x, x < {one})", numbers)
    | st.builds(lambda one: f"[1, 2, 3].exists(x, x == {one})", numbers)
    | st.builds(lambda one: f"[1, 2, 3].exists_one(x, x > {one})", numbers),
    lambda parts: (
        _joined(["&&", "||"], parts)
        | st.builds(lambda part: f"!({part})", parts)
        | st.builds(lambda a, b, c: f"({a} ? {b} : {c})", parts, parts, parts)
    ),
    max_leaves=6,
)


ENVIRONMENT = cel.NewEnv()


def theirs(expression: str) -> OutcomeKind:
    value = ENVIRONMENT.compile(expression).eval()
    if value.type() == cel.Type.ERROR:
        return OutcomeKind.WOULD_ABORT
    return OutcomeKind.MATCH if value.value() else OutcomeKind.NO_MATCH


@pytest.mark.long
@settings(max_examples=300)
@given(truths)
def test_fettle_and_cel_expr_python_find_the_same_outcome(expression: str) -> None:
    assert judged(expression).kind is theirs(expression)
