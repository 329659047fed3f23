"""Node selectors: which nodes a slice, a device or an allocation is for.

A port of `NewNodeSelector` of k8s.io/component-helpers/scheduling/corev1/nodeaffinity: terms are
ORed, the requirements of a term ANDed, an empty term matches nothing. Pure.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from fettle.api import core


class NodeTarget(NamedTuple):
    """A node as selectors see it."""

    name: str
    labels: Mapping[str, str]


class MalformedNodeSelector(Exception):
    """A node selector that Kubernetes cannot parse, which is an error there."""


Test = Callable[[NodeTarget], bool]


class ParsedNodeSelector:
    """A parsed node selector; raises MalformedNodeSelector as the scheduler does, for any term.
    Labels that are `disregarded` are as they are wanted."""

    def __init__(
        self,
        selector: core.NodeSelector,
        disregarded: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._terms = [
            [
                *(_on_labels(e) for e in term.match_expressions or () if not disregarded(e.key)),
                *map(_on_fields, term.match_fields or ()),
            ]
            for term in selector.node_selector_terms or ()
            if term.match_expressions or term.match_fields
        ]

    def matches(self, place: NodeTarget) -> bool:
        for term in self._terms:
            for test in term:
                if not test(place):
                    break
            else:
                return True
        return False


@lru_cache(maxsize=512)
def parse_node_selector(selector: core.NodeSelector) -> ParsedNodeSelector:
    """Parse a node selector; equal ones are parsed once. Raises MalformedNodeSelector."""
    return ParsedNodeSelector(selector)


def _on_labels(wanted: core.NodeSelectorRequirement) -> Test:
    key, values = wanted.key, wanted.values or ()
    _check(wanted, values)
    match wanted.operator:
        case "In":
            return lambda place: place.labels.get(key) in values
        case "NotIn":
            return lambda place: key not in place.labels or place.labels[key] not in values
        case "Exists":
            return lambda place: key in place.labels
        case "DoesNotExist":
            return lambda place: key not in place.labels
        case "Gt":
            return _ordered(key, values[0], lambda label, value: label > value)
        case _:
            return _ordered(key, values[0], lambda label, value: label < value)


def _ordered(key: str, value: str, compare: Callable[[int, int], bool]) -> Test:
    limit = _int64(value)
    assert limit is not None  # checked

    def test(place: NodeTarget) -> bool:
        label = _int64(place.labels.get(key, ""))
        return label is not None and compare(label, limit)

    return test


def _on_fields(wanted: core.NodeSelectorRequirement) -> Test:
    values = wanted.values or ()
    if wanted.operator not in ("In", "NotIn") or len(values) != 1:
        raise MalformedNodeSelector(
            f"matchFields {wanted.key}: {wanted.operator} needs exactly one value"
        )
    key, value, equal = wanted.key, values[0], wanted.operator == "In"

    def test(place: NodeTarget) -> bool:
        field = place.name if key == "metadata.name" else ""
        return not place.name or (field == value) is equal

    return test


_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_INT = re.compile(r"[+-]?[0-9]+")


def _check(wanted: core.NodeSelectorRequirement, values: Sequence[str]) -> None:
    """The checks of `labels.NewRequirement`."""
    where = f"matchExpressions {wanted.key}: {wanted.operator}"
    prefix, slash, name = wanted.key.rpartition("/")
    if slash and not (len(prefix) <= 253 and _PREFIX.fullmatch(prefix)):
        raise MalformedNodeSelector(f"{where}: {prefix!r} is not a valid label prefix")
    if not (len(name) <= 63 and _NAME.fullmatch(name)):
        raise MalformedNodeSelector(f"{where}: {name!r} is not a valid label name")
    if wanted.operator in ("In", "NotIn"):
        fine = len(values) > 0
    elif wanted.operator in ("Exists", "DoesNotExist"):
        fine = not values
    elif wanted.operator in ("Gt", "Lt"):
        fine = len(values) == 1 and _int64(values[0]) is not None
    else:
        raise MalformedNodeSelector(
            f"matchExpressions {wanted.key}: unknown operator {wanted.operator}"
        )
    if not fine:
        raise MalformedNodeSelector(f"{where} does not allow the values {list(values)}")
    for value in values:
        if len(value) > 63 or (value and _NAME.fullmatch(value) is None):
            raise MalformedNodeSelector(f"{where}: {value!r} is not a valid label value")


def _int64(text: str) -> int | None:
    """As Go's `strconv.ParseInt` reads it."""
    if _INT.fullmatch(text) is None:
        return None
    value = int(text) if len(text) < 25 else 2**64
    return value if -(2**63) <= value < 2**63 else None
