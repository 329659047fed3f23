"""Fettle allocates what Kubernetes' own allocator does, step for step, on random cases."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.oracle import allocations, running
from tests.oracle.client import Allocated, Oracle
from tests.oracle.requests import TOPICS

SECONDS = 15.0
CASES = 20_000
AT_LEAST = 500
"""Fewer would show nothing; a slow machine manages more."""


def test_random_cases_are_allocated_as_kubernetes_allocates_them(
    oracle: Oracle, seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = running.allocate(oracle, seed, CASES, seconds=SECONDS)
    with capsys.disabled():
        print(f"\n{tally.line('allocations')}")
    assert tally.wrong == 0, msgspec.json.format(msgspec.json.encode(tally.found)).decode()
    assert not tally.unexpected, "a supported feature answered undecided"
    assert tally.cases >= AT_LEAST
    assert tally.hard >= tally.cases / 3, "too few cases are refused or need backtracking"
    assert tally.outcomes["fits"] >= tally.cases / 5
    assert tally.long <= tally.cases / 50


def test_cases_come_again_from_their_seed_and_number() -> None:
    assert running.allocation_case("s", 3) == running.allocation_case("s", 3)
    assert running.allocation_case("s", 3) != running.allocation_case("s", 4)


def test_every_topic_comes_up() -> None:
    cases = [running.allocation_case("topics", number) for number in range(400)]
    assert {topic for case in cases for topic in case["topics"]} == set(TOPICS)


def test_what_differs_is_noticed_and_made_small(oracle: Oracle) -> None:
    """The comparison itself: answers of Kubernetes, changed, must be told apart from ours."""
    noticed = 0
    for number in range(60):
        case = running.allocation_case("noticed", number)
        said = oracle.allocate(case)
        if said.interrupted:
            continue
        assert allocations.compare(case, said).difference is None
        for change in CHANGES:
            changed = change(said)
            if changed is not None:
                compared = allocations.compare(case, changed)
                noticed += 1
                assert compared.difference is not None or compared.undecided
    assert noticed >= 60


def _one_step_more(said: Allocated) -> Allocated | None:
    # Of an error only the fact is compared, and the steps before it.
    return msgspec.structs.replace(said, steps=said.steps + 1)


def _another_device(said: Allocated) -> Allocated | None:
    if not said.results or not said.results[0]["devices"].get("results"):
        return None
    results = msgspec.json.decode(msgspec.json.encode(said.results))
    results[0]["devices"]["results"][0]["device"] += "x"
    return msgspec.structs.replace(said, results=results)


def _refused(said: Allocated) -> Allocated | None:
    return None if said.results is None else msgspec.structs.replace(said, error="no")


CHANGES: tuple[Callable[[Allocated], Allocated | None], ...] = (
    _one_step_more,
    _another_device,
    _refused,
)
