"""Random slices: a few drivers and pools with few names, so that they get in each other's way.

Within what the API server accepts, unless `topics` has one of `MALFORMED`.
"""

from __future__ import annotations

from random import Random
from typing import Any

Json = dict[str, Any]

NODE = "node-a"
LABELS = {"zone": "z1", "cards": "3", "rack": "r7"}
DRIVERS = ("gpu.example.com", "nic.example.com", "fpga.example.org")
POOLS = ("pool-a", "pool-b", NODE)
KEYS = ("example.com/worn", "example.com/hot")
CONDITIONS = ("example.com/attached", "example.com/flashed")

SIZES = ("8Gi", "16Gi", "32Gi", "1536Mi", "40e9")
POLICIES: tuple[Json, ...] = (
    {"default": "2Gi", "validRange": {"min": "2Gi", "max": "16Gi", "step": "2Gi"}},
    {"default": "1Gi", "validRange": {"min": "1Gi"}},
    {"default": "4Gi", "validRange": {"min": "1Gi", "max": "8Gi"}},
    {"default": "4Gi", "validValues": ["1Gi", "4Gi", "8Gi"]},
)
BAD_VALUES: tuple[Json, ...] = ({}, {"version": "1.2"}, {"version": "01.0.0"})


def slices(random: Random, topics: set[str]) -> list[Json]:
    drivers = random.sample(DRIVERS, random.choices((1, 2, 3), (5, 4, 1))[0])
    made: list[Json] = []
    for driver in drivers:
        for pool in random.sample(POOLS, random.choices((1, 2, 3), (5, 4, 1))[0]):
            made += _pool(random, topics, driver, pool)
    _name(random, made)
    random.shuffle(made)
    return made


def _name(random: Random, made: list[Json]) -> None:
    """Names decide the order within a pool, and differ in a cluster."""
    letters = random.sample(range(100), len(made))
    for slice_, letter in zip(made, letters, strict=True):
        slice_["metadata"] = {"name": f"slice-{letter:02}"}


def _pool(random: Random, topics: set[str], driver: str, pool: str) -> list[Json]:
    generation = random.choice((1, 1, 1, 2, 3))
    wide = random.random() < 0.4
    sets = _counter_sets(random) if "counters" in topics and random.random() < 0.8 else []
    made = []
    names = [f"dev-{i}" for i in range(16)]
    if random.random() < 0.3:
        random.shuffle(names)
    shared = _selection(random, wide)
    for _ in range(random.choices((1, 2, 3), (6, 3, 1))[0]):
        count = random.choices((0, 1, 2, 3, 4, 5), (1, 2, 4, 5, 5, 5))[0]
        per_device = random.random() < (0.35 if "places" in topics else 0.02)
        mine = [names.pop(0) for _ in range(min(count, len(names)))]
        devices = [
            _device(random, topics, driver, name, sets, per_device=per_device) for name in mine
        ]
        if per_device:
            where: Json = {"perDeviceNodeSelection": True}
        else:
            where = _selection(random, wide) if "places" in topics else dict(shared)
        made.append({**where, "devices": devices})
    if sets:
        where = dict(shared) if random.random() < 0.7 else _selection(random, wide)
        made.append({**where, "sharedCounters": sets})
    stated = len(made)
    if "broken" in topics:
        stated = _break(random, made, stated)
    out = [_slice(driver, pool, generation, stated, spec) for spec in made]
    if "broken" in topics and random.random() < 0.5:
        other = random.choice((generation - 1, generation + 1))
        where = _selection(random, wide)
        extra = {
            **where,
            "devices": [_device(random, topics, driver, f"dev-{random.randrange(4)}", [])],
        }
        out.append(_slice(driver, pool, other, random.choice((1, 2)), extra))
    return out


def _slice(driver: str, pool: str, generation: int, stated: int, spec: Json) -> Json:
    of = {"name": pool, "generation": generation, "resourceSliceCount": stated}
    return {"metadata": {}, "spec": {"driver": driver, "pool": of, **spec}}


def _break(random: Random, made: list[Json], stated: int) -> int:
    """One way for a pool to be incomplete or invalid; the number of slices it then states."""
    withdevices = [spec for spec in made if spec.get("devices")]
    match random.randrange(5):
        case 0:
            return stated + 1
        case 1 if len(made) > 1:
            made.pop(random.randrange(len(made)))
        case 2 if withdevices:
            first = random.choice(withdevices)
            again = random.choice(first["devices"])
            own = first.get("perDeviceNodeSelection")  # no API server takes one among others
            like = [s for s in withdevices if s.get("perDeviceNodeSelection") == own]
            random.choice(like)["devices"].append(dict(again))
        case 3 if withdevices:
            device = random.choice(random.choice(withdevices)["devices"])
            name = random.choice(("set-a", "set-z"))
            device["consumesCounters"] = [
                {"counterSet": name, "counters": {"nosuch": {"value": "1"}}}
            ]
        case _:
            pass
    return stated


def _selection(random: Random, wide: bool) -> Json:
    """Where a slice or a device is to be had; mostly on the node."""
    draw = random.random()
    if draw < (0.3 if wide else 0.85):
        return {"nodeName": NODE}
    if draw < (0.4 if wide else 0.9):
        return {"nodeName": "node-b"}
    if draw < (0.7 if wide else 0.95):
        return {"allNodes": True}
    return {"nodeSelector": {"nodeSelectorTerms": [_term(random)]}}


def _term(random: Random) -> Json:
    term: Json = {"matchExpressions": [_requirement(random) for _ in range(random.randint(1, 2))]}
    if random.random() < 0.2:
        name = random.choice((NODE, NODE, "node-b"))
        operator = random.choice(("In", "In", "NotIn"))
        fields = [{"key": "metadata.name", "operator": operator, "values": [name]}]
        term = {"matchFields": fields, **(term if random.random() < 0.5 else {})}
    return term


def _requirement(random: Random) -> Json:
    key = random.choice(("zone", "zone", "cards", "absent"))
    match random.choice(("In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")):
        case "In" | "NotIn" as operator:
            values = random.sample(("z1", "z2", "3"), random.randint(1, 2))
            return {"key": key, "operator": operator, "values": values}
        case "Gt" | "Lt" as operator:
            return {"key": key, "operator": operator, "values": [random.choice(("2", "3", "4"))]}
        case operator:
            return {"key": key, "operator": operator}


def _counter_sets(random: Random) -> list[Json]:
    return [
        {"name": name, "counters": {c: {"value": str(random.randint(3, 9))} for c in ("mem", "sm")}}
        for name in random.sample(("set-a", "set-b"), random.randint(1, 2))
    ]


def _device(
    random: Random,
    topics: set[str],
    driver: str,
    name: str,
    sets: list[Json],
    *,
    per_device: bool = False,
) -> Json:
    device: Json = {"name": name, "attributes": _attributes(random, topics, driver)}
    multiple = "shares" in topics and random.random() < 0.6
    if multiple:
        device["allowMultipleAllocations"] = True
    device["capacity"] = _capacity(random, topics, multiple=multiple)
    if "taints" in topics and random.random() < 0.35:
        device["taints"] = [_taint(random) for _ in range(random.randint(1, 2))]
    if sets and random.random() < 0.8:
        device["consumesCounters"] = [
            {"counterSet": s["name"], "counters": _consumed(random)}
            for s in random.sample(sets, random.randint(1, len(sets)))
        ]
    if "binding" in topics and random.random() < 0.3:
        device["bindingConditions"] = [random.choice(CONDITIONS)]
        device["bindingFailureConditions"] = ["example.com/failed"]
        if random.random() < 0.5:
            device["bindsToNode"] = True
    if per_device:
        device.update(_selection(random, wide=True))
    return device


def _consumed(random: Random) -> Json:
    counters = random.sample(("mem", "sm"), random.randint(1, 2))
    return {name: {"value": str(random.randint(1, 4))} for name in counters}


def _attributes(random: Random, topics: set[str], driver: str) -> Json:
    made: Json = {
        "model": {"string": random.choice(("a", "b"))},
        "numa": {"int": random.choice((0, 0, 1, 1, 2))},
        "sound": {"bool": random.random() < 0.8},
        "firmware": {"version": random.choice(("1.2.0", "1.10.0", "2.0.0-rc.1"))},
        "example.com/rack": {"string": random.choice(("r1", "r2"))},
    }
    if random.random() < 0.15:
        # One's own driver before a name that is there, too, is ambiguous even to Kubernetes.
        written = random.choice(DRIVERS)
        if written == driver:
            del made["numa"]
        made[f"{written}/numa"] = {"int": random.randrange(3)}
    if "lists" in topics:
        made["roots"] = _listed(random)
    for name in list(made):
        if random.random() < 0.06:
            del made[name]
        elif random.random() < 0.03:
            made[name] = {"string": "odd"}
    if "odd-values" in topics and random.random() < 0.2:
        made[random.choice(("model", "odd"))] = dict(random.choice(BAD_VALUES))
    return made


def _listed(random: Random) -> Json:
    match random.randrange(5):
        case 0:
            return {"string": random.choice("xyz")}
        case 1:
            return {"ints": random.sample((1, 2, 3), random.randint(1, 2))}
        case 2:
            return {"versions": random.sample(("1.0.0", "2.0.0"), random.randint(1, 2))}
        case _:
            return {"strings": random.sample("xyz", random.randint(1, 3))}


def _capacity(random: Random, topics: set[str], *, multiple: bool) -> Json:
    memory: Json = {"value": random.choice(SIZES)}
    if random.random() < (0.7 if multiple else 0.1 if "shares" in topics else 0.0):
        memory = {"value": random.choice(("8Gi", "16Gi")), "requestPolicy": _policy(random, topics)}
    made: Json = {"memory": memory, "lanes": {"value": str(random.choice((4, 8)))}}
    if multiple:
        # Without a policy every share would take all of it.
        made["lanes"]["requestPolicy"] = {"default": "1", "validRange": {"min": "1"}}
    if random.random() < 0.1:
        del made["lanes"]
    return made


def _policy(random: Random, topics: set[str]) -> Json:
    if "fractions" in topics and random.random() < 0.5:
        low, step = random.choice((("500m", "250m"), ("1500m", "500m"), ("1", "100m")))
        return {"default": low, "validRange": {"min": low, "max": "8", "step": step}}
    return dict(random.choice(POLICIES))


def _taint(random: Random) -> Json:
    effect = random.choice(("NoSchedule", "NoSchedule", "NoExecute", "None", "Future"))
    taint = {"key": random.choice(KEYS), "effect": effect}
    if random.random() < 0.5:
        taint["value"] = random.choice(("low", "high"))
    return taint
