"""What holds for every allocation, whatever the node and whatever is asked for."""

import asyncio
import re
from collections import Counter

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from fettle.dra.allocator import (
    AllocationOutcome,
    AllocationStatus,
    Budget,
    DeviceResult,
    allocate,
    explain_shortfall,
)
from fettle.dra.allocator.allocate_device import Acceptable, are_tolerated
from fettle.dra.allocator.features import CURRENT, Profile, profile_of_version
from fettle.dra.allocator.results import with_allocated
from fettle.dra.pools import PoolView
from fettle.model import DeviceId
from fettle.pacing import run_within, taking_turns
from tests.conformance.allocation import match, seen, wanted
from tests.fettle.building import as_text
from tests.fettle.dra.allocator.cases import Raw
from tests.fettle.dra.allocator.wild import cases

BUDGET = Budget(steps=3000, seconds=60.0)
PROFILES = [CURRENT, *map(profile_of_version, ("v1.36.1", "v1.36.3"))]


def allocation(
    case: Raw,
    pools: list[PoolView] | None = None,
    acceptable: Acceptable | None = None,
) -> AllocationOutcome:
    views = pools if pools is not None else seen(case)
    asked = wanted(case)
    return allocate(asked, views, match(), CURRENT, acceptable=acceptable, budget=BUDGET)


def fitting(case: Raw) -> tuple[DeviceResult, ...]:
    return allocation(case).devices


@given(cases())
def test_no_device_is_allocated_twice_or_while_in_use(case: Raw) -> None:
    taken = [t.device for t in fitting(case) if t.consumed is None]
    assert max(Counter(d.id for d in taken).values(), default=1) == 1
    assert not any(d.allocated for d in taken)


@given(cases())
def test_no_counter_is_overdrawn(case: Raw) -> None:
    once = {t.device.id: t.device for t in fitting(case)}
    for pool in seen(case):
        used: Counter[object] = Counter()
        for device in once.values():
            if (device.id.driver, device.id.pool) == (pool.driver, pool.name):
                used.update(dict(device.published.consumes))
        assert all(
            used[counter] <= left for counter, left in pool.counters.items() if used[counter]
        )


@given(cases())
def test_no_capacity_is_exceeded(case: Raw) -> None:
    used: dict[DeviceId, Counter[str]] = {}
    taken = fitting(case)
    for one in taken:
        used.setdefault(one.device.id, Counter()).update(dict(one.consumed or ()))
    for one in taken:
        for name, capacity in one.device.published.capacities.items():
            assert used[one.device.id][name] <= capacity.value.nano


@given(cases())
def test_no_device_is_allocated_that_a_taint_forbids(case: Raw) -> None:
    asked = wanted(case)
    for one in fitting(case):
        alternatives = asked[one.claim].alternatives()
        alternative = next(a for a in alternatives if a.name == one.request)
        assert are_tolerated(one.device.taints, alternative.tolerations)


@given(cases())
def test_the_same_question_has_the_same_answer(case: Raw) -> None:
    assert allocation(case) == allocation(case)


@given(cases())
def test_pausing_changes_nothing(case: Raw) -> None:
    with taking_turns(slice_s=0.0):  # others have their turn at each pause
        assert asyncio.run(run_within(lambda: allocation(case))) == allocation(case)


@given(cases())
def test_a_search_that_pruning_ends_would_have_found_nothing(case: Raw) -> None:
    whole = Budget(steps=20_000, seconds=60.0, prune_after=None)
    patient = allocate(wanted(case), seen(case), match(), CURRENT, budget=whole)
    hasty = Budget(steps=20_000, seconds=60.0, prune_after=0)
    pruned = allocate(wanted(case), seen(case), match(), CURRENT, budget=hasty)
    assume(patient.found is not AllocationStatus.UNDECIDED)
    assert (pruned.found, pruned.devices) == (patient.found, patient.devices)


@given(cases())
def test_a_prediction_with_acceptable_devices_is_feasible(case: Raw) -> None:
    taken = {t.device.id for t in fitting(case)}
    feasible = allocation(case, acceptable=lambda device, _: device.id in taken)
    if not taken:
        return
    assert feasible.found in (
        AllocationStatus.FITS,
        AllocationStatus.ERROR,
    )  # mode All may need one that is not
    if feasible.found is AllocationStatus.FITS:
        assert {t.device.id for t in feasible.devices} == taken


@given(cases())
def test_allocated_devices_are_not_allocated_again(case: Raw) -> None:
    first = fitting(case)
    pools = list(with_allocated(seen(case), first))
    second = allocation(case, pools)
    alone = {t.device.id for t in first if t.consumed is None}
    assert not alone & {t.device.id for t in second.devices}
    for pool in with_allocated(pools, second.devices):
        for device in pool.devices:
            for name, used in device.consumed.items():
                assert used <= device.published.capacities[name].value.nano


@given(cases(), st.sampled_from(["v1.34.0", "v1.36.1", "v1.36.3"]))
def test_older_versions_are_predicted_whatever_is_requested(case: Raw, version: str) -> None:
    found = allocate(wanted(case), seen(case), match(), profile_of_version(version), budget=BUDGET)
    taken = [t.device.id for t in found.devices if t.consumed is None]
    assert len(taken) == len(set(taken))


@given(cases())
def test_if_nothing_is_found_there_is_an_explanation(case: Raw) -> None:
    found = allocation(case)
    assume(found.found is AllocationStatus.NONE or found.on_node)
    assert as_text(explain_shortfall(wanted(case), seen(case), match(), CURRENT))


@given(cases(), st.sampled_from(PROFILES))
def test_an_explanation_about_requests_keeps_them_from_being_met_alone(
    case: Raw, profile: Profile
) -> None:
    asked, pools = wanted(case), seen(case)
    found = allocate(asked, pools, match(), profile, budget=BUDGET)
    assume(found.found is AllocationStatus.NONE or found.on_node)
    said = as_text(explain_shortfall(asked, pools, match(), profile))
    told = set(re.findall(r"\b([cd])/(r\d)", said.split(": ")[0]))
    assume(told)
    alone = [
        msgspec.structs.replace(
            claim,
            requests=tuple(r for r in claim.requests if (claim.name, r.name) in told),
            constraints=claim.constraints
            if "constraint" in said or "requested with" in said
            else (),
        )
        for claim in asked
    ]
    assert (
        allocate(alone, pools, match(), profile, budget=BUDGET).found is not AllocationStatus.FITS
    )
