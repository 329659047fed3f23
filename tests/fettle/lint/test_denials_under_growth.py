"""What is denied stays impossible however the cluster grows: more nodes and devices, other values
of the attributes that a driver's devices have, more classes, other settings of drivers (0041).

Each rule that denies is here by itself, with the rows of the tables that it denies.
"""

import random
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from fettle.api import resource
from fettle.cel import Outcome
from fettle.dra import DeviceView, claim_of_spec
from fettle.lint.drivers import Drivers
from fettle.lint.findings import Severity
from fettle.lint.names import misspelt
from fettle.lint.rules import RULES
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.verdicts import judge
from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.clusters import InProcess, lint, view_of
from tests.fettle.lint.fleets import GPU
from tests.fettle.lint.tables import configs, counts, selectors, tolerations, workloads
from tests.fettle.lint.tables.case import FLEET, Case, claim, device, exactly
from tests.fettle.lint.test_early_refusals import CONTRADICTED
from tests.fettle.scheduling.judge.judging import SCAVENGER

NOT_OF_ALLOCATION = {
    "FTL019": "the driver's plugin refuses the configuration, on whatever device",
    "FTL024": "a ComputeDomain gives channels to claims of its own template only",
    "FTL035": "the API server refuses a pod that names a request that its claim has not",
    "FTL039": "the API takes 256 pods for one claim, whatever the cluster",
    "FTL044": "no scheduler makes a claim from a template for a pod with a node's name",
    "FTL046": "the API server refuses the child Jobs",
    "FTL047": "the API server refuses the child Jobs",
    "FTL056": "the API server refuses to reserve one claim for a pod twice",
}
"""Rules about what no device could mend, and who refuses it."""
NOT_YET = (
    f'device.capacity["{GPU}"].shares.isGreaterThan(quantity("0"))',
    'device.capacity["other.example.com"].memory.isGreaterThan(quantity("0"))',
    device('type == "gpu" && device.attributes["gpu.nvidia.com"].productName == "NVIDIA H200"'),
    device('productName == "NVIDIA H100" && device.attributes["gpu.nvidia.com"].index == 77'),
)
"""What no device has, and another setting of the driver or another model may bring."""
EVALUATED = InProcess()
STRINGS = ("mig", "vfio", "Hopper", "Blackwell", "NVIDIA H200 141GB HBM3e", "1g.10gb", "x")
MORE_NODES, OF_ONE = 40, 8
TABLES = (configs, counts, selectors, tolerations, workloads)
CASES = [
    *(case for table in TABLES for case in table.CASES if case.caught),
    *(Case("", what, claim(exactly(**asked)), "denied") for what, asked in CONTRADICTED.items()),
    *(Case("", cel, claim(exactly(selectors=[cel])), "warned") for cel in NOT_YET),
]


async def denying(case: Case, known: Sequence[Object]) -> set[str]:
    found = await lint(
        case.object, known, drivers=Drivers(features=case.features), disabled=case.disabled
    )
    return {finding.rule for finding in found if finding.severity is Severity.DENY}


def grown(case: Case) -> list[Object]:
    """The cluster with much more of all that may come, at random, and of just what is asked for."""
    chance = random.Random(str(case))
    text = msgspec.json.encode(case.object).decode()
    slices = [one for one in case.known if one["kind"] == "ResourceSlice"]
    shown = names_and_values(slices)
    more: list[Object] = []
    for index in range(MORE_NODES if slices else 0):
        of = chance.choice(slices)
        devices = [other(chance, of, text, shown) for _ in range(OF_ONE)]
        name = f"grown-{index}"
        more += [
            api.node(name),
            api.resource_slice(name, devices, driver=of["spec"]["driver"]),
        ]
    named = set(re.findall(r'"deviceClassName": ?"([^"]+)"', text))
    there = {one["metadata"]["name"] for one in case.known if one["kind"] == "DeviceClass"}
    drivers = sorted({one["spec"]["driver"] for one in slices})
    more += [api.device_class(name, driver=drivers[0]) for name in named - there if drivers]
    return [*case.known, *more]


def names_and_values(slices: Sequence[Object]) -> set[str]:
    """What devices publish: the names of capacities, and the texts of attributes."""
    devices = [device for one in slices for device in one["spec"]["devices"]]
    attributes = (a for device in devices for a in device.get("attributes", {}).values())
    texts = {attribute["string"] for attribute in attributes if "string" in attribute}
    return texts.union(*(device.get("capacity", {}) for device in devices))


def other(chance: random.Random, of: Object, text: str, shown: set[str]) -> Object:
    """A device like those of a slice, with other values, and with all that a claim may ask of its
    capacities under other settings of its driver."""
    made: Object = deepcopy(chance.choice(of["spec"]["devices"]))
    made.pop("taints", None)
    made["name"] = f"gpu-{chance.randrange(10**9)}"
    for attribute in made.get("attributes", {}).values():
        (kind,) = attribute
        attribute[kind] = chance.choice([attribute[kind], *values(kind, text, shown)])
    shared = chance.random() < 0.5
    for name in asked_capacities(text) if shared else ():
        if misspelt(name, shown):
            continue
        made.setdefault("capacity", {})[name] = {"value": "1Ti"}
    for capacity in made.get("capacity", {}).values():
        capacity["value"] = chance.choice([capacity["value"], "1Ti"])
        if shared:
            capacity["requestPolicy"] = {"default": "1", "validRange": {"min": "1"}}
    if shared:
        made["allowMultipleAllocations"] = True
    return made


def values(kind: str, text: str, shown: set[str]) -> list[Any]:
    """What an attribute of this type may be elsewhere: also each literal of the object, unless it
    can only be a misspelling of what is shown."""
    if kind == "string":
        literals = re.findall(r'\\"([^"\\]+)\\"', text)
        return [*STRINGS, *(one for one in literals if not misspelt(one, shown))]
    if kind == "int":
        return [*range(9), *map(int, re.findall(r"\b\d{1,9}\b", text))]
    if kind == "bool":
        return [True, False]
    return ["1.0.0", "999.9.9", *re.findall(r"\b\d+\.\d+\.\d+\b", text)]


def asked_capacities(text: str) -> list[str]:
    found = re.findall(r'"capacity": ?\{"requests": ?\{"([^"]+)"', text)
    return [*found, *re.findall(r"capacity\[[^]]*\]\.(\w+)", text)]


def spec_of(object: Object) -> Object:
    """What is to be allocated: of a DeviceClass one device."""
    if object["kind"] == "DeviceClass":
        wanted: Object = claim(exactly(device_class=object["metadata"]["name"]))
        return dict(wanted["spec"])
    return dict(object["spec"]["spec"] if "spec" in object["spec"] else object["spec"])


def matches(expression: str, device: DeviceView) -> Outcome:
    outcome = EVALUATED.outcome(expression, device.id.driver, device.published.device)
    assert outcome is not None
    return outcome


def nodes_for(object: Object, cluster: Sequence[Object]) -> Iterator[str]:
    """The nodes on which the allocator finds devices for it."""
    classes = [object] if object["kind"] == "DeviceClass" else []
    view = view_of([*cluster, *classes])
    spec = msgspec.convert(spec_of(object), resource.ResourceClaimSpec)
    demand = Demand(SCAVENGER, claims=(claim_of_spec("gpu", spec, view.classes),))
    for name, node in view.nodes.items():
        answer = judge(demand, node, Acceptance(SCAVENGER.placement), Allocator(matches))
        if answer.devices and answer.can_be_placed and not answer.undecided:
            yield name


def ids() -> list[str]:
    return [f"{case.rule}-{case.what}" for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=ids())
async def test_what_is_denied_is_impossible_however_the_cluster_grows(case: Case) -> None:
    denied = await denying(case, case.known)
    larger = grown(case)
    for rule in denied & NOT_OF_ALLOCATION.keys():
        assert rule in await denying(case, larger)
    if denied - NOT_OF_ALLOCATION.keys():
        assert [*nodes_for(case.object, larger)] == []


async def test_each_rule_that_denies_is_tried() -> None:
    may_deny = {rule.id for rule in RULES if rule.severity is Severity.DENY or rule.denies_if}
    tried = set[str]()
    for case in CASES:
        tried |= await denying(case, case.known)
    assert may_deny == tried


def test_devices_are_found_where_there_are_some() -> None:
    """So the test above can fail."""
    assert [*nodes_for(claim(exactly()), FLEET)]
    case = Case("", "plain", claim(exactly(count=2)), "x")
    assert any(name.startswith("grown") for name in nodes_for(case.object, grown(case)))
