"""Compares selectors: Fettle's and the oracle's answer to one expression on some devices."""

from __future__ import annotations

from typing import Any

import msgspec

from fettle.cel.language.compiler import UNFORESEEN
from tests.conformance import selection
from tests.oracle.allocations import Difference
from tests.oracle.client import Oracle, Selected
from tests.oracle.expressions import smaller

Json = dict[str, Any]


class Compared(msgspec.Struct, frozen=True):
    """Over all devices of one question; `device` is the one that differs."""

    difference: Difference | None = None
    device: Json | None = None
    undecided: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()


def compare(expression: str, devices: list[Json], said: Selected) -> Compared:
    words = said.words()
    expected = words * len(devices) if said.compile_error else words
    undecided = []
    for device, word in zip(devices, expected, strict=True):
        ours = _answer(expression, device)
        if ours.startswith("undecided") and UNFORESEEN not in ours:
            undecided.append(ours)
        elif ours != word:
            why = said.compile_error or next((o.error for o in said.outcomes or () if o.error), "")
            found = Difference(f"{word}, not {ours.split(':')[0]}", f"{word} {why}".strip(), ours)
            return Compared(found, device, tuple(undecided), tuple(expected))
    return Compared(None, None, tuple(undecided), tuple(expected))


def _answer(expression: str, device: Json) -> str:
    try:
        return selection.answer(expression, device)
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"


def shrink(oracle: Oracle, expression: str, device: Json, kind: str, limit: int = 300) -> str:
    """The smallest expression found that differs in the same way on that device."""
    tries = 0
    found = True
    while found:
        found = False
        for candidate in smaller(expression):
            tries += 1
            if tries > limit:
                return expression
            said = compare(candidate, [device], oracle.select(candidate, [device]))
            if said.difference and said.difference.kind == kind:
                expression, found = candidate, True
                break
    return expression
