"""Whether acceptable devices would do is what Kubernetes says once all others are tainted."""

from __future__ import annotations

import copy
from random import Random

import pytest

from fettle.dra import Alternative, Budget, DeviceView, Profile
from fettle.dra.allocator import allocate
from fettle.model import DeviceId
from tests.conformance import allocation
from tests.oracle import allocations, running, unusual
from tests.oracle.client import Oracle
from tests.oracle.fleets import Json
from tests.oracle.requests import MALFORMED

CASES = 1200
REFUSED = {"key": "example.com/refused", "effect": "NoSchedule"}
EITHER_WAY = (Budget(10**9, 600.0, prune_after=None), Budget(10**9, 600.0))


def test_what_is_feasible_is_what_kubernetes_allocates_of_devices_that_are_not_refused(
    oracle: Oracle, seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = [n for n in range(CASES) if _is_plain(running.allocation_case(seed, n))]
    cases = [running.allocation_case(seed, number) for number in numbers]
    refused = [_refused(Random(f"{seed}:{n}"), c) for n, c in zip(numbers, cases, strict=True)]
    tainted = [_tainted(case, devices) for case, devices in zip(cases, refused, strict=True)]
    fits = hard = 0
    for number, case, devices, other, said in zip(
        numbers, cases, refused, tainted, oracle.allocations(tainted), strict=True
    ):
        if said.interrupted or said.panic:
            continue
        expected = allocations.expectation(other, said)
        fits += expected.kind == "allocated"
        hard += bool(expected.results) and bool(devices)
        for budget in EITHER_WAY:
            ours = feasible(case, devices, budget)
            assert ours.kind == "undecided" or allocation.agree(other, expected, ours), number
    with capsys.disabled():
        print(
            f"\nfeasible, seed {seed}: {len(cases)} cases, {fits} fit, {hard} of them beside others"
        )
    assert min(fits, len(cases) - fits) >= len(cases) / 6
    assert hard >= len(cases) / 10


def feasible(case: Json, refused: set[DeviceId], budget: Budget) -> allocation.Answer:
    def acceptable(device: DeviceView, _wanted: Alternative) -> bool:
        return device.id not in refused

    asked, views = allocation.wanted(case), allocation.seen(case)
    profile = Profile(allocation.features(case)).correct
    found = allocate(
        asked, views, allocation.match(), profile, acceptable=acceptable, budget=budget
    )
    return allocation.told(asked, found, profile.features)


def _is_plain(case: Json) -> bool:
    """Whether objects are as the API server accepts them, and no request tolerates everything."""
    tolerations = [t for wanted in unusual.wanted_by(case) for t in wanted.get("tolerations") or ()]
    return not MALFORMED.intersection(case["topics"]) and all(t.get("key") for t in tolerations)


def _refused(random: Random, case: Json) -> set[DeviceId]:
    return {
        DeviceId(slice_["spec"]["driver"], slice_["spec"]["pool"]["name"], device["name"])
        for slice_ in case["slices"]
        for device in slice_["spec"].get("devices") or ()
        if random.random() < 0.3
    }


def _tainted(case: Json, refused: set[DeviceId]) -> Json:
    made = copy.deepcopy(case)
    for slice_ in made["slices"]:
        spec = slice_["spec"]
        for device in spec.get("devices") or ():
            if DeviceId(spec["driver"], spec["pool"]["name"], device["name"]) in refused:
                device["taints"] = [*device.get("taints", ()), REFUSED]
    return made
