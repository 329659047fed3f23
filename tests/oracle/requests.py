"""Random classes, claims and allocated state for the slices of `fleets`: the other half of a case.

Most requests can be met by some device and few by many, so that searches have to go back.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.oracle.fleets import DRIVERS, KEYS, LABELS, NODE, Json, slices
from tests.oracle.unusual import CHANGES

GATES = (
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
    "DRADeviceTaints",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
)
"""On by default in Kubernetes 1.37."""
ALPHA_GATES = {
    "lists": "DRAListTypeAttributes",
    "values": "DRAListTypeAttributes",
    "fractions": "DRAFractionalCapacityRange",
}
"""Topic → the gate it needs; off by default."""
TOPICS = {
    "counters": 0.35,
    "shares": 0.3,
    "taints": 0.35,
    "binding": 0.15,
    "places": 0.25,
    "broken": 0.12,
    "constraints": 0.5,
    "alternatives": 0.35,
    "all": 0.2,
    "admin": 0.12,
    "allocated": 0.4,
    "lists": 0.12,
    "fractions": 0.05,
    "gate-off": 0.08,
    "aborting": 0.06,
    "odd-values": 0.03,
    "odd-claims": 0.05,
    **dict.fromkeys(CHANGES, 0.04),
}
"""What a case may be about, and how often it is."""
MALFORMED = frozenset(
    {"odd-values", "odd-claims", "broken", "aborting", "gate-off", "expressions", "any-gates"}
)
"""Topics whose objects no API server accepts, or no sane driver writes: undecided is allowed."""

SELECTORS = (
    "device.driver == 'gpu.example.com'",
    "device.attributes[device.driver].?model.orValue('') == 'a'",
    "device.attributes[device.driver].?sound.orValue(false)",
    "device.attributes[device.driver].?numa.orValue(0) < 2",
    "device.capacity[device.driver].memory.compareTo(quantity('16Gi')) >= 0",
    "'example.com' in device.attributes && has(device.attributes['example.com'].rack)",
    "device.attributes['example.com'].?rack.orValue('r1') == 'r1'",
    "!device.allowMultipleAllocations",
    "device.attributes[device.driver].?firmware.orValue(semver('0.0.1')).isGreaterThan(semver('1.5.0'))",
    "true",
)
ABORTING = (
    "device.attributes['gpu.example.com'].model == 'a'",
    "device.attributes[device.driver].numa < 2",
    "device.attributes[device.driver].nosuch == 1",
    "device.attributes[device.driver].firmware == '1.2.0'",
    "device.nosuch",
    "1 +",
)


def case(random: Random) -> Json:
    """One case of the form that the oracle reads; `topics` says what it is about."""
    topics = {topic for topic, share in TOPICS.items() if random.random() < share}
    made_slices = slices(random, topics)
    made: Json = {
        "topics": sorted(topics),
        "features": _gates(random, topics),
        "node": {"metadata": {"name": NODE, "labels": dict(LABELS)}},
        "classes": device_classes(random, topics),
        "claims": claims(random, topics, sorted({s["spec"]["driver"] for s in made_slices})),
        "slices": made_slices,
    }
    made.update(_allocated(random, topics, made_slices))
    for topic, change in CHANGES.items():
        if topic in topics:
            change(random, made)
    return made


def _gates(random: Random, topics: set[str]) -> list[str]:
    gates = set(GATES) | {gate for topic, gate in ALPHA_GATES.items() if topic in topics}
    if "gate-off" in topics:
        gates.discard(random.choice(GATES))
    return sorted(gates)


def device_classes(random: Random, topics: set[str]) -> list[Json]:
    expressions = SELECTORS + (ABORTING if "aborting" in topics else ())
    made: list[tuple[str, list[str]]] = [("any", [])]
    made += [(d, [f"device.driver == '{d}'"]) for d in DRIVERS]
    made.append(("picky", random.sample(expressions, random.randint(1, 2))))
    return [{"metadata": {"name": n}, "spec": {"selectors": _cel(s)}} for n, s in made]


def _cel(expressions: list[str]) -> list[Json]:
    return [{"cel": {"expression": expression}} for expression in expressions]


def claims(random: Random, topics: set[str], drivers: list[str]) -> list[Json]:
    made = []
    for number in range(random.choices((1, 2, 3), (7, 3, 1))[0]):
        count = random.choices((1, 2, 3), (6, 4, 1))[0]
        requests = [_request(random, topics, drivers, f"r{i}") for i in range(count)]
        spec: Json = {"requests": requests}
        if "constraints" in topics and random.random() < 0.8:
            wanted = random.choice((1, 1, 2))
            spec["constraints"] = [
                _constraint(random, topics, drivers, requests) for _ in range(wanted)
            ]
        made.append({"metadata": {"name": f"claim-{number}"}, "spec": {"devices": spec}})
    if "odd-claims" in topics:
        _spoil(random, made)
    return made


def _request(random: Random, topics: set[str], drivers: list[str], name: str) -> Json:
    if "alternatives" in topics and random.random() < 0.5:
        several = [
            {"name": f"s{i}", **_wanted(random, topics, drivers)}
            for i in range(random.randint(1, 3))
        ]
        return {"name": name, "firstAvailable": several}
    exactly = _wanted(random, topics, drivers)
    if "admin" in topics and random.random() < 0.4:
        exactly["adminAccess"] = random.random() < 0.8
    return {"name": name, "exactly": exactly}


def _wanted(random: Random, topics: set[str], drivers: list[str]) -> Json:
    classes = [*drivers, *drivers, *drivers, "any", "any", "picky", random.choice(DRIVERS)]
    made: Json = {"deviceClassName": random.choice(classes)}
    if "all" in topics and random.random() < 0.4:
        made["allocationMode"] = "All"
    else:
        made["allocationMode"] = "ExactCount"
        made["count"] = random.choices((1, 2, 3, 4, 17), (55, 30, 12, 4, 1))[0]
    expressions = SELECTORS + (ABORTING if "aborting" in topics else ())
    chosen = random.sample(expressions, random.choices((0, 1, 2), (12, 6, 1))[0])
    if chosen:
        made["selectors"] = _cel(chosen)
    if "taints" in topics and random.random() < 0.5:
        made["tolerations"] = [_toleration(random) for _ in range(random.randint(1, 2))]
    if random.random() < (0.5 if "shares" in topics else 0.03):
        made["capacity"] = {"requests": _amounts(random, topics)}
    return made


def _amounts(random: Random, topics: set[str]) -> Json:
    sizes = ["1Gi", "1Gi", "2Gi", "3Gi", "4Gi", "5G", "8Gi"]
    if "fractions" in topics:
        sizes += ["750m", "1", "1600m", "2500m"]
    amounts: Json = {"memory": random.choice(sizes)}
    if random.random() < 0.3:
        amounts["lanes"] = random.choice(("1", "2", "4"))
    if random.random() < 0.04:
        amounts[random.choice(("nosuch", f"{DRIVERS[0]}/memory"))] = "1"
    return amounts


def _toleration(random: Random) -> Json:
    toleration: Json = {"operator": random.choice(("Exists", "Exists", "Equal"))}
    if random.random() < 0.8:
        toleration["key"] = random.choice(KEYS)
    if toleration["operator"] == "Equal":
        toleration["value"] = random.choice(("low", "high"))
    if random.random() < 0.5:
        toleration["effect"] = random.choice(("NoSchedule", "NoExecute"))
    return toleration


def _constraint(random: Random, topics: set[str], drivers: list[str], requests: list[Json]) -> Json:
    driver = random.choice(drivers)
    names = [f"{driver}/numa", f"{driver}/numa", f"{driver}/model", "example.com/rack"]
    names += [f"{driver}/roots"] * 4 if "lists" in topics else [f"{driver}/firmware"]
    kind = random.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
    made: Json = {kind: random.choice(names)}
    if random.random() < 0.6:
        known = [r["name"] for r in requests]
        known += [f"{r['name']}/{s['name']}" for r in requests for s in r.get("firstAvailable", ())]
        made["requests"] = random.sample(known, random.randint(1, min(2, len(known))))
    return made


def _spoil(random: Random, claims: list[Json]) -> None:
    """A claim as only an old, a future or a hand-edited object could say it."""
    devices = random.choice(claims)["spec"]["devices"]
    request = random.choice(devices["requests"])
    wanted = request.get("exactly") or random.choice(request["firstAvailable"])
    match random.randrange(8):
        case 0:
            wanted["deviceClassName"] = "nosuch"
        case 1:
            wanted["deviceClassName"] = ""
        case 2:
            wanted["allocationMode"] = random.choice(("Future", ""))
        case 3:
            wanted["count"] = random.choice((0, 33, 40))
        case 4:
            wanted["selectors"] = [{}]
        case 5:
            devices["constraints"] = [{"requests": [request["name"]]}]
        case 6:
            devices["constraints"] = [{"matchAttribute": "numa"}]
        case _:
            wanted["capacity"] = {"requests": {"memory": random.choice(("-1", "16E", "1e30"))}}


def _allocated(random: Random, topics: set[str], made: list[Json]) -> dict[str, Any]:
    devices: list[list[str]] = []
    shares: list[list[str]] = []
    amounts: list[Json] = []
    if "allocated" in topics:
        for slice_ in made:
            spec = slice_["spec"]
            for device in spec.get("devices") or ():
                name = [spec["driver"], spec["pool"]["name"], device["name"]]
                if (
                    random.random() > 0.25
                    or name in devices
                    or any(a["id"] == name for a in amounts)
                ):
                    continue
                if device.get("allowMultipleAllocations") and random.random() < 0.9:
                    shares.append([*name, f"share-{len(shares)}"])
                    used = random.choice(("1Gi", "2Gi", "4Gi", "7Gi"))
                    amounts.append({"id": name, "capacity": {"memory": used, "lanes": "1"}})
                else:
                    devices.append(name)
    return {
        "allocatedDevices": devices,
        "allocatedSharedDeviceIDs": shares,
        "allocatedCapacity": amounts,
    }
