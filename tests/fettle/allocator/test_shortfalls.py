"""The words for why nothing can be allocated on a node."""

from typing import Any

import msgspec
import pytest

from fettle.allocator import AMPLE, Found, allocate, run, shortfall
from fettle.amounts import amount
from fettle.asks.claims import ALL, Alternative, Claim, Constraint, Request
from fettle.model import DeviceId
from fettle.published import Capacity, Published
from fettle.selectors.outcomes import MATCH, NO_MATCH, Outcome, would_abort
from fettle.view import DeviceView, PoolView
from fettle.wire import resource
from fettle.wire.resource import DeviceAttribute, DeviceTaint
from tests.fettle import building as b

GPU = 'device.driver == "gpu.example.com"'
XID = (DeviceTaint(key="xid", effect="NoSchedule"),)


def match(expression: str, device: DeviceView) -> Outcome:
    return MATCH if device.id.driver in expression else NO_MATCH


def request(name: str = "g", count: int = 1, **fields: Any) -> Request:
    fields = {"selectors": (GPU,), "count": count, **fields}
    return Request(name, (Alternative(name, b.DRIVER, **fields),))


def why(*pools: PoolView, requests: tuple[Request, ...], **fields: Any) -> str:
    claims = (Claim("k", requests, **fields),)
    found = allocate(claims, pools, match, budget=AMPLE)
    assert found.found is Found.NONE or found.on_node, found
    return run(shortfall(claims, pools, match))


def partition(name: str, takes: int) -> DeviceView:
    consumes = (resource.DeviceCounterConsumption(counter_set="set"),)
    published = Published(
        id=DeviceId(b.DRIVER, "n", name),
        device=resource.Device(name=name, consumes_counters=consumes),
        consumes=((("set", "slices"), takes),),
    )
    return DeviceView(published, (), b.health(1.0))


def nic(size: str, used: str = "0") -> DeviceView:
    capacities = {"bw": Capacity(amount(size), None)}
    raw = resource.Device(name="nic", allow_multiple_allocations=True)
    id_ = DeviceId(b.DRIVER, "n", "nic")
    published = Published(id_, raw, capacities=capacities, plain=False)
    return DeviceView(
        published, (), b.health(1.0), shared=used != "0", consumed={"bw": amount(used).nano}
    )


def test_devices_that_match_are_counted_by_what_keeps_them_away() -> None:
    held = (b.device(f"h{i}", allocated=True) for i in range(6))
    tainted = (b.device(f"t{i}", taints=XID) for i in range(2))
    said = why(b.pool(*held, *tainted), requests=(request(),))
    assert said == "k/g: 1 requested, 8 devices match: 6 allocated, 2 tainted (xid)"


def test_too_few_of_them_are_too_few() -> None:
    said = why(b.pool(b.device("a")), requests=(request(count=2),))
    assert said == "k/g: 2 requested, 1 device matches"


def test_a_device_in_use_on_which_the_selector_fails_is_only_in_use() -> None:
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
        assert run(shortfall(claims, (b.pool(*held, *devices),), failing)) == said


def test_an_error_names_the_claim_beside_the_request() -> None:
    def failing(_expression: str, _device: DeviceView) -> Outcome:
        return would_abort("no such key")

    claims = [Claim(name, (request(),)) for name in ("left", "right")]
    found = allocate(claims, [b.pool(b.device("a"))], failing, budget=AMPLE)
    assert found.reason == f"left/g on {b.DRIVER}/n/a: no such key"
    missing = Claim("right", (request(error="device class nosuch does not exist"),))
    found = allocate([claims[0], missing], [b.pool(b.device("a"))], match, budget=AMPLE)
    assert found.reason == "right/g: device class nosuch does not exist"


def test_mode_all_minds_every_device() -> None:
    said = why(b.pool(b.device("a"), b.device("b", taints=XID)), requests=(request(mode=ALL),))
    assert said == "k/g: all requested, 2 devices match: 1 tainted (xid)"


def test_a_node_without_such_devices_says_so() -> None:
    assert why(requests=(request(),)) == "k/g: there are no devices here"
    other = b.pool(b.device("x", driver="nic.example.com"))
    assert why(other, requests=(request(),)) == "k/g: no device on this node matches"


def test_a_pool_that_waits_for_slices_is_named() -> None:
    pool = PoolView(b.DRIVER, "n4", incomplete=True, slices=(1, 2))
    said = why(pool, requests=(request(),))
    assert said == "k/g: there are no devices here; pool n4 is incomplete: 1 of 2 slices"


def test_an_invalid_pool_is_named_with_its_fault_unless_it_is_another_drivers() -> None:
    pool = PoolView(b.DRIVER, "n5", invalid="duplicate device name gpu-0")
    said = why(pool, requests=(request(),))
    assert said == "k/g: there are no devices here; pool n5 is invalid: duplicate device name gpu-0"
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
def test_capacity_that_is_not_there_is_told(
    device: DeviceView, wanted: dict[str, str], said: str
) -> None:
    capacity = tuple((name, amount(text)) for name, text in wanted.items())
    found = why(b.pool(device), requests=(request(capacity=capacity),))
    assert found == f"k/g: 1 requested, 1 device matches: 1 {said}"


def test_counters_that_are_used_up_are_told_with_their_pool() -> None:
    pool = msgspec.structs.replace(b.pool(partition("a", 3)), counters={("set", "slices"): 2})
    said = why(pool, requests=(request(),))
    assert said.endswith("1 for which the counters of pool n do not suffice")


def test_counters_that_do_not_suffice_for_all_together_are_told() -> None:
    devices = (partition("a", 3), partition("b", 3))
    pool = msgspec.structs.replace(b.pool(*devices), counters={("set", "slices"): 4})
    said = why(pool, requests=(request(count=2),))
    assert said == "too few devices fit together (counters of pool n)"


def test_an_attribute_that_devices_do_not_share_or_do_not_have_is_named() -> None:
    numa = [{"numa": DeviceAttribute(int_=i)} for i in range(2)]
    pool = b.pool(b.device("a", attributes=numa[0]), b.device("b", attributes=numa[1]))
    constraint = Constraint(f"{b.DRIVER}/numa")
    said = why(pool, requests=(request(count=2),), constraints=(constraint,))
    assert said == f"too few devices satisfy the constraint on {b.DRIVER}/numa"
    bare = b.pool(b.device("a"), b.device("b"))
    said = why(bare, requests=(request(count=2),), constraints=(constraint,))
    assert said.startswith(f"k/g: no matching device has the attribute {b.DRIVER}/numa")


def test_requests_that_want_the_same_device_are_told_from_those_that_find_none() -> None:
    said = why(b.pool(b.device("a")), requests=(request("x"), request("y")))
    assert said == "not all requests can be met together (they compete for the same devices)"
    many = why(b.pool(b.device("a")), requests=(request("x"), request("y", 3)))
    assert many == "k/y: 3 requested, 1 device matches"


def test_capacity_that_does_not_suffice_for_all_together_is_told() -> None:
    capacity = (("bw", amount("6")),)
    requests = (request("x", capacity=capacity), request("y", capacity=capacity))
    said = why(b.pool(nic("10")), requests=requests)
    assert said == f"not all requests can be met together (capacity of {b.DRIVER}/n/nic)"


def test_alternatives_that_fail_alike_are_told_once() -> None:
    listed = tuple(Alternative(f"g/{n}", b.DRIVER, (GPU,), count=n) for n in (2, 3, 4))
    pool = PoolView(b.DRIVER, "n4", incomplete=True, slices=(1, 2))
    said = why(pool, requests=(Request("g", listed, listed=True),))
    assert said == (
        "k/g/2, k/g/3, k/g/4: there are no devices here; pool n4 is incomplete: 1 of 2 slices"
    )
