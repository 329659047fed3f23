"""Why nothing can be allocated on a node."""

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fettle.api import resource
from fettle.api.resource import DeviceAttribute, DeviceTaint
from fettle.cel import Outcome
from fettle.cel.runtime.protocol import MATCH, NO_MATCH, would_abort
from fettle.dra.allocator import AMPLE, AllocationStatus, Budget, allocate, explain_shortfall
from fettle.dra.allocator.features import CURRENT, Features, Profile, profile_of_version
from fettle.dra.claims import ALL, Alternative, Claim, Constraint, Request
from fettle.dra.pools import DeviceView, PoolView, PublishedCapacity, PublishedDevice
from fettle.dra.quantities import amount
from fettle.model import DeviceId, PoolRef, reasons
from fettle.model.reasons import Obstacles, Reason
from tests.fettle import building as b
from tests.fettle.building import as_text
from tests.fettle.dra.allocator import pairs

GPU = 'device.driver == "gpu.example.com"'
XID = (DeviceTaint(key="xid", effect="NoSchedule"),)
TAINTED = reasons.TaintedByRule(("xid",))
POOL = PoolRef(b.DRIVER, "n")


def match(expression: str, device: DeviceView) -> Outcome:
    return MATCH if device.id.driver in expression else NO_MATCH


def request(name: str = "g", count: int = 1, **fields: Any) -> Request:
    fields = {"selectors": (GPU,), "count": count, **fields}
    return Request(name, (Alternative(name, b.DRIVER, **fields),))


def causes(
    *pools: PoolView, requests: tuple[Request, ...], profile: Profile = CURRENT, **fields: Any
) -> list[Reason]:
    claims = (Claim("k", requests, **fields),)
    found = allocate(claims, pools, match, profile, budget=AMPLE)
    assert found.found is AllocationStatus.NONE or found.on_node, found
    return [*explain_shortfall(claims, pools, match, profile)]


def why(*pools: PoolView, **fields: Any) -> str:
    return as_text(causes(*pools, **fields))


def common(
    requests: str, requested: int, available: int, *obstacles: Obstacles, **fields: Any
) -> Reason:
    """Too few with a common value of `numa`."""
    fields = {"distinct": False, "value": "", **fields}
    return reasons.ConstraintNotMet(
        tuple(requests.split()),
        NUMA,
        requested=requested,
        available=available,
        obstacles=obstacles,
        **fields,
    )


def different(requests: str, requested: int, available: int, *obstacles: Obstacles) -> Reason:
    return common(requests, requested, available, *obstacles, distinct=True)


def partition(name: str, takes: int) -> DeviceView:
    consumes = (resource.DeviceCounterConsumption(counter_set="set"),)
    published = PublishedDevice(
        id=DeviceId(b.DRIVER, "n", name),
        device=resource.Device(name=name, consumes_counters=consumes),
        consumes=((("set", "slices"), takes),),
    )
    return DeviceView(published, (), b.health(1.0))


def nic(size: str, used: str = "0", name: str = "nic") -> DeviceView:
    capacities = {"bw": PublishedCapacity(amount(size), None)}
    raw = resource.Device(name=name, allow_multiple_allocations=True)
    id_ = DeviceId(b.DRIVER, "n", name)
    published = PublishedDevice(id_, raw, capacities=capacities, plain=False)
    return DeviceView(
        published, (), b.health(1.0), shares=int(used != "0"), consumed={"bw": amount(used).nano}
    )


def numa(name: str, *values: object, **fields: Any) -> DeviceView:
    """With the attribute `numa`: one value, a list of numbers, or none."""
    if not values:
        return b.device(name, **fields)
    kind = {int: "int_", str: "string", bool: "bool_"}[type(values[0])]
    numa = {"ints": values} if len(values) > 1 else {kind: values[0]}
    return b.device(name, attributes={"numa": DeviceAttribute(**numa)}, **fields)


NUMA = f"{b.DRIVER}/numa"
SAME, DISTINCT = Constraint(NUMA), Constraint(NUMA, distinct=True)
LISTS = Profile(Features(list_type_attributes=True))


def test_devices_that_match_are_counted_by_obstacle() -> None:
    held = (b.device(f"h{i}", allocated=True) for i in range(6))
    tainted = (b.device(f"t{i}", taints=XID) for i in range(2))
    obstacles = (Obstacles(reasons.DeviceAllocated(), 6), Obstacles(TAINTED, 2))
    assert causes(b.pool(*held, *tainted), requests=(request(),)) == [
        reasons.TooFewDevices(("k/g",), 1, 8, obstacles)
    ]


def test_too_few_matching_devices_are_reported() -> None:
    said = why(b.pool(b.device("a")), requests=(request(count=2),))
    assert said == "k/g: 2 requested, 1 device matches"


def test_a_device_in_use_whose_selector_fails_only_counts_as_in_use() -> None:
    """The scheduler does not look at it either."""

    def failing(expression: str, device: DeviceView) -> Outcome:
        return would_abort("no such key") if device.allocated else match(expression, device)

    other = b.device("x", driver="nic.example.com")
    for devices, said in (
        ((), "k/g: 2 devices are allocated, and no other device on this node matches"),
        ((other,), "k/g: 2 devices are allocated, and no other device on this node matches"),
        ((b.device("c"),), "k/g: 2 requested, 1 device matches"),
    ):
        held = [b.device(name, allocated=True) for name in "ab"]
        claims = (Claim("k", (request(count=2),)),)
        assert as_text(explain_shortfall(claims, (b.pool(*held, *devices),), failing)) == said


def test_an_error_names_the_claim_beside_the_request() -> None:
    def failing(_expression: str, _device: DeviceView) -> Outcome:
        return would_abort("no such key")

    claims = [Claim(name, (request(),)) for name in ("left", "right")]
    found = allocate(claims, [b.pool(b.device("a"))], failing, budget=AMPLE)
    assert as_text(found.reasons) == f"left/g on {b.DRIVER}/n/a: no such key"
    missing = Claim("right", (request(error="device class nosuch does not exist"),))
    found = allocate([claims[0], missing], [b.pool(b.device("a"))], match, budget=AMPLE)
    assert as_text(found.reasons) == "right/g: device class nosuch does not exist"


def test_mode_all_counts_every_device() -> None:
    said = why(b.pool(b.device("a"), b.device("b", taints=XID)), requests=(request(mode=ALL),))
    assert said == "k/g: all requested, 2 devices match: 1 tainted (xid)"


def test_a_node_without_matching_devices_is_reported() -> None:
    assert why(requests=(request(),)) == "k/g: there are no devices here"
    other = b.pool(b.device("x", driver="nic.example.com"))
    assert why(other, requests=(request(),)) == "k/g: no device on this node matches"


def test_an_incomplete_pool_is_named() -> None:
    pool = PoolView(b.DRIVER, "n4", incomplete=True, slices=(1, 2))
    assert causes(pool, requests=(request(),)) == [
        reasons.NoDevices(("k/g",)),
        reasons.PoolNotWhole(PoolRef(b.DRIVER, "n4"), "incomplete: 1 of 2 slices"),
    ]


def test_an_invalid_pool_is_named_with_its_fault_unless_it_is_another_drivers() -> None:
    pool = PoolView(b.DRIVER, "n5", invalid="duplicate device name gpu-0")
    assert causes(pool, requests=(request(),)) == [
        reasons.NoDevices(("k/g",)),
        reasons.PoolNotWhole(PoolRef(b.DRIVER, "n5"), "invalid: duplicate device name gpu-0"),
    ]
    other = msgspec.structs.replace(pool, driver="mig.example.com")
    assert why(other, requests=(request(),)) == "k/g: there are no devices here"


@pytest.mark.parametrize(
    ("device", "wanted", "said"),
    [
        (nic("10"), {"rops": "1"}, "without capacity rops"),
        (nic("10"), {"bw": "11"}, "with too little capacity"),
        (nic("10", used="6"), {"bw": "5"}, "with too little capacity left"),
    ],
    ids=["no such name", "too small", "in use"],
)
def test_a_missing_capacity_is_named(device: DeviceView, wanted: dict[str, str], said: str) -> None:
    capacity = tuple((name, amount(text)) for name, text in wanted.items())
    found = why(b.pool(device), requests=(request(capacity=capacity),))
    assert found == f"k/g: 1 requested, 1 device matches: 1 {said}"


def test_exhausted_counters_are_named_with_their_pool() -> None:
    pool = msgspec.structs.replace(b.pool(partition("a", 3)), counters={("set", "slices"): 2})
    (cause,) = causes(pool, requests=(request(),))
    obstacles = (Obstacles(reasons.CountersExhausted(POOL), 1),)
    assert cause == reasons.TooFewDevices(("k/g",), 1, 1, obstacles)


def test_counters_that_do_not_suffice_for_all_requests_are_named() -> None:
    devices = (partition("a", 3), partition("b", 3))
    pool = msgspec.structs.replace(b.pool(*devices), counters={("set", "slices"): 4})
    assert causes(pool, requests=(request(count=2),)) == [
        reasons.RequestsDoNotFit((reasons.SharedCounters(POOL),), single=True)
    ]


def test_an_attribute_that_devices_do_not_share_or_do_not_have_is_named() -> None:
    numa = [{"numa": DeviceAttribute(int_=i)} for i in range(2)]
    pool = b.pool(b.device("a", attributes=numa[0]), b.device("b", attributes=numa[1]))
    constraint = Constraint(f"{b.DRIVER}/numa")
    found = causes(pool, requests=(request(count=2),), constraints=(constraint,))
    assert found == [common("k/g", 2, 1, value="0")]
    bare = b.pool(b.device("a"), b.device("b"))
    found = causes(bare, requests=(request(count=2),), constraints=(constraint,))
    assert found == [reasons.AttributeMissing("k/g", NUMA)]


def test_requests_that_compete_for_a_device_differ_from_requests_without_one() -> None:
    found = causes(b.pool(b.device("a")), requests=(request("x"), request("y")))
    assert found == [reasons.RequestsDoNotFit()]
    many = why(b.pool(b.device("a")), requests=(request("x"), request("y", 3)))
    assert many == "k/y: 3 requested, 1 device matches"


def test_capacity_that_does_not_suffice_for_all_requests_is_named() -> None:
    capacity = (("bw", amount("6")),)
    requests = (request("x", capacity=capacity), request("y", capacity=capacity))
    shared = reasons.SharedCapacity(DeviceId(b.DRIVER, "n", "nic"))
    assert causes(b.pool(nic("10")), requests=requests) == [reasons.RequestsDoNotFit((shared,))]


def test_alternatives_with_the_same_reason_are_reported_once() -> None:
    listed = tuple(Alternative(f"g/{n}", b.DRIVER, (GPU,), count=n) for n in (2, 3, 4))
    pool = PoolView(b.DRIVER, "n4", incomplete=True, slices=(1, 2))
    assert causes(pool, requests=(Request("g", listed, listed=True),)) == [
        reasons.NoDevices(("k/g/2", "k/g/3", "k/g/4")),
        reasons.PoolNotWhole(PoolRef(b.DRIVER, "n4"), "incomplete: 1 of 2 slices"),
    ]


# -- constraints


def test_obstacles_of_more_devices_with_a_common_value_are_reported() -> None:
    free = (numa("a", 0), numa("b", 0), numa("c", 1), numa("d", 1))
    pool = b.pool(*free, numa("e", 1, taints=XID), numa("f", 0))
    found = causes(pool, requests=(request(count=4),), constraints=(SAME,))
    assert found == [common("k/g", 4, 3, value="0")]
    found = causes(b.pool(*pool.devices[:5]), requests=(request(count=3),), constraints=(SAME,))
    assert found == [common("k/g", 3, 2, Obstacles(TAINTED, 1), value="1")]


def test_the_claim_and_the_requests_of_a_constraint_are_named() -> None:
    pool = b.pool(numa("a", 0), numa("b", 1), numa("c", "x"), numa("d", True))
    other = Claim("other", (request(),))
    constraint = Constraint(NUMA, requests=frozenset(("x", "y")))
    constrained = Claim("k", (request("x"), request("y"), request("z")), (constraint,))
    for claims in ((constrained, other), (other, constrained)):
        found = explain_shortfall(claims, (pool,), match)
        assert [*found] == [common("k/x k/y", 2, 1, value="0")]


def test_devices_without_the_attribute_are_reported() -> None:
    pool = b.pool(numa("a", "x"), numa("b"), numa("c"), numa("d", "x", allocated=True))
    without, held = reasons.AttributeAbsent(), reasons.DeviceAllocated()
    assert causes(pool, requests=(request(count=2),), constraints=(SAME,)) == [
        common("k/g", 2, 1, Obstacles(without, 2), Obstacles(held, 1), value='"x"')
    ]
    pool = b.pool(numa("a"), numa("b", True, taints=XID))
    assert causes(pool, requests=(request(),), constraints=(SAME,)) == [
        common("k/g", 1, 0, Obstacles(TAINTED, 1), Obstacles(without, 1))
    ]


@pytest.mark.parametrize(
    ("claims", "each_pair", "gpus", "nics", "groups", "available", "values"),
    [
        (
            [pairs.claim(8)],
            True,
            range(8),
            [1, 3, 4, 5, 6, 7],
            8,
            6,
            (8, 6, 6),
        ),
        (
            [pairs.claim(3, gpus=2)],
            False,
            [0, 0, 1, 1, 2, 2],
            [0, 1, 1, 3],
            3,
            2,
            (3, 3, 2),
        ),
        (
            [pairs.claim(2), pairs.claim(1)],
            True,
            range(3),
            range(2, 5),
            3,
            1,
            (3, 3, 1),
        ),
    ],
    ids=["pairs", "two GPUs for a NIC", "of several claims"],
)
def test_groups_that_each_agree_on_a_value_are_counted(
    claims: list[Claim],
    each_pair: bool,
    gpus: list[int],
    nics: list[int],
    groups: int,
    available: int,
    values: tuple[int, int, int],
) -> None:
    (found,) = explain_shortfall(claims, pairs.node(gpus, nics), pairs.match)
    assert isinstance(found, reasons.GroupsNotMet)
    assert (len(found.groups), found.available) == (groups, available)
    assert found.pairs is each_pair
    of_gpus, of_nics, together = values
    of_each = (("k/g0", of_gpus), ("k/n0", of_nics))
    assert found.values == reasons.ValuesWithDevices(of_each, together)


def test_obstacles_of_more_pairs_are_reported() -> None:
    gpus, nics = pairs.node(range(4), range(4))
    held = (msgspec.structs.replace(gpus.devices[0], allocated=True), *gpus.devices[1:])
    pools = msgspec.structs.replace(gpus, devices=held), nics
    assert [*explain_shortfall([pairs.claim(4)], pools, pairs.match)] == [
        reasons.GroupsNotMet(
            tuple((f"k/g{i}", f"k/n{i}") for i in range(4)),
            "resource.kubernetes.io/pcieRoot",
            available=3,
            pairs=True,
            values=reasons.ValuesWithDevices((("k/g0", 3), ("k/n0", 4)), 3),
            obstacles=(Obstacles(reasons.DeviceAllocated(), 1),),
        )
    ]


def test_different_values_are_counted() -> None:
    pool = b.pool(*(numa(n, 0) for n in "ab"), numa("c", 1), numa("d", 2, taints=XID))
    found = causes(pool, requests=(request("x", 2), request("y")), constraints=(DISTINCT,))
    assert found == [different("k/x k/y", 3, 2, Obstacles(TAINTED, 1))]


def test_for_lists_the_values_are_counted() -> None:
    pool = b.pool(numa("a", 0, 1), numa("b", 1, 2), numa("c", 2), numa("d", 1, taints=XID))
    found = causes(pool, requests=(request(count=3),), constraints=(SAME,), profile=LISTS)
    assert found == [common("k/g", 3, 2, Obstacles(TAINTED, 1), value="1")]
    pool = b.pool(numa("a", 0, 1), numa("b", 1), numa("c", 0))
    found = causes(pool, requests=(request(count=3),), constraints=(DISTINCT,), profile=LISTS)
    assert found == [different("k/g", 3, 2)]


def test_alternatives_that_need_different_numbers_need_at_least_the_smallest() -> None:
    listed = tuple(Alternative(f"g/{n}", b.DRIVER, (GPU,), count=n) for n in (2, 3, 9))
    pool = b.pool(numa("a", 0), numa("b", 1), numa("c", 2))
    found = causes(pool, requests=(Request("g", listed, listed=True),), constraints=(SAME,))
    assert found == [common("k/g/2 k/g/3", 2, 1, value="0", at_least=True)]


def test_a_constraint_that_may_be_the_cause_is_named_with_its_claim() -> None:
    pool = b.pool(numa("a", 0, 1), numa("b", 1, 2), numa("c", 0, 2))
    found = causes(pool, requests=(request(count=2),), constraints=(DISTINCT,), profile=LISTS)
    shared = reasons.SharedConstraint("k", NUMA, distinct=True)
    assert found == [reasons.RequestsDoNotFit((shared,), single=True)]


# -- shares


def test_a_request_takes_at_most_one_share_of_a_device() -> None:
    wanted = request(count=3, capacity=(("bw", amount("4")),))
    pool = b.pool(nic("8", name="a"), nic("2", name="b"))
    small = Obstacles(reasons.CapacityTooSmall(), 1)
    assert causes(pool, requests=(wanted,)) == [
        reasons.TooFewDevices(("k/g",), 3, 2, (small,), one_share=True)
    ]


def test_mode_all_leaves_out_devices_that_are_too_small() -> None:
    everything = request("x", mode=ALL, capacity=(("bw", amount("4")),))
    pool = b.pool(nic("8", name="a"), nic("2", name="b"))
    said = why(pool, requests=(everything, request("y", 3)))
    assert said.startswith("k/y: 3 requested, 2 devices match")
    small = Obstacles(reasons.CapacityTooSmall(), 1)
    assert causes(b.pool(nic("2", name="a")), requests=(everything,)) == [
        reasons.TooFewDevices(("k/x",), None, 1, (small,))
    ]


def test_taints_of_rules_count_if_the_scheduler_knows_rules() -> None:
    pool = b.pool(b.device("a", taints=XID))
    blind = Profile(Features(device_taint_rules=False))
    said = why(pool, requests=(request(count=2),), profile=blind)
    assert said == "k/g: 2 requested, 1 device matches"


# -- what is told is true

VALUES = st.sampled_from([(), (0,), (0,), (1,), (1,), ("x",), (True,)])
LISTED = st.one_of(VALUES, st.sampled_from([(0, 1), (1, 2), (0, 2)]))
PROFILES = [CURRENT, LISTS, profile_of_version("v1.36.1"), profile_of_version("v1.36.3")]
ANY, EVEN = "any", "even"
EXHAUSTIVE = Budget(steps=200_000, seconds=60.0, prune_after=None)


def by_number(expression: str, device: DeviceView) -> Outcome:
    return NO_MATCH if expression == EVEN and int(device.id.device[1:]) % 2 else MATCH


@st.composite
def requests(draw: st.DrawFn, name: str) -> Request:
    names = draw(st.sampled_from([[name], [name], [f"{name}/a", f"{name}/b"]]))
    alternatives = tuple(
        Alternative(
            each,
            b.DRIVER,
            (draw(st.sampled_from([ANY, EVEN])),),
            count=draw(st.integers(1, 3)),
            capacity=draw(st.sampled_from([None, None, (("bw", amount("2")),)])),
        )
        for each in names
    )
    return Request(name, alternatives, listed=len(names) > 1)


@st.composite
def nodes(draw: st.DrawFn, profile: Profile) -> PoolView:
    values = LISTED if profile.features.list_type_attributes else VALUES
    devices = []
    for number in range(draw(st.integers(2, 6))):
        state: dict[str, Any] = draw(
            st.sampled_from([{}, {}, {}, {"taints": XID}, {"allocated": True}])
        )
        device = numa(f"d{number}", *draw(values), **state)
        devices.append(shareable(device) if draw(st.integers(0, 4)) == 0 else device)
    return b.pool(*devices)


def shareable(device: DeviceView) -> DeviceView:
    raw = msgspec.structs.replace(device.device, allow_multiple_allocations=True)
    capacities = {"bw": PublishedCapacity(amount("4"), None)}
    return msgspec.structs.replace(
        device,
        published=msgspec.structs.replace(
            device.published, device=raw, capacities=capacities, plain=False
        ),
    )


def fits(requests: list[Request], constraint: Constraint, pool: PoolView, profile: Profile) -> bool:
    claims = (Claim("k", tuple(requests), (constraint,)),)
    found = allocate(claims, (pool,), by_number, profile, budget=EXHAUSTIVE).found
    assert found in (AllocationStatus.FITS, AllocationStatus.NONE)
    return found is AllocationStatus.FITS


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(st.data(), st.sampled_from(PROFILES), st.booleans())
def test_no_search_finds_more_devices_with_a_common_value_than_reported(
    data: st.DataObject, profile: Profile, distinct: bool
) -> None:
    pool = data.draw(nodes(profile))
    asked = [data.draw(requests(name)) for name in "xyz"[: data.draw(st.integers(1, 3))]]
    only = data.draw(st.sampled_from([(), ("x",), ("x", "y")]))
    constraint = Constraint(NUMA, distinct=distinct, requests=frozenset(only))
    assume(not fits(asked, constraint, pool, profile))
    claims = (Claim("k", tuple(asked), (constraint,)),)
    told, *_ = explain_shortfall(claims, (pool,), by_number, profile)
    assume(isinstance(told, reasons.ConstraintNotMet))
    assert isinstance(told, reasons.ConstraintNotMet)
    names = {each.removeprefix("k/") for each in told.requests}
    meant = [[a for a in request.alternatives if a.name in names] for request in asked]
    fewest = [min((a.count for a in alternatives), default=0) for alternatives in meant]
    requested, most = told.requested, told.available
    assert most < requested == sum(fewest)

    def reachable(number: int) -> bool:
        """Whether a search finds so many devices for parts of these requests."""
        parts = [
            [None, *((a, count) for a in alternatives for count in range(1, least + 1))]
            for alternatives, least in zip(meant, fewest, strict=True)
        ]
        return any(
            fits([_part(*part) for part in chosen if part], constraint, pool, profile)
            for chosen in product(*parts)
            if sum(part[1] for part in chosen if part) == number
        )

    assert not reachable(most + 1)
    shared = any(device.published.multiple for device in pool.devices)
    listed = any(len(alternatives) > 1 for alternatives in meant)
    exact = not listed and not shared and not (distinct and profile is LISTS)
    assert not exact or reachable(most)


def _part(alternative: Alternative, count: int) -> Request:
    name, *_ = alternative.name.split("/")
    return Request(name, (msgspec.structs.replace(alternative, count=count),))
