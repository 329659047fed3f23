"""Fleets of nodes that differ in small things, and demands that may see the difference."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st

from fettle.api import kinds, resource
from fettle.api.meta import ObjectMeta
from fettle.cluster import Inventory, View
from fettle.config import HealthSettings
from fettle.dra import CURRENT, Profile, profile_of_version
from fettle.dra.claims import AllocatedDevice, Claim, claim_of_spec
from fettle.health import HealthBook
from fettle.model import BUILT_IN, DeviceId
from fettle.scheduling.demand import Bound, Demand, Units
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import RULES, Fleet

Raw = dict[str, Any]
GPU, NIC = "gpu.nvidia.com", "nic.example.com"
NO_ORDER = {"DRAConsumableCapacity": False, "DRADeviceBindingConditions": False}
NO_RULES = {"DRADeviceTaintRules": False}
UNORDERED, OLD = profile_of_version("v1.37.1", NO_ORDER), profile_of_version("v1.36.1", NO_RULES)
PROFILES = (
    CURRENT,
    UNORDERED,
    OLD,
    profile_of_version("v1.37.1", NO_RULES | {"DRAListTypeAttributes": True}),
    profile_of_version("v1.35.4", {"DRADeviceTaints": True, "DRAPartitionableDevices": True}),
)
CLASSES = {"any": resource.DeviceClass(metadata=ObjectMeta(name="any"))}


HERE: Raw = {"nodeName": "HERE"}
ELSEWHERE: Raw = {"nodeName": "elsewhere"}


class Pool(NamedTuple):
    """The pool of one driver on a node; `where` are further fields of its slices' spec."""

    driver: str
    devices: tuple[Raw, ...]
    counters: int | None = None
    where: Raw = HERE
    slices: int = 1
    name: str = ""
    missing: int = 0


class Place(NamedTuple):
    """A node: its pools, and what other objects say about the first device of the first pool.

    `held` is "alone", or a "share of 2" of its memory.
    """

    pools: tuple[Pool, ...]
    held: str = ""
    tainted: str = ""
    unreadable: str = ""
    units: int | None = None


def device(name: str, *, counted: bool = False, **fields: Any) -> Raw:
    taken = {"counterSet": "set", "counters": {"c": {"value": "1"}}}
    return {"name": name, **({"consumesCounters": [taken]} if counted else {}), **fields}


def numbered(**attributes: int | None) -> Raw:
    return {"attributes": {k: {"int": v} for k, v in attributes.items() if v is not None}}


def build(places: dict[str, Place], profile: Profile) -> View:
    """The view of nodes with these contents, whose pools are named after them."""
    fleet = Fleet()
    fleet.inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES, profile.features)
    for name, place in places.items():
        node: Raw = {"metadata": {"name": name, "labels": {"host": name}}}
        if place.units is not None:
            node["status"] = {"allocatable": {b.RESOURCE: str(place.units)}}
        fleet.take(kinds.NODE, node)
        for pool in place.pools:
            for slice_ in slices(name, pool):
                fleet.take(kinds.SLICE, slice_)
        if place.pools:
            others_say(fleet, name, place)
    return fleet.look()


def pool_name(node: str, pool: Pool) -> str:
    return pool.name or f"{pool.driver[:3]}-of-{node}"


def slices(node: str, pool: Pool) -> Iterator[Raw]:
    name = pool_name(node, pool)
    size = -(-len(pool.devices) // pool.slices)
    parts: list[Raw] = [
        {"devices": pool.devices[at * size : (at + 1) * size]} for at in range(pool.slices)
    ]
    if pool.counters is not None:
        value = {"value": str(pool.counters)}
        parts.append({"sharedCounters": [{"name": "set", "counters": {"c": value}}]})
    count = {"generation": 1, "resourceSliceCount": len(parts) + pool.missing}
    for number, part in enumerate(parts):
        slice_ = {
            "metadata": {"name": f"{node}-{name}-{pool.driver}-{number}"},
            "spec": {"driver": pool.driver, "pool": {"name": name, **count}, **pool.where, **part},
        }
        text = msgspec.json.encode(slice_).decode()
        yield msgspec.json.decode(text.replace("HERE", node))


def selecting(*more: str) -> Raw:
    """A node selector with a term for this node, and further terms that select nothing."""
    return {"nodeSelector": {"nodeSelectorTerms": [term("host", "HERE"), *(term(m) for m in more)]}}


def term(key: str, value: str = "none") -> Raw:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}


def others_say(fleet: Fleet, node: str, place: Place) -> None:
    pool = place.pools[0]
    named = {"driver": pool.driver, "pool": pool_name(node, pool)}
    result = {"request": "r", "device": pool.devices[0]["name"], **named}
    if place.held.startswith("share of "):
        share = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
        consumed = place.held.removeprefix("share of ")
        result |= {"shareID": share, "consumedCapacity": {"memory": consumed}}
    claim = {
        "metadata": {"name": f"of-{node}", "namespace": "d"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    if place.held:
        fleet.take(kinds.CLAIM, claim)
    if place.unreadable == "claim":
        fleet.take(kinds.CLAIM, {**claim, "spec": {"devices": 5}})
    if place.unreadable == "node":
        fleet.take(kinds.NODE, {"metadata": {"name": node}, "status": 5})
    if place.unreadable == "slice":
        broken = {"driver": pool.driver, "pool": 5, "nodeName": node}
        fleet.take(kinds.SLICE, {"metadata": {"name": f"broken-{node}"}, "spec": broken})
    if place.tainted:
        selector = {**named, "device": result["device"]}
        rule = {"deviceSelector": selector, "taint": taint(place.tainted)}
        fleet.take(kinds.TAINT_RULE, {"metadata": {"name": f"of-{node}"}, "spec": rule})


def taint(key: str) -> Raw:
    key, _, effect = key.partition(":")
    return {"key": key, "value": "79", "effect": effect}


# -- wild ones: nodes after one or two models, each changed a little

XID, WARM = "gpu.nvidia.com/xid:None", "example.org/warm:NoSchedule"


@st.composite
def devices(draw: st.DrawFn, *, counted: bool) -> tuple[Raw, ...]:
    return tuple(
        draw(wild_device(f"gpu-{at}", counted)) for at in range(draw(st.sampled_from([1, 1, 2, 3])))
    )


@st.composite
def wild_device(draw: st.DrawFn, name: str, counted: bool) -> Raw:
    fields = numbered(x=draw(st.sampled_from([1, 1, 2, None])))
    if draw(st.integers(0, 2)) == 0:
        fields["capacity"] = {"memory": {"value": draw(st.sampled_from(["2", "4"]))}}
        fields["allowMultipleAllocations"] = draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        fields["taints"] = [taint(draw(st.sampled_from([XID, WARM])))]
    return device(name, counted=counted, **fields)


@st.composite
def models(draw: st.DrawFn) -> Place:
    counted = draw(st.booleans())
    pools = []
    for driver in (GPU, NIC)[: draw(st.sampled_from([1, 2, 2]))]:
        where = draw(st.sampled_from([HERE, selecting()]))
        counters = draw(st.sampled_from([1, 1, 2])) if counted else None
        pools.append(Pool(driver, draw(devices(counted=counted)), counters, where))
    return Place(tuple(pools))


Change = Callable[[Place], Place]


def first_device(place: Place, **fields: Any) -> Place:
    first, *rest = place.pools[0].devices
    return first_pool(place, devices=({**first, **fields}, *rest))


def first_pool(place: Place, **fields: Any) -> Place:
    first, *rest = place.pools
    return place._replace(pools=(first._replace(**fields), *rest))


def bound_to_one(where: Raw) -> Change:
    return lambda place: first_device(first_pool(place, where=where), bindsToNode=True)


def each_says(first: Raw, rest: Raw) -> Change:
    """The devices of the first pool have their own node selection."""

    def change(place: Place) -> Place:
        one, *more = place.pools[0].devices
        devices = ({**one, **first}, *({**device, **rest} for device in more))
        return first_pool(place, where={"perDeviceNodeSelection": True}, devices=devices)

    return change


def x(value: int) -> Raw:
    return numbered(x=value)


def full(value: int) -> Raw:
    return numbered(**{f"{GPU}/x": value})


def both(bare: int, full: int) -> Raw:
    return numbered(**{"x": bare, f"{GPU}/x": full})


def memory(value: str) -> Raw:
    return {"memory": {"value": value}}


def one_name(place: Place) -> Place:
    """All pools have the same name, whatever their driver."""
    return place._replace(pools=tuple(pool._replace(name="one-of-HERE") for pool in place.pools))


def on(**fields: Any) -> Change:
    return lambda place: first_device(place, **fields)


def of(**fields: Any) -> Change:
    return lambda place: first_pool(place, **fields)


def beside(**fields: Any) -> Change:
    return lambda place: place._replace(**fields)


def alone(place: Place) -> Place:
    return place


OTHERS = "other.example.com/x"
CHANGES: tuple[tuple[Change, ...], ...] = (
    (of(slices=2), of(slices=3), of(missing=1)),
    (of(where=selecting()), of(where=selecting("y")), bound_to_one(selecting("y"))),
    (bound_to_one(HERE), of(where=HERE | {"skipNodeOperations": ["prepare"]})),
    (each_says(HERE, HERE), each_says(HERE, ELSEWHERE), each_says(selecting("y"), HERE)),
    (on(**x(1)), on(**x(2)), on(**full(1)), on(**full(2))),
    (on(**both(1, 2)), on(**both(2, 1)), on(**numbered(x=1, **{OTHERS: 2}))),
    (on(**numbered(**{"x": 1, "/x": 1})), on(**numbered(**{"x": 1, "/x": 2}))),
    (on(attributes={"x": {"version": "one"}}), on(attributes={"x": {}})),
    (on(taints=[taint(WARM)]), beside(tainted=WARM), on(taints=[])),
    (on(taints=[taint(XID)]), beside(tainted=XID), on(taints=[])),
    (on(bindingConditions=["ready"]), on(name="another-name")),
    (on(capacity=memory("1")), on(capacity=memory("3")), on(capacity=memory("none"))),
    (beside(held="alone"), beside(held="share of 1"), beside(held="share of 2")),
    (beside(unreadable="claim"), beside(unreadable="node"), beside(unreadable="slice")),
    (beside(units=0), beside(units=1), beside(units=2)),
    (of(counters=0), of(counters=2), of(driver="tpu.example.com")),
    (one_name, of(counters=1)),
    (one_name, of(missing=0)),
)
"""Nodes may differ in the changes of one line, which are nearly the same."""


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, Place]:
    model = draw(models())
    lines = draw(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=2))
    places = {}
    for name in ("ann", "bob", "cid", "dan"):
        place = model
        for change in draw(st.tuples(*(st.sampled_from((alone, *line)) for line in lines))):
            place = change(place)
        pools = tuple(p._replace(name=p.name.replace("HERE", name)) for p in place.pools)
        places[name] = place._replace(pools=pools)
    return places


CONSTRAINTS = st.sampled_from(
    [
        *[{}] * 5,
        {"matchAttribute": "x"},
        {"matchAttribute": f"{GPU}/x"},
        {"distinctAttribute": f"{GPU}/x"},
        {"distinctAttribute": "x"},
        {"matchAttribute": "/x"},
    ]
)
SELECTORS = (
    f'device.driver == "{GPU}"',
    f'device.attributes["{GPU}"].x == 1',
    f'"x" in device.attributes["{GPU}"]',
    'device.attributes["other.example.com"].x == 2',
)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    wanted: Raw = {"deviceClassName": "any", "count": draw(st.sampled_from([1, 2, 2]))}
    if draw(st.integers(0, 5)) == 0:
        wanted = {"deviceClassName": "any", "allocationMode": "All"}
    if draw(st.integers(0, 3)) == 0:
        wanted["selectors"] = [{"cel": {"expression": draw(st.sampled_from(SELECTORS))}}]
    if draw(st.integers(0, 3)) == 0:
        wanted["tolerations"] = [{"key": WARM.partition(":")[0], "operator": "Exists"}]
    if draw(st.integers(0, 5)) == 0:
        wanted["capacity"] = {"requests": {"memory": "1"}}
    constraint = draw(CONSTRAINTS)
    claim = claim_of(wanted, *([constraint] if constraint else []))
    backed = draw(st.integers(0, 5)) == 0
    held = AllocatedDevice(DeviceId(GPU, "gpu-of-bob", "gpu-0"))
    return Demand(
        BUILT_IN[draw(st.sampled_from(["training", "inference"]))],
        units=(Units(b.RESOURCE, 1, claim.requests),) if backed else (),
        claims=() if backed else (claim,),
        bound=(Bound("bound", (held,)),) if draw(st.integers(0, 7)) == 0 else (),
        in_flight=draw(st.sampled_from([0, 0, 1])),
    )


def claim_of(wanted: Raw, *constraints: Raw) -> Claim:
    content = {"requests": [{"name": "r", "exactly": wanted}], "constraints": list(constraints)}
    raw = msgspec.json.encode({"devices": content})
    return claim_of_spec("k", msgspec.json.decode(raw, type=resource.ResourceClaimSpec), CLASSES)
