"""What comes of asking the allocator, case by case."""

import pytest

from tests.conformance.allocation import answer
from tests.fettle.dra.allocator.cases import (
    Raw,
    asked,
    case,
    claim,
    device,
    everything,
    first_available,
    given,
    request,
    selecting,
    slice_,
    wanted,
)

A, B, C = device("a"), device("b"), device("c")
TAINTED = device("t", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])


# -- modes and limits


def test_mode_all_allocates_every_device_that_matches() -> None:
    odd = selecting('"odd" in device.attributes["gpu.example.com"]')
    devices = [device("a", {"odd": True}), device("b"), device("c", {"odd": True})]
    assert given([claim(everything(selectors=odd))], [slice_(*devices)]) == "a c"


def test_mode_all_finds_nothing_while_one_of_the_devices_is_in_use() -> None:
    busy = [["gpu.example.com", "p", "b"]]
    assert given([claim(everything())], [slice_(A, B)], allocatedDevices=busy) == "none"


def test_mode_all_finds_nothing_if_no_device_matches() -> None:
    assert given([claim(everything())], [slice_()]) == "none"


def test_mode_all_is_an_error_while_a_pool_is_being_updated() -> None:
    waiting = slice_(B, name="t", pool="q", of=2)
    assert given([claim(everything())], [slice_(A), waiting]) == "error"
    assert given([claim(request())], [slice_(A), waiting]) == "a"


@pytest.mark.parametrize(
    ("counts", "outcome"), [((32,), "none"), ((33,), "error"), ((20, 13), "error")]
)
def test_a_claim_holds_at_most_32_devices(counts: tuple[int, ...], outcome: str) -> None:
    requests = [request(f"r{i}", count) for i, count in enumerate(counts)]
    assert given([claim(*requests)], [slice_(A)]) == outcome


def test_an_alternative_that_is_too_large_gives_way_to_a_smaller_one() -> None:
    many = [device(f"d{i:02}") for i in range(40)]
    requests = (request("x", 20), first_available("y", all=wanted(20), few=wanted(2)))
    said = asked([claim(*requests)], [slice_(*many)])
    assert [r["request"] for r in said.results[0]["devices"]["results"]][-2:] == ["y/few", "y/few"]


def test_alternatives_are_tried_in_their_order() -> None:
    big = wanted(selectors=selecting('"big" in device.attributes["gpu.example.com"]'))
    requests = claim(first_available(big=big, any=wanted()))
    assert given([requests], [slice_(A, device("b", {"big": True}))]) == "b"
    assert given([requests], [slice_(A)]) == "a"


def test_a_claim_without_requests_gets_nothing() -> None:
    assert asked([claim(request(count=0))], [slice_(A)]).kind == "allocated"
    assert asked([], []).kind == "allocated"


# -- who may take what


def test_a_tainted_device_is_only_allocated_to_requests_that_tolerate_it() -> None:
    slices = [slice_(TAINTED, A)]
    assert given([claim(request())], slices) == "a"
    tolerant = request(tolerations=[{"key": "k", "operator": "Exists"}])
    assert given([claim(tolerant)], slices) == "t"
    other = request(tolerations=[{"key": "k", "operator": "Equal", "value": "w"}])
    assert given([claim(other)], slices) == "a"


def test_taints_without_a_known_effect_do_not_prevent_allocation() -> None:
    told = device("t", taints=[{"key": "k", "effect": "None"}, {"key": "k", "effect": "Newer"}])
    assert given([claim(request())], [slice_(told)]) == "t"


def test_admin_access_shares_a_device_in_use_but_not_within_its_claim() -> None:
    busy = [["gpu.example.com", "p", "a"]]
    admin = request(adminAccess=True)
    assert given([claim(admin)], [slice_(A, B)], allocatedDevices=busy) == "a"
    assert given([claim(request(), request("s", adminAccess=True))], [slice_(A, B)]) == "a b"
    two = [claim(request()), claim(admin, name="d")]
    assert given(two, [slice_(A, B)]) == "a a"


def test_a_claim_that_comes_later_can_make_an_earlier_one_choose_again() -> None:
    picky = request(selectors=selecting('"only" in device.attributes["gpu.example.com"]'))
    slices = [slice_(device("a", {"only": 1}), B)]
    assert given([claim(request()), claim(picky, name="d")], slices) == "b a"


# -- constraints


def pair(**constraint: object) -> list[Raw]:
    return [claim(request("x"), request("y"), constraints=(dict(constraint),))]


NUMA = [slice_(device("a", {"numa": 0}), device("b", {"numa": 1}), device("c", {"numa": 0}))]


def test_matching_devices_share_a_value() -> None:
    assert given(pair(matchAttribute="gpu.example.com/numa"), NUMA) == "a c"


def test_distinct_devices_have_different_values() -> None:
    assert given(pair(distinctAttribute="gpu.example.com/numa"), NUMA) == "a b"


def test_a_constraint_may_concern_only_some_requests() -> None:
    only_x = pair(matchAttribute="gpu.example.com/numa", requests=["x"])
    assert given(only_x, NUMA) == "a b"


def test_a_device_without_the_attribute_satisfies_no_constraint() -> None:
    assert given(pair(matchAttribute="gpu.example.com/rack"), NUMA) == "none"


def test_values_of_different_types_do_not_match_and_are_distinct() -> None:
    slices = [slice_(device("a", {"x": 1}), device("b", {"x": "1"}))]
    assert given(pair(matchAttribute="gpu.example.com/x"), slices) == "none"
    assert given(pair(distinctAttribute="gpu.example.com/x"), slices) == "a b"


def test_mode_all_that_contradicts_a_constraint_is_an_error() -> None:
    constraint = {"matchAttribute": "gpu.example.com/numa"}
    assert given([claim(everything(), constraints=(constraint,))], NUMA) == "error"


def test_lists_match_if_they_have_a_value_in_common() -> None:
    slices = [
        slice_(
            device("a", {"x": {"strings": ["p", "q"]}}),
            device("b", {"x": {"strings": ["r"]}}),
            device("c", {"x": "q"}),
        )
    ]
    gates = case([], [])["features"] + ["DRAListTypeAttributes"]
    matching = pair(matchAttribute="gpu.example.com/x")
    assert given(matching, slices, features=gates) == "a c"
    assert given(matching, slices) == "none"
    assert given(pair(distinctAttribute="gpu.example.com/x"), slices, features=gates) == "a b"


# -- shared counters


def partitions(*needs: int, total: int = 4) -> list[Raw]:
    """One slice with the counter, one with devices a, b, … that take so much of it."""
    sets = [{"name": "gpu", "counters": {"slices": {"value": str(total)}}}]
    devices = [
        device(
            "abcdef"[i],
            consumesCounters=[{"counterSet": "gpu", "counters": {"slices": {"value": str(n)}}}],
        )
        for i, n in enumerate(needs)
    ]
    return [slice_(name="counters", of=2, sharedCounters=sets), slice_(*devices, of=2)]


def test_partitions_are_allocated_until_their_counters_are_exhausted() -> None:
    assert given([claim(request(count=2))], partitions(3, 2, 1)) == "a c"
    assert given([claim(request(count=3))], partitions(3, 2, 1)) == "none"


def test_allocated_partitions_have_consumed_their_counters() -> None:
    busy = [["gpu.example.com", "p", "a"]]
    assert given([claim(request())], partitions(3, 2, 1), allocatedDevices=busy) == "c"


def test_a_device_that_consumes_an_unknown_counter_makes_its_pool_invalid() -> None:
    wrong = device("a", consumesCounters=[{"counterSet": "no", "counters": {"x": {"value": "1"}}}])
    assert given([claim(request())], [slice_(wrong)]) == "error"
    assert given([claim(request())], [slice_(wrong), slice_(B, name="t", pool="q")]) == "b"


# -- consumable capacity


def shared(**capacity: object) -> Raw:
    return device("a", allowMultipleAllocations=True, capacity={"memory": capacity})


def memory(amount: str, name: str = "r") -> Raw:
    return request(name, capacity={"requests": {"memory": amount}})


def test_shares_of_a_device_add_up_to_its_capacity() -> None:
    requests = (memory("3Gi", "x"), memory("5Gi", "y"))
    assert given([claim(*requests)], [slice_(shared(value="8Gi"))]) == "a a"
    assert given([claim(*requests)], [slice_(shared(value="7Gi"))]) == "none"


def test_without_the_gate_a_shareable_device_is_allocated_once() -> None:
    gates = [g for g in case([], [])["features"] if g != "DRAConsumableCapacity"]
    slices = [slice_(shared(value="8Gi"))]
    for wants in ([claim(request("x"), request("y"))], [claim(request()), claim(request())]):
        assert given(wants, slices, features=gates) == "none"
        assert given(wants, slices) == "none", "all of it, where no request says how much"


def test_shares_of_other_claims_count() -> None:
    used = [{"id": ["gpu.example.com", "p", "a"], "capacity": {"memory": "6Gi"}}]
    slices = [slice_(shared(value="8Gi"))]
    assert given([claim(memory("3Gi"))], slices, allocatedCapacity=used) == "none"
    assert given([claim(memory("2Gi"))], slices, allocatedCapacity=used) == "a"


@pytest.mark.parametrize(
    ("policy", "asked_for", "consumed"),
    [
        ({"default": "2", "validRange": {"min": "2", "step": "2"}}, "3", 4),
        ({"default": "2", "validRange": {"min": "2", "step": "2"}}, "1", 2),
        ({"default": "2", "validRange": {"min": "2", "max": "4"}}, "5", None),
        ({"default": "1", "validValues": ["1", "4"]}, "2", 4),
        ({"default": "1", "validValues": ["1", "4"]}, "5", None),
        ({"default": "3"}, None, 3),
        (None, None, 8),
    ],
)
def test_a_request_policy_decides_how_much_a_request_consumes(
    policy: Raw | None, asked_for: str | None, consumed: int | None
) -> None:
    more = {"requestPolicy": policy} if policy is not None else {}
    wants = memory(asked_for) if asked_for is not None else request()
    said = asked([claim(wants)], [slice_(shared(value="8", **more))])
    if consumed is None:
        assert said.kind == "none"
    else:
        (result,) = said.results[0]["devices"]["results"]
        assert result["consumedCapacity"] == {"memory": consumed * 10**9}


def test_a_request_for_a_capacity_that_the_device_lacks_is_not_met() -> None:
    assert given([claim(memory("1"))], [slice_(A)]) == "none"


def test_negative_and_too_large_amounts_are_errors() -> None:
    stepped = {"default": "1", "validRange": {"min": "0", "step": "1"}}
    assert given([claim(memory("-1"))], [slice_(shared(value="8"))]) == "error"
    too_much = [claim(memory("10000000000000000000"))]
    assert given(too_much, [slice_(shared(value="8", requestPolicy=stepped))]) == "error"


@pytest.mark.parametrize(("step", "outcome"), [("1", "none"), ("2", "error")])
def test_the_largest_possible_amount_is_only_an_error_if_it_is_rounded_up(
    step: str, outcome: str
) -> None:
    stepped = {"default": "0", "validRange": {"min": "0", "step": step}}
    largest = [claim(memory(str(2**63 - 1)))]
    assert given(largest, [slice_(shared(value="8", requestPolicy=stepped))]) == outcome


@pytest.mark.parametrize("range_", [{"min": "-5", "step": "1"}, {"min": "1", "step": "0"}], ids=str)
def test_a_request_policy_that_cannot_be_computed_is_undecided(range_: Raw) -> None:
    odd = shared(value="8", requestPolicy={"default": "1", "validRange": range_})
    assert given([claim(memory("2"))], [slice_(odd)]) == "undecided"


# -- errors, and what is not modelled


@pytest.mark.parametrize(
    "odd",
    [
        request(deviceClassName="missing"),
        request(deviceClassName=""),
        request(allocationMode=""),
        request(allocationMode="Some"),
        request(selectors=[{}]),
        request(selectors=selecting("device.nonsense")),
        request(selectors=selecting('device.attributes["gpu.example.com"].missing == 1')),
        request(derivedAttributes=[{"name": "x/y", "expression": "1"}]),
    ],
    ids=str,
)
def test_a_claim_on_which_kubernetes_fails_is_an_error(odd: Raw) -> None:
    assert given([claim(odd)], [slice_(A)]) == "error"


def test_only_devices_that_the_search_reaches_cause_errors() -> None:
    touchy = selecting('device.attributes["gpu.example.com"].x == 1')
    slices = [slice_(device("a", {"x": 1}), B)]
    assert given([claim(request(selectors=touchy))], slices) == "a"
    busy = [["gpu.example.com", "p", "b"]]
    assert given([claim(request(count=2, selectors=touchy))], slices, allocatedDevices=busy) == (
        "none"
    )


@pytest.mark.parametrize(
    "odd",
    [
        slice_(device("a", newField=1)),
        slice_(A, newField=1),
        slice_(device("a", {"x": {"newType": 1}})),
        slice_(device("a", capacity={"memory": {"value": "much"}})),
        slice_(device("a", capacity={"memory": {"value": 1.5}})),
    ],
    ids=lambda odd: str(odd["spec"]["devices"]),
)
def test_quantities_that_fettle_cannot_parse_are_undecided(odd: Raw) -> None:
    assert given([claim(request())], [odd]) == "undecided"


def test_a_request_with_an_unknown_field_is_undecided() -> None:
    said = asked([claim(request(shiny=True))], [slice_(A)])
    assert said.kind == "undecided"
    assert "shiny" in said.reason


@pytest.mark.parametrize(
    ("gate", "claim_"),
    [
        ("DRAPrioritizedList", claim(first_available(a=wanted()))),
        ("DRAAdminAccess", claim(request(adminAccess=False))),
        ("DRAConsumableCapacity", claim(memory("1"))),
    ],
)
def test_a_request_that_needs_a_gate_that_is_off_is_an_error(gate: str, claim_: Raw) -> None:
    gates = [g for g in case([], [])["features"] if g != gate]
    slices = [slice_(shared(value="8"))]
    assert given([claim_], slices, features=gates) == "error"
    assert given([claim_], slices) == "a"


def test_pools_with_binding_conditions_come_last() -> None:
    waiting = slice_(device("a", bindingConditions=["ready"]), pool="a")
    said = asked([claim(request(count=2))], [waiting, slice_(B, name="t", pool="b")])
    results = said.results[0]["devices"]["results"]
    assert [r["device"] for r in results] == ["b", "a"]
    assert results[1]["bindingConditions"] == ["ready"]


def test_a_node_selector_with_two_terms_cannot_be_part_of_an_allocation() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    selector = {"nodeSelectorTerms": [term, term]}
    assert given([claim(request())], [slice_(A, nodeSelector=selector)]) == "error"


def test_a_search_beyond_its_budget_is_undecided() -> None:
    many = [device(f"d{i}", {"x": i % 2}) for i in range(20)]
    impossible = case(
        [claim(request(count=10), request("s", selectors=selecting("false")))], [slice_(*many)]
    )
    assert answer(impossible, max_steps=500).kind == "undecided"
    assert answer(impossible, max_steps=500, prune=True).kind == "none"
