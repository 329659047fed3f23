"""How Fettle answers a selector on a device given as JSON, in words to compare with Kubernetes'.

Used for the files of outcomes and for random expressions alike.
"""

import sys
from typing import Any

from fettle.api.resource import Device
from fettle.cel import OutcomeKind, rows
from fettle.cel.language.compiler import judge, prepare
from fettle.cel.language.environment import STORED, Environment
from fettle.cel.runtime.limits import RECURSION_LIMIT
from tests.fettle.cel.devices import device as made


def answer(expression: str, device: dict[str, Any], environment: Environment = STORED) -> str:
    """`match`, `no_match`, `compile_error`, `runtime_error`, or `undecided: ` and the reason.

    `device` has the fields of a resource.k8s.io/v1 device (`attributes`, `capacity`,
    `allowMultipleAllocations`, each optional) and `driver`. Runs in this process.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION_LIMIT))
    try:
        return _answer(expression, device, environment)
    finally:
        sys.setrecursionlimit(before)


def _answer(expression: str, device: dict[str, Any], environment: Environment) -> str:
    prepared = prepare(expression, environment)
    if prepared.outcome is not None:
        undecided = prepared.outcome.undecided
        return f"undecided: {prepared.outcome.reason}" if undecided else "compile_error"
    driver, of = read(device)
    problem = rows.problem(driver, of)
    if problem:
        return f"undecided: {problem}"
    outcome = judge(
        prepared, rows.row(prepared.reads, rows.row_fingerprint(prepared.reads, driver, of))
    )
    if outcome.undecided:
        return f"undecided: {outcome.reason}"
    words = {
        OutcomeKind.MATCH: "match",
        OutcomeKind.NO_MATCH: "no_match",
        OutcomeKind.WOULD_ABORT: "runtime_error",
    }
    return words[outcome.kind]


def read(device: dict[str, Any]) -> tuple[str, Device]:
    """The driver and the device of such JSON."""
    more = {"allowMultipleAllocations": device.get("allowMultipleAllocations")}
    of = made(device.get("attributes"), device.get("capacity"), **more)
    return device.get("driver", ""), of
