"""What hardly any case of `requests` has: a case is changed for each such topic that it is about.

Still within what the API server accepts, unless `requests.MALFORMED` has the topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from tests.oracle.expressions import Grammar
from tests.oracle.fleets import DRIVERS, KEYS, NODE, POOLS, Json
from tests.oracle.pairs import pairs

COUNTERS = ("mem", "sm", "enc", "dec")
STEPS = ("1", "3", "256Mi", "512Mi", "1Gi")
SIZES = (
    *("0", "1", "2", "3", "500m", "1500m", "100m", "1n", "1e3", "1024", "2Ki", "9", "40e9", "1E"),
    *("1Gi", "1536Mi", "2G", "8Gi", "0.5Gi", "16Gi", "7.5Gi"),
)
"""Whole and not, around each other and far apart."""


def _devices(case: Json) -> Iterator[Json]:
    for slice_ in case["slices"]:
        yield from slice_["spec"].get("devices") or ()


def _requests(case: Json) -> Iterator[Json]:
    for claim in case["claims"]:
        yield from claim["spec"]["devices"]["requests"]


def wanted_by(case: Json) -> Iterator[Json]:
    """Requests, and the alternatives of those that have some."""
    for request in _requests(case):
        yield from [request["exactly"]] if "exactly" in request else request["firstAvailable"]


def _qualified(random: Random, case: Json) -> None:
    """Capacities by their full names, in slices and in requests, not always the same ones."""
    domain = random.choice(("example.com", *DRIVERS[:2]))
    written = [device["capacity"] for device in _devices(case) if random.random() < 0.5]
    written += [w["capacity"]["requests"] for w in wanted_by(case) if w.get("capacity")]
    for capacities in written:
        for name in list(capacities):
            if random.random() < 0.6:
                capacities[f"{domain}/{name}"] = capacities.pop(name)


def _sizes(random: Random, case: Json) -> None:
    """Request policies of all forms, and amounts that do or do not suit them."""
    for device in _devices(case):
        if random.random() < 0.5:
            device["allowMultipleAllocations"] = True
        for name in device["capacity"]:
            if random.random() < 0.6:
                device["capacity"][name] = {"value": random.choice(SIZES)}
                if random.random() < 0.8:
                    device["capacity"][name]["requestPolicy"] = _policy(random)
    for wanted in wanted_by(case):
        if random.random() < 0.6:
            names = random.sample(("memory", "lanes"), random.randint(0, 2))
            requested = {name: random.choice(SIZES) for name in names}
            wanted["capacity"] = {"requests": requested}


def _policy(random: Random) -> Json:
    policy: Json = {"default": random.choice(SIZES)}
    match random.randrange(3):
        case 0:
            policy["validValues"] = random.sample(SIZES, random.randint(1, 6))
        case 1:
            policy["validRange"] = {"min": random.choice(SIZES)}
            if random.random() < 0.5:
                policy["validRange"]["max"] = random.choice(SIZES)
            if random.random() < 0.5:
                policy["validRange"]["step"] = random.choice(STEPS)
        case _:
            pass
    return policy


def _ties(random: Random, case: Json) -> None:
    """Several constraints on some of the requests and alternatives of a claim."""
    drivers = _drivers(case)
    for claim in case["claims"]:
        devices = claim["spec"]["devices"]
        known = [request["name"] for request in devices["requests"]]
        known += [
            f"{request['name']}/{each['name']}"
            for request in devices["requests"]
            for each in request.get("firstAvailable", ())
        ]
        devices["constraints"] = [_tie(random, drivers, known) for _ in range(random.randint(1, 4))]


def _tie(random: Random, drivers: Sequence[str], known: Sequence[str]) -> Json:
    bare = random.choice(("numa", "model", "sound", "firmware", "roots", "rack", "nosuch"))
    domain = random.choice((*drivers, *drivers, "example.com"))
    kind = random.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
    made: Json = {kind: f"{domain}/{bare}"}
    if random.random() < 0.7:
        made["requests"] = random.sample(known, random.randint(1, len(known)))
    return made


def _values(random: Random, case: Json) -> None:
    """Lists of all types, with values that repeat, beside single ones."""
    for device in _devices(case):
        for _ in range(random.randint(1, 2)):
            device["attributes"][random.choice((*device["attributes"], "roots"))] = _value(random)


def _value(random: Random) -> Json:
    kind, values = random.choice(
        (
            ("bool", (True, False)),
            ("int", (0, 1, 2, 3)),
            ("string", ("w", "x", "y", "z")),
            ("version", ("1.0.0", "1.0.0+b", "2.0.0")),
        )
    )
    if random.random() < 0.3:
        return {kind: random.choice(values)}
    return {f"{kind}s": random.choices(values, k=random.randint(1, 4))}


def _parts(random: Random, case: Json) -> None:
    """Counters of several sets in several slices; shared devices draw on them too."""
    pools: defaultdict[tuple[str, str, int], list[Json]] = defaultdict(list)
    for slice_ in case["slices"]:
        spec = slice_["spec"]
        pools[spec["driver"], spec["pool"]["name"], spec["pool"]["generation"]].append(spec)
    for specs in pools.values():
        if any("sharedCounters" in spec for spec in specs):
            continue
        sets = [_counter_set(random, f"set-{i}") for i in range(random.randint(1, 4))]
        for spec in specs:
            for device in spec.get("devices") or ():
                chosen = random.sample(sets, random.randint(0, min(2, len(sets))))
                device["consumesCounters"] = [_drawn(random, each) for each in chosen]
                if random.random() < 0.4:
                    device["allowMultipleAllocations"] = True
        where = {
            k: v for k, v in random.choice(specs).items() if k in ("nodeName", "nodeSelector")
        } or {"allNodes": True}
        pool = specs[0]["pool"]
        made = [sets[::2], sets[1::2]] if random.random() < 0.5 and len(sets) > 1 else [sets]
        added = [
            {"driver": specs[0]["driver"], "pool": dict(pool), **where, "sharedCounters": some}
            for some in made
        ]
        stated = pool["resourceSliceCount"] + len(added)
        for spec in (*specs, *added):
            spec["pool"]["resourceSliceCount"] = stated
        taken = len(case["slices"])
        case["slices"] += [
            {"metadata": {"name": f"counters-{taken + i}"}, "spec": spec}
            for i, spec in enumerate(added)
        ]


def _counter_set(random: Random, name: str) -> Json:
    amounts = ("0", "1", "2", "3", "5", "8", "500m", "2500m", "1Gi", "9223372036854775807")
    names = random.sample(COUNTERS, random.randint(1, 4))
    return {"name": name, "counters": {n: {"value": random.choice(amounts)} for n in names}}


def _drawn(random: Random, of: Json) -> Json:
    names = random.sample(sorted(of["counters"]), random.randint(1, len(of["counters"])))
    amounts = ("0", "1", "1", "2", "3", "500m", "1Gi")
    drawn = {name: {"value": random.choice(amounts)} for name in names}
    return {"counterSet": of["name"], "counters": drawn}


def _conditions(random: Random, case: Json) -> None:
    for device in _devices(case):
        if random.random() < 0.5:
            for field in ("bindingConditions", "bindingFailureConditions"):
                device[field] = [f"example.com/c{i}" for i in range(random.randint(1, 4))]
            device["bindsToNode"] = random.random() < 0.3


def _effects(random: Random, case: Json) -> None:
    """Several taints of all effects, and tolerations that name each of their parts or do not."""
    for device in _devices(case):
        if random.random() < 0.5:
            device["taints"] = [_taint(random) for _ in range(random.randint(1, 4))]
    for wanted in wanted_by(case):
        if random.random() < 0.8:
            wanted["tolerations"] = [_toleration(random) for _ in range(random.randint(1, 4))]


def _taint(random: Random) -> Json:
    effects = ("NoSchedule", "NoSchedule", "NoExecute", "None", "Future")
    taint = {"key": random.choice((*KEYS, "x")), "effect": random.choice(effects)}
    if random.random() < 0.6:
        taint["value"] = random.choice(("low", "high"))
    if random.random() < 0.3:
        taint["timeAdded"] = "2026-01-01T00:00:00Z"
    return taint


def _toleration(random: Random) -> Json:
    toleration: Json = {"operator": random.choice(("Exists", "Equal"))}
    if random.random() < 0.8:
        toleration["key"] = random.choice((*KEYS, "x"))
    if random.random() < 0.5:
        toleration["value"] = random.choice(("low", "high", ""))
    if random.random() < 0.5:
        toleration["effect"] = random.choice(("NoSchedule", "NoExecute", "None"))
    if random.random() < 0.3:
        toleration["tolerationSeconds"] = random.choice((0, -1, 60, 2**40))
    return toleration


def _administrators(random: Random, case: Json) -> None:
    for request in _requests(case):
        if "exactly" in request and random.random() < 0.6:
            request["exactly"]["adminAccess"] = random.random() < 0.85
            if random.random() < 0.3:
                request["exactly"]["allocationMode"] = "All"
                request["exactly"].pop("count", None)


def _crowds(random: Random, case: Json) -> None:
    """Pools of many plain devices, and lists of up to eight alternatives, so that the most that a
    claim may be given matters."""
    drivers = _drivers(case)
    for i in range(random.randint(1, 3)):
        number = random.choice((5, 12, 16, 17, 20, 31, 32, 33))
        spec = {
            "driver": random.choice(drivers),
            "pool": {"name": f"many-{i}", "generation": 1, "resourceSliceCount": 1},
            "nodeName": NODE,
            "devices": [
                {"name": f"dev-{k}", "attributes": {}, "capacity": {}} for k in range(number)
            ],
        }
        case["slices"].append({"metadata": {"name": f"many-{i}"}, "spec": spec})
    for request in _requests(case):
        if random.random() < 0.5:
            request.pop("exactly", None)
            several = [
                {"name": f"s{i}", **_many(random, drivers)} for i in range(random.randint(1, 8))
            ]
            request["firstAvailable"] = several
        elif "exactly" in request:
            request["exactly"] = _many(random, drivers)


def _many(random: Random, drivers: Sequence[str]) -> Json:
    wanted: Json = {"deviceClassName": random.choice((*drivers, "any"))}
    if random.random() < 0.35:
        return {**wanted, "allocationMode": "All"}
    count = random.choice((1, 1, 2, 5, 8, 15, 16, 17, 31, 32, 33))
    return {**wanted, "allocationMode": "ExactCount", "count": count}


def _drivers(case: Json) -> list[str]:
    return sorted({slice_["spec"]["driver"] for slice_ in case["slices"]})


def _expressions(random: Random, case: Json) -> None:
    """Selectors by the grammar, some behind a driver's name; most of them fail on some device."""
    grammar = Grammar()
    for wanted in wanted_by(case):
        if random.random() < 0.6:
            made = grammar.expression(random)
            if random.random() < 0.6:
                made = f"device.driver == '{random.choice(DRIVERS)}' || ({made}\n)"
            wanted["selectors"] = [{"cel": {"expression": made}}]


def _strangers(random: Random, case: Json) -> None:
    """Allocated is also what no slice publishes, and shares are without capacity or of others."""
    for i in range(random.randint(1, 4)):
        pool = random.choice((*POOLS, "gone"))
        name = [random.choice(DRIVERS), pool, f"dev-{random.randrange(9)}"]
        if random.random() < 0.4:
            case["allocatedDevices"].append(name)
            continue
        case["allocatedSharedDeviceIDs"].append([*name, f"stranger-{i}"])
        names = random.sample(("memory", "lanes", "nosuch", "example.com/memory"), 2)
        capacity = {each: random.choice(SIZES) for each in names if random.random() < 0.7}
        case["allocatedCapacity"].append({"id": name, "capacity": capacity})


def _gates(random: Random, case: Json) -> None:
    case["features"] = [gate for gate in case["features"] if random.random() < 0.7]


CHANGES: dict[str, Callable[[Random, dict[str, Any]], None]] = {
    "crowds": _crowds,
    "expressions": _expressions,
    "values": _values,
    "parts": _parts,
    "sizes": _sizes,
    "qualified": _qualified,
    "ties": _ties,
    "pairs": pairs,
    "conditions": _conditions,
    "effects": _effects,
    "administrators": _administrators,
    "strangers": _strangers,
    "any-gates": _gates,
}
"""By topic, in the order in which they are made."""
