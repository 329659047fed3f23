from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import core
from fettle.dra.node_selectors import MalformedNodeSelector, NodeTarget, ParsedNodeSelector

NODE = NodeTarget("n", {"zone": "a", "rack": "7", "bare": ""})


def selector(*terms: dict[str, Any]) -> ParsedNodeSelector:
    raw = msgspec.json.encode({"nodeSelectorTerms": list(terms)})
    return ParsedNodeSelector(msgspec.json.decode(raw, type=core.NodeSelector))


def labels(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        (labels("zone", "In", "a", "b"), True),
        (labels("zone", "In", "b"), False),
        (labels("zone", "NotIn", "b"), True),
        (labels("no", "NotIn", "b"), True),
        (labels("no", "In", "b"), False),
        (labels("bare", "Exists"), True),
        (labels("no", "Exists"), False),
        (labels("no", "DoesNotExist"), True),
        (labels("rack", "Gt", "6"), True),
        (labels("rack", "Lt", "7"), False),
        (labels("zone", "Gt", "1"), False),
        (field("In", "n"), True),
        (field("NotIn", "n"), False),
        (field("In", "n", key="metadata.uid"), False),
        ({}, False),
    ],
    ids=str,
)
def test_one_term(term: dict[str, Any], matches: bool) -> None:
    assert selector(term).matches(NODE) is matches


def test_terms_are_ored_and_requirements_are_anded() -> None:
    here, elsewhere = labels("zone", "In", "a"), labels("zone", "In", "b")
    assert selector(elsewhere, here).matches(NODE)
    assert not selector({**here, **field("In", "m")}).matches(NODE)
    assert not selector().matches(NODE)


@pytest.mark.parametrize(
    "term",
    [
        labels("zone", "Near", "a"),
        labels("zone", "In"),
        labels("zone", "Exists", "a"),
        labels("rack", "Gt", "six"),
        labels("rack", "Gt", "1", "2"),
        labels("rack", "Lt", "9999999999999999999999"),
        labels("no key", "Exists"),
        labels("Upper/key", "Exists"),
        labels("zone", "In", "not a label"),
        field("In", "a", "b"),
        field("Exists"),
    ],
    ids=str,
)
def test_a_selector_that_kubernetes_cannot_parse_is_malformed(term: dict[str, Any]) -> None:
    with pytest.raises(MalformedNodeSelector):
        selector(labels("zone", "In", "a"), term)


@given(st.text(max_size=5), st.text(max_size=5), st.lists(st.text(max_size=5), max_size=2))
def test_any_selector_either_can_be_matched_or_is_malformed(
    key: str, operator: str, values: list[str]
) -> None:
    try:
        made = selector(labels(key, operator or "In", *values))
    except MalformedNodeSelector:
        return
    assert made.matches(NODE) in (True, False)
