"""Compares allocations: Fettle's and the oracle's answer to one case, and how they differ."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.conformance import allocation
from tests.oracle.client import Allocated, Oracle, OracleFailed

Json = dict[str, Any]


class Difference(msgspec.Struct, frozen=True):
    """`kind` is what stays the same while a case is made smaller."""

    kind: str
    expected: str
    ours: str


class Compared(msgspec.Struct, frozen=True):
    """`hard`: Kubernetes refused, failed, or had to go back; `long`: it was not let finish."""

    difference: Difference | None = None
    undecided: str = ""
    hard: bool = False
    long: bool = False


def compare(case: Json, said: Allocated) -> Compared:
    if said.malformed or said.panic:
        raise OracleFailed(said.malformed or said.panic)
    if said.interrupted:
        return Compared(long=True)
    expected = expectation(case, said)
    hard = expected.kind != "allocated" or expected.steps > straight(case, expected.results)
    try:
        ours = allocation.answer(case)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        return Compared(
            Difference(f"raises {type(error).__name__}", told(expected), why), hard=hard
        )
    if ours.kind == "undecided":
        return Compared(undecided=ours.reason, hard=hard)
    return Compared(
        _difference(case, expected, ours) or _difference_in_haste(case, expected), hard=hard
    )


def _difference_in_haste(case: Json, expected: allocation.Answer) -> Difference | None:
    """As in use, where a search that is plainly hopeless ends early: but with the same answer."""
    ours = allocation.answer(case, prune=True)
    if ours.kind == expected.kind and allocation.agree(case, expected, ours):
        return None
    return Difference(f"{expected.kind}, not {ours.kind} in haste", told(expected), told(ours))


def _difference(
    case: Json, expected: allocation.Answer, ours: allocation.Answer
) -> Difference | None:
    if expected.kind != ours.kind:
        kind = f"{expected.kind}, not {ours.kind}"
    elif not allocation.agree(case, expected, ours):
        kind = "other devices"
    elif expected.steps != ours.steps:
        kind = "other steps"
    else:
        return None
    return Difference(kind, told(expected), told(ours))


def expectation(case: Json, said: Allocated) -> allocation.Answer:
    results = None if said.results is None else said.results
    return allocation.expected(
        {
            "claims": case["claims"],
            "expectError": said.error,
            "expectResults": results,
            "numAllocateOneInvocations": said.steps,
        }
    )


def told(answer: allocation.Answer) -> str:
    return msgspec.json.encode(answer).decode()


def straight(case: Json, results: list[Json]) -> int:
    """The steps of a search that never goes back: one per device, request, claim, and the end."""
    steps = 1
    for claim, result in zip(case["claims"], results, strict=True):
        requests = claim["spec"]["devices"].get("requests") or ()
        steps += 1 + len(result["devices"].get("results") or ())
        steps += sum(2 if "firstAvailable" in request else 1 for request in requests)
    return steps


def differs(oracle: Oracle, case: Json) -> Difference | None:
    """For one case alone."""
    said = oracle.allocate(case)
    return None if said.malformed or said.panic else compare(case, said).difference
