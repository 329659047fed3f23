"""Random claims for groups of devices that each agree on a value, as GPUs and NICs of one PCIe root
do: what one group takes, another lacks, so that most searches go back."""

from __future__ import annotations

from random import Random
from typing import Any

Json = dict[str, Any]

ROOT = "example.com/root"


def pairs(random: Random, case: Json) -> None:
    """One claim of two to four groups, beside or in place of what it was; with as many roots."""
    number = random.choices((2, 3, 4), (5, 4, 1))[0]
    drivers = sorted({slice_["spec"]["driver"] for slice_ in case["slices"]})
    of = [random.choice(drivers) for _ in range(2)]
    for slice_ in case["slices"]:
        for device in slice_["spec"].get("devices") or ():
            _put(random, device, number)
    devices = random.choice(case["claims"])["spec"]["devices"]
    groups = [
        [_request(random, f"{name}{i}", driver) for name, driver in zip("gn", of, strict=True)]
        for i in range(number)
    ]
    for group in groups:
        if random.random() < 0.15:
            group.append(_request(random, f"{group[0]['name']}-too", random.choice(of)))
    beside = devices["requests"] if random.random() < 0.2 else []
    devices["requests"] = [*_in_some_order(random, groups), *beside]
    devices["constraints"] = [
        {"matchAttribute": ROOT, "requests": [request["name"] for request in group]}
        for group in groups
        if random.random() < 0.95
    ]


def _put(random: Random, device: Json, roots: int) -> None:
    """On a root, as nearly all devices are."""
    attributes = device.setdefault("attributes", {})
    value: Json = {"string": f"root-{random.randrange(roots + 1)}"}
    if random.random() < 0.03:
        value = random.choice(({"int": 0}, {"version": "1.0.0"}, {"string": "elsewhere"}))
    if random.random() < 0.95:
        attributes[ROOT] = value


def _request(random: Random, name: str, driver: str) -> Json:
    def wanted() -> Json:
        count = random.choices((1, 2, 3), (12, 3, 1))[0]
        made: Json = {"deviceClassName": driver, "allocationMode": "ExactCount", "count": count}
        if random.random() < 0.1:
            made["deviceClassName"] = "any"
        if random.random() < 0.15:
            taint = {"operator": "Exists"}
            made["tolerations"] = [taint]
        return made

    if random.random() < 0.08:
        return {"name": name, "firstAvailable": [{"name": f"s{i}", **wanted()} for i in range(2)]}
    return {"name": name, "exactly": wanted()}


def _in_some_order(random: Random, groups: list[list[Json]]) -> list[Json]:
    """Group by group, or kind by kind as people write them, or any."""
    requests = [request for group in groups for request in group]
    match random.randrange(3):
        case 0:
            requests.sort(key=lambda request: str(request["name"])[0])
        case 1:
            random.shuffle(requests)
        case _:
            pass
    return requests
