"""A case is made as small as what it shows allows, and stays a case."""

from __future__ import annotations

from typing import Any

from tests.oracle import running, selections
from tests.oracle.client import Oracle
from tests.oracle.expressions import smaller
from tests.oracle.shrinking import shrink


def _devices(case: Any) -> list[str]:
    return [d["name"] for s in case["slices"] for d in s["spec"].get("devices") or ()]


def test_what_is_not_needed_is_left_out() -> None:
    case = running.allocation_case("shrinking", 2)
    assert len(_devices(case)) > 2
    name = _devices(case)[1]
    small = shrink(case, lambda c: name in _devices(c))
    assert _devices(small) == [name]
    assert small["claims"] == small["classes"] == small["allocatedDevices"] == []
    assert len(_devices(case)) > 2, "the case itself is untouched"


def test_a_pool_that_loses_a_slice_stays_as_complete_as_it_was() -> None:
    def slice_(name: str) -> dict[str, Any]:
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
        spec = {"driver": "d", "pool": pool, "devices": [{"name": name}]}
        return {"metadata": {"name": name}, "spec": spec}

    small = shrink({"slices": [slice_("a"), slice_("b")]}, lambda c: "b" in _devices(c))
    (left,) = small["slices"]
    assert left["spec"]["pool"]["resourceSliceCount"] == 1


def test_it_ends_after_so_many_tries() -> None:
    tries = 0

    def still(_case: Any) -> bool:
        nonlocal tries
        tries += 1
        return False

    shrink(running.allocation_case("shrinking", 1), still, limit=7)
    assert tries == 7


def test_a_smaller_case_is_still_one_that_the_oracle_answers(oracle: Oracle) -> None:
    case = running.allocation_case("shrinking", 2)
    expected = oracle.allocate(case)
    small = shrink(case, lambda c: oracle.allocate(c).results == expected.results, limit=150)
    said = oracle.allocate(small)
    assert not said.malformed
    assert not said.panic


def test_an_expression_is_made_of_its_own_parts() -> None:
    assert "(1 == 1)" in smaller("true && (1 == 1)")
    assert all(len(made) < len("(1 + (2))") for made in smaller("(1 + (2))"))


def test_an_expression_that_does_not_differ_stays_as_it_is(oracle: Oracle) -> None:
    device = {"driver": "gpu.example.com"}
    assert selections.shrink(oracle, "true && (1 == 1)", device, "none") == "true && (1 == 1)"
