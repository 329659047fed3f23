"""Groups of requests that each agree on a value, such as pairs of a GPU and a NIC on one root."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from fettle.dra.allocator import AllocationOutcome, AllocationStatus, Budget, allocate
from fettle.dra.claims import Claim, Constraint, Request
from fettle.dra.pools import PoolView
from tests.fettle.dra.allocator import pairs

EIGHT = range(8)
WHOLE = Budget(steps=4000, seconds=60.0, prune_after=None)


def found(claim: Claim, gpus: Sequence[int], nics: Sequence[int]) -> AllocationOutcome:
    """With time enough on any machine: what is tested is how few steps it takes."""
    return allocate([claim], pairs.node(gpus, nics), pairs.match, budget=Budget(seconds=60.0))


def taken(claim: Claim, gpus: Sequence[int], nics: Sequence[int]) -> str:
    return " ".join(one.device.id.device for one in found(claim, gpus, nics).devices)


@pytest.mark.parametrize("grouped", [True, False])
def test_pairs_are_found_in_the_schedulers_order(grouped: bool) -> None:
    said = taken(pairs.claim(3, grouped=grouped), EIGHT, [5, 0, 3, 7])
    assert said == (
        "gpu-0 gpu-3 gpu-5 nic-1 nic-2 nic-0" if grouped else "gpu-0 nic-1 gpu-3 nic-2 gpu-5 nic-0"
    )


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize(
    ("wanted", "gpus", "nics"),
    [
        (8, EIGHT, [1, 3, 4, 5, 6, 7]),
        (7, [0, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 7]),
        (8, range(16), range(9, 25)),
        (3, [0, 0, 1], [0, 1, 1]),
    ],
    ids=["too few NICs", "one of each lost", "half of them apart", "two on a root, one beside"],
)
def test_more_pairs_than_roots_with_both_are_known_to_be_impossible_at_once(
    wanted: int, gpus: Sequence[int], nics: Sequence[int], grouped: bool
) -> None:
    said = found(pairs.claim(wanted, grouped=grouped), gpus, nics)
    assert said.found is AllocationStatus.NONE
    assert said.steps < 200


@pytest.mark.parametrize(
    ("wanted", "gpus", "nics"),
    [
        (6, EIGHT, range(2, 8)),
        (8, range(32), range(24, 32)),
        (4, [0, 0, 1, 1, 2, 2, 3, 3], [2, 2, 3, 3]),
    ],
    ids=["as many as there are", "the last of many", "two on each root"],
)
def test_pairs_are_found_without_trying_every_root(
    wanted: int, gpus: Sequence[int], nics: Sequence[int]
) -> None:
    said = found(pairs.claim(wanted), gpus, nics)
    assert said.found is AllocationStatus.FITS
    assert said.steps < 200


def test_groups_that_need_several_devices_per_root_need_enough_of_them() -> None:
    gpus = [0, 0, 0, 1, 1, 1, 2, 2]
    assert found(pairs.claim(3, gpus=2), gpus, [0, 1, 2]).found is AllocationStatus.FITS
    none = found(pairs.claim(4, gpus=2), [*gpus, 2], [0, 0, 1, 1, 2, 2])
    assert (none.found, none.steps < 200) == (AllocationStatus.NONE, True)


def test_groups_of_different_sizes_may_share_a_root() -> None:
    sizes = (1, 3, 1)
    gpus = [pairs.request(f"g{i}", pairs.GPU, size) for i, size in enumerate(sizes)]
    nics = [pairs.request(f"n{i}", pairs.NIC) for i in range(3)]
    agreeing = tuple(pairs.agreeing(f"g{i}", f"n{i}") for i in range(3))
    at_once = Budget(prune_after=0)
    for number, outcome in ((5, AllocationStatus.FITS), (2, AllocationStatus.NONE)):
        node = pairs.node([0] * number + [1] * (5 - number), [0] * 3)
        said = allocate([Claim("k", (*gpus, *nics), agreeing)], node, pairs.match, budget=at_once)
        assert said.found is outcome


def test_pairs_of_several_claims_compete_for_the_same_roots() -> None:
    claims = [pairs.claim(4), pairs.claim(3)]
    nodes = pairs.node(EIGHT, [0, 1, 2, 3, 4, 5]), pairs.node(EIGHT, [1, 2, 3, 4, 5, 6, 7])
    several = [allocate(claims, node, pairs.match) for node in nodes]
    assert [each.found for each in several] == [AllocationStatus.NONE, AllocationStatus.FITS]
    assert all(each.steps < 200 for each in several)


ROOTS = st.lists(st.integers(0, 3), min_size=2, max_size=9)


UP_TO_TWO = st.sampled_from([0, 1, 1, 1, 2])


@st.composite
def asked(draw: st.DrawFn) -> list[Claim]:
    """Groups of one or two claims, which want different numbers of devices and may have more than
    one request for a kind, or have one in common with another group."""
    claims = []
    for name in draw(st.sampled_from([["k"], ["k"], ["k", "l"]])):
        requests: list[Request] = []
        constraints: list[Constraint] = []
        for i in range(draw(st.integers(1, 3))):
            group = [pairs.request(f"g{i}", pairs.GPU, draw(st.sampled_from([1, 1, 1, 2, 3])))]
            group += [pairs.request(f"n{i}-{j}", pairs.NIC) for j in range(draw(UP_TO_TWO))]
            others = [r.name for r in requests]
            common = draw(st.lists(st.sampled_from(others), max_size=1)) if others else []
            constraints.append(pairs.agreeing(*(r.name for r in group), *common))
            requests += group
        claims.append(Claim(name, tuple(draw(st.permutations(requests))), tuple(constraints)))
    return claims


@pytest.mark.long
@settings(max_examples=300)
@given(asked(), ROOTS, ROOTS, st.sets(st.integers(0, 3), max_size=2))
def test_looking_ahead_finds_the_same_as_a_full_search(
    claims: list[Claim], gpus: list[int], nics: list[int], shared: set[int]
) -> None:
    pools: tuple[PoolView, ...] = pairs.node(gpus, nics, shared)
    patient = allocate(claims, pools, pairs.match, budget=WHOLE)
    assume(patient.found is not AllocationStatus.UNDECIDED)
    event(patient.found)
    for after in (0, 1, 5):
        hasty = Budget(steps=4000, seconds=60.0, prune_after=after)
        said = allocate(claims, pools, pairs.match, budget=hasty)
        assert (said.found, said.devices) == (patient.found, patient.devices)
        assert said.steps <= patient.steps
