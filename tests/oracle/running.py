"""Many cases by number: made from a seed, asked in batches, counted; differences made small."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, Protocol

import msgspec

from tests.oracle import allocations, features, requests, selections
from tests.oracle.client import Oracle
from tests.oracle.expressions import device
from tests.oracle.shrinking import shrink

Json = dict[str, Any]
BATCH = 250
DEVICES = 2
"""On so many devices each expression is asked."""
KEPT = 12
"""So many differences are made small; the others are only counted."""


class Grammar(Protocol):
    """Makes expressions."""

    def expression(self, random: Random) -> str: ...


class Found(msgspec.Struct, frozen=True):
    """One difference: `number` and the seed make it again; `case` is what is left of it."""

    number: int
    kind: str
    expected: str
    ours: str
    case: Json


class Tally(msgspec.Struct):
    """`undecided` counts reasons or topics; `unexpected` are those that may not be.

    `asked` and `open` count, by what an expression uses, answers and how many were undecided.
    """

    seed: str
    cases: int = 0
    hard: int = 0
    long: int = 0
    unaskable: int = 0
    wrong: int = 0
    outcomes: Counter[str] = msgspec.field(default_factory=Counter)
    undecided: Counter[str] = msgspec.field(default_factory=Counter)
    asked: Counter[str] = msgspec.field(default_factory=Counter)
    open: Counter[str] = msgspec.field(default_factory=Counter)
    unexpected: list[str] = msgspec.field(default_factory=list)
    found: list[Found] = msgspec.field(default_factory=list)

    def share(self, used: str) -> float:
        """How often expressions that use it were undecided."""
        return self.open[used] / self.asked[used]

    def line(self, name: str) -> str:
        undecided = sum(self.undecided.values())
        reasons = "".join(f"\n  undecided {n}: {why}" for why, n in self.undecided.most_common(12))
        if undecided and self.open:
            most = sorted(+self.open, key=lambda used: -self.share(used))[:12]
            told = (f"{used} {self.open[used]} of {self.asked[used]}" for used in most)
            reasons += f"\n  undecided by what is used: {', '.join(told)}"
        return (
            f"{name}, seed {self.seed}: {self.cases} cases, {undecided} undecided, "
            f"{self.wrong} wrong, {self.hard} refused or with backtracking, {self.long} too long, "
            f"{self.unaskable} where Kubernetes panics; {dict(self.outcomes)}{reasons}"
        )


def allocation_case(seed: str, number: int) -> Json:
    return requests.case(Random(f"{seed}:{number}"))


def selection_case(grammar: Grammar, seed: str, number: int) -> tuple[str, list[Json]]:
    random = Random(f"{seed}:{number}")
    return grammar.expression(random), [device(random) for _ in range(DEVICES)]


def _batches(first: int, count: int, seconds: float) -> Iterator[range]:
    began = time.monotonic()
    for start in range(first, first + count, BATCH):
        if time.monotonic() - began > seconds:
            return
        yield range(start, min(first + count, start + BATCH))


def allocate(
    oracle: Oracle, seed: str, count: int, *, first: int = 0, seconds: float = 1e9
) -> Tally:
    """Random allocations: at most `count` cases, for about `seconds`."""
    tally = Tally(seed)
    for numbers in _batches(first, count, seconds):
        cases = [allocation_case(seed, number) for number in numbers]
        for number, case, said in zip(numbers, cases, oracle.allocations(cases), strict=True):
            if said.panic:
                tally.unaskable += 1
                continue
            compared = allocations.compare(case, said)
            tally.cases += 1
            tally.hard += compared.hard
            tally.long += compared.long
            tally.outcomes[
                "error" if said.error else "none" if said.results is None else "fits"
            ] += 1
            if compared.undecided:
                tally.undecided[f"{', '.join(case['topics'])}: {compared.undecided}"] += 1
                if not requests.MALFORMED.intersection(case["topics"]):
                    tally.unexpected.append(f"case {number}: {compared.undecided}")
            if compared.difference:
                tally.wrong += 1
                if len(tally.found) < KEPT:
                    tally.found.append(_smaller(oracle, number, case, compared.difference))
    return tally


def _smaller(oracle: Oracle, number: int, case: Json, seen: allocations.Difference) -> Found:
    def still(candidate: Json) -> bool:
        difference = allocations.differs(oracle, candidate)
        return difference is not None and difference.kind == seen.kind

    small = shrink(case, still)
    found = allocations.differs(oracle, small) or seen
    return Found(number, found.kind, found.expected, found.ours, small)


def select(
    oracle: Oracle, grammar: Grammar, seed: str, count: int, *, first: int = 0, seconds: float = 1e9
) -> Tally:
    """Random selectors, each on a few random devices."""
    tally = Tally(seed)
    for numbers in _batches(first, count, seconds):
        asked = [selection_case(grammar, seed, number) for number in numbers]
        replies = oracle.selections(asked)
        for number, (expression, devices), said in zip(numbers, asked, replies, strict=True):
            if said.panic:
                tally.unaskable += 1
                continue
            compared = selections.compare(expression, devices, said)
            tally.cases += len(devices)
            tally.outcomes.update(compared.outcomes)
            tally.undecided.update(compared.undecided)
            for used in features.used(expression):
                tally.asked[used] += len(devices)
                tally.open[used] += len(compared.undecided)
            tally.unexpected += [
                f"case {number}: {why}" for why in compared.undecided if not features.is_known(why)
            ]
            if compared.difference and compared.device:
                tally.wrong += 1
                if len(tally.found) < KEPT:
                    kind = compared.difference.kind
                    small = selections.shrink(oracle, expression, compared.device, kind)
                    again = selections.compare(
                        small, [compared.device], oracle.select(small, [compared.device])
                    )
                    seen = again.difference or compared.difference
                    case = {"expression": small, "device": compared.device}
                    tally.found.append(Found(number, seen.kind, seen.expected, seen.ours, case))
    return tally
