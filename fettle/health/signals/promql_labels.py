"""Which labels the series that a query gives can have, as far as that shows without Prometheus. In
doubt a label is there. Pure text.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from fettle.health.signals.promql import AGGREGATORS, FUNCTIONS, STRINGS

_TIMES = r"\[[^\[\]]*\]|(?:(?i:\boffset)|@)\s*-?[\w.]+(?:\(\s*\))?"
_TOKEN = re.compile(r"[(),]|[\w:.]+|[=!<>]=|[-+*/%^<>]")
_NUMBER = re.compile(r"(?i)[\d.].*|inf|nan")
_PICKERS = frozenset(("topk", "bottomk", "limitk", "limit_ratio"))
"""Aggregations that give some of their series as they are."""
_WRITERS = frozenset(
    ("label_replace", "label_join", "absent", "absent_over_time", "info", "vector")
)
_CLAUSES = ("by", "without")
_SCALARS = frozenset(("scalar", "time", "pi"))
_LATE = frozenset(("and", "unless"))
"""Bind less than what compares, and give series of their left side."""


def can_have(query: str, labels: Iterable[str]) -> frozenset[str]:
    """Those of the labels that a series which the query gives can have."""
    plain = re.sub(r"\{[^{}]*\}", " _ ", STRINGS.sub("0", query))
    plain = re.sub(r"([\w:.]) _ ", r"\1 ", re.sub(_TIMES, " ", plain))
    parts = _nested(iter(_TOKEN.findall(plain)))
    return frozenset(label for label in labels if _keeps(parts, label))


def _nested(tokens: Iterator[str]) -> list[Any]:
    """Words and signs; what stands in brackets as a list of such."""
    found: list[Any] = []
    for sign in tokens:
        if sign == ")":
            break
        found.append(_nested(tokens) if sign == "(" else sign)
    return found


def _split(parts: list[Any], words: Iterable[str]) -> list[list[Any]]:
    found: list[list[Any]] = [[]]
    for part in parts:
        if isinstance(part, str) and part.lower() in words:
            found.append([])
        else:
            found[-1].append(part)
    return found


def _keeps(parts: list[Any], label: str) -> bool:
    """Whether the label is there on each side of an `or`."""
    sides = (_split(side, _LATE)[0] for side in _split(parts, ("or",)))
    return all(_keeps_side(side, label) for side in sides)


def _keeps_side(side: list[Any], label: str) -> bool:
    """By the first operand that is a vector, and how it is matched with the next one."""
    if "group_right" in side:
        return True
    at = 0
    while at < len(side):
        part = side[at]
        if isinstance(part, list):
            return _keeps(part, label) and _matching_keeps(side[at + 1 :], label)
        name = part.lower()
        if name in _SCALARS:
            at += 2
        elif _NUMBER.fullmatch(name) or not re.match(r"[\w:]", name) or name == "bool":
            at += 1
        elif name in AGGREGATORS | FUNCTIONS | _WRITERS:
            rest = side[at + 1 :]
            is_of_call = (isinstance(p, list) or p.lower() in _CLAUSES for p in rest)
            end = next((i for i, belongs in enumerate(is_of_call) if not belongs), len(rest))
            return _call_keeps(name, rest[:end], label) and _matching_keeps(rest[end:], label)
        else:
            return _matching_keeps(side[at + 1 :], label)
    return True


def _call_keeps(name: str, rest: list[Any], label: str) -> bool:
    pairs = [*pairwise(["", *rest])]
    clause = next(((word.lower(), held) for word, held in pairs if _is_clause(word, held)), None)
    brackets = [
        held for word, held in pairs if isinstance(held, list) and not _is_clause(word, held)
    ]
    if name in _WRITERS or not brackets:
        return True
    merges = name in AGGREGATORS - _PICKERS
    if merges and (clause is None or (label in clause[1]) is not (clause[0] == "by")):
        return False
    return _keeps(next((a for a in _split(brackets[0], ",") if not _is_number(a)), []), label)


def _is_clause(word: Any, held: Any) -> bool:
    return isinstance(word, str) and word.lower() in _CLAUSES and isinstance(held, list)


def _is_number(argument: list[Any]) -> bool:
    return all(isinstance(part, str) and _NUMBER.fullmatch(part) for part in argument)


def _matching_keeps(rest: list[Any], label: str) -> bool:
    """Whether what stands after an operand keeps its label: `on (…)` without `group_left` gives
    series with its labels only."""
    words = [part.lower() if isinstance(part, str) else part for part in rest if part != "bool"]
    if len(words) < 3 or words[1] not in ("on", "ignoring") or "group_left" in words[3:4]:
        return True
    return (label in words[2]) is (words[1] == "on")
