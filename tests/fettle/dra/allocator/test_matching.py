"""What no search finds, since the requests together need more than there is."""

from collections.abc import Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from fettle.dra.allocator.matching import Need, can_serve_all
from tests.conformance.allocation import Answer, answer
from tests.fettle.dra.allocator.cases import (
    DRIVER,
    Raw,
    case,
    claim,
    device,
    everything,
    request,
    slice_,
)

NEEDS = st.lists(
    st.tuples(st.integers(0, 2), st.sets(st.integers(0, 4))).map(lambda n: Need(*n)), max_size=3
)


def plainly(needs: Sequence[Need], shared: set[int]) -> bool:
    """Every way to choose, tried."""
    slots = [number for number, need in enumerate(needs) for _ in range(need.number)]
    for chosen in product(*(sorted(needs[number].candidates) for number in slots)):
        taken = set(zip(slots, chosen, strict=True))
        single = [at for at in chosen if at not in shared]
        if len(taken) == len(slots) and len(set(single)) == len(single):
            return True
    return False


@given(NEEDS, st.sets(st.integers(0, 4)))
def test_needs_are_met_if_there_is_a_way(needs: list[Need], shared: set[int]) -> None:
    assert can_serve_all(needs, shared) == plainly(needs, shared)


def early(asked: Raw) -> Answer:
    return answer(asked, prune=True, max_steps=300)


ALIKE = [device(f"d{i}") for i in range(16)]


def test_claims_that_need_too_many_devices_together_are_known_to_be_impossible() -> None:
    claims = [claim(request(count=n), name=f"c{n}") for n in (7, 8, 2)]
    assert early(case(claims, [slice_(*ALIKE)])).kind == "none"
    assert early(case(claims[:2], [slice_(*ALIKE)])).kind == "allocated"


def test_claims_that_compete_for_the_few_devices_of_a_value_are_known_to_be_impossible() -> None:
    racks = [device(f"d{i}", {f"{DRIVER}/rack": i % 4}) for i in range(16)]
    together = ({"matchAttribute": f"{DRIVER}/rack"},)
    most = claim(request(count=13))
    few = claim(request(count=3), constraints=together, name="d")
    assert early(case([few, most], [slice_(*racks)])).kind == "allocated"
    assert early(case([most, few, claim(request(), name="e")], [slice_(*racks)])).kind == "none"


def counted(name: str, value: int, counters: str = "set") -> Raw:
    consumed = [{"counterSet": counters, "counters": {"slices": {"value": str(value)}}}]
    return device(name, consumesCounters=consumed)


def partitioned(left: int) -> list[Raw]:
    shared: Raw = {"name": "set", "counters": {"slices": {"value": str(left)}}}
    parts = [counted(f"d{i}", 2 + i % 2) for i in range(12)]
    return [slice_(*parts, of=2), slice_(name="t", of=2, sharedCounters=[shared])]


def test_counters_that_even_the_smallest_partitions_exhaust_are_known_to_be_too_small() -> None:
    claims = [claim(request(count=4), name=name) for name in "ab"]
    assert early(case(claims, partitioned(15))).kind == "none"


def test_partitions_that_exceed_the_counters_alone_do_not_count() -> None:
    parts = [counted(f"d{i}", 2 + i % 2 * 90, f"set-{i % 8}") for i in range(64)]
    sets = [{"name": f"set-{i}", "counters": {"slices": {"value": "90"}}} for i in range(8)]
    gpus = [slice_(*parts, of=2), slice_(name="t", of=2, sharedCounters=sets)]
    assert early(case([claim(request(count=32))], gpus)).kind == "allocated"
    assert (
        early(case([claim(request(count=31)), claim(request(count=2), name="e")], gpus)).kind
        == "none"
    )


def test_partitions_may_use_what_others_add_to_counters() -> None:
    """No driver publishes such a thing, and nothing forbids it."""
    parts = [counted("d0", -5), *(counted(f"d{i}", 12) for i in range(1, 9))]
    shared: Raw = {"name": "set", "counters": {"slices": {"value": "10"}}}
    wanted = [claim(request(count=1), name="a"), claim(request(count=1), name="b")]
    pools = [slice_(*parts, of=2), slice_(name="t", of=2, sharedCounters=[shared])]
    assert early(case(wanted, pools)).kind == answer(case(wanted, pools)).kind == "allocated"


def test_if_one_of_interchangeable_devices_fails_the_others_are_skipped() -> None:
    """Two attributes that each go together, and never at once: no bound sees that."""
    crossed = [
        device(f"d{i}", {f"{DRIVER}/rack": i % 2, f"{DRIVER}/numa": i // 2 % 2}) for i in range(48)
    ]
    both = tuple({"matchAttribute": f"{DRIVER}/{name}"} for name in ("rack", "numa"))
    asked = case([claim(request(count=13), constraints=both)], [slice_(*crossed)])
    assert answer(asked, max_steps=3000).kind == "undecided"
    assert answer(asked, max_steps=3000, prune=True).kind == "none"


def test_with_mode_all_and_a_constraint_nothing_is_skipped() -> None:
    """With one device an error, with another of its class nothing at all."""
    kinds = [device(f"d{i}", {f"{DRIVER}/numa": 0}) for i in range(4)]
    wanted = [request(count=2), everything("all")]
    constraint = {"requests": ["all"], "matchAttribute": "other.example.com/numa"}
    asked = case([claim(*wanted, constraints=(constraint,))], [slice_(*kinds)])
    patient, hasty = answer(asked), answer(asked, prune=True)
    assert patient.kind == hasty.kind == "error"
