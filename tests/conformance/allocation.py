"""Asks Fettle's allocator about a case of the conformance data: bytes in, allocations out.

The product's code does all of it: reading, gathering pools, evaluating selectors, searching.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import msgspec

from fettle.api import core, kinds, resource
from fettle.api.kinds import Kind
from fettle.cel import Outcome, rows, undecided
from fettle.cel.language.compiler import Prepared, judge, prepare
from fettle.cluster.inventory.devices import Devices
from fettle.cluster.inventory.holdings import Holdings
from fettle.cluster.inventory.nodes import pool_view
from fettle.cluster.inventory.units import UnitPlacement
from fettle.config import HealthSettings
from fettle.dra import (
    AMPLE,
    UNIT,
    AllocatedDevice,
    AllocationOutcome,
    AllocationStatus,
    Budget,
    Claim,
    DeviceView,
    Features,
    MalformedNodeSelector,
    NodeTarget,
    PoolView,
    Profile,
    Unreadable,
    nano,
)
from fettle.dra.allocator import DeviceResult, allocate
from fettle.dra.claims import claim_of_spec
from fettle.dra.quantities import MAX_INT64
from fettle.explain.wording import texts
from fettle.health import HealthBook, load_rules
from fettle.model import BadInput, DeviceId, NodeId

GATES = {
    "DRAAdminAccess": "admin_access",
    "DRAConsumableCapacity": "consumable_capacity",
    "DRADerivedAttributes": "derived_attributes",
    "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus": "device_binding_and_status",
    "DRADeviceCompatibilityGroups": "compatibility_groups",
    "DRADeviceTaints": "device_taints",
    "DRAFractionalCapacityRange": "fractional_capacity_range",
    "DRAListTypeAttributes": "list_type_attributes",
    "DRAOptionalNodeOperations": "optional_node_operations",
    "DRAPartitionableDevices": "partitionable_devices",
    "DRAPrioritizedList": "prioritized_list",
}
"""Gates as a case names them → fields of `Features`."""


class Answer(msgspec.Struct, frozen=True):
    """`results` is one allocation per claim, as the API writes it; `steps` counts the calls of the
    search. `reason` says why, for all but "allocated". Quantities are in 1e-9; shares have one id.
    """

    kind: Literal["allocated", "none", "error", "undecided"]
    results: list[dict[str, Any]] = []
    steps: int = 0
    reason: str = ""


def answer(case: dict[str, Any], *, prune: bool = False, max_steps: int = 10**9) -> Answer:
    """What Fettle's allocator says of one case of the form in `allocator_*.json`.

    With `prune`, searches that are plainly hopeless end early, and `steps` tells less. A search
    beyond `max_steps`, or `maxSteps` of the case, is undecided.
    """
    if unknown := gates(case) - GATES.keys():
        return Answer("undecided", reason=f"gates that are not known: {', '.join(sorted(unknown))}")
    profile = Profile(features(case))
    try:
        asked, views = wanted(case), seen(case)
    except BadInput as error:
        return Answer("undecided", reason=str(error))
    except MalformedNodeSelector as error:
        return Answer("error", reason=str(error))
    steps = min(max_steps, case.get("maxSteps") or max_steps)
    budget = Budget(steps=steps, seconds=600.0, prune_after=AMPLE.prune_after if prune else None)
    allocated = allocate(asked, views, match(), profile, budget=budget)
    return told(asked, allocated, profile.features)


def seen(case: dict[str, Any]) -> list[PoolView]:
    """The pools of a case as its node sees them; raises BadInput, Malformed."""
    devices = inventory(case, features(case))
    book = HealthBook(HealthSettings(), _shipped())
    place = place_of(case)
    alone = UnitPlacement(NodeId(place.name))
    pools = [pool for pool, _ in devices.pools_on(place)]
    if malformed := next((pool.malformed for pool in pools if pool.malformed), ""):
        raise MalformedNodeSelector(malformed)
    return [pool_view(pool, place.name, devices, book, alone, 0.0) for pool in pools]


def expected(case: dict[str, Any]) -> Answer:
    """What Kubernetes' allocator said of a case, in the same form."""
    steps = case.get("numAllocateOneInvocations") or 0
    if error := case.get("expectError"):
        return Answer("error", steps=steps, reason=error)
    results = case.get("expectResults") or []
    if len(results) != len(case.get("claims") or ()):
        return Answer("none", steps=steps)
    return Answer("allocated", results, steps)


def agree(case: dict[str, Any], one: Answer, other: Answer) -> bool:
    """Whether two answers give the same devices, in the same order where all variants of the
    allocator have one, or come to nothing in the same way."""
    if one.kind != other.kind:
        return False
    ordered = "stable" not in (case.get("channels") or ())
    exact = not _beyond_64_bits(case)
    compared = (
        [
            [_comparable(r, exact=exact) for r in claim["devices"].get("results") or ()]
            for claim in a
        ]
        for a in (one.results, other.results)
    )
    left, right = (c if ordered else [sorted(r, key=repr) for r in c] for c in compared)
    return left == right


def _comparable(result: dict[str, Any], *, exact: bool) -> dict[str, Any]:
    kept = {name: value for name, value in result.items() if name != "skipNodeOperations"}
    consumed = kept.pop("consumedCapacity", None)
    if consumed and exact:
        amounts = {n: v if isinstance(v, int) else nano(v) for n, v in consumed.items()}
        kept["consumedCapacity"] = sorted(amounts.items())
    return kept


def _beyond_64_bits(case: dict[str, Any]) -> bool:
    """Whether a capacity is larger than what Kubernetes writes correctly as text."""
    return any(
        _size(capacity) > MAX_INT64 * UNIT
        for slice_ in case.get("slices") or ()
        for device in slice_["spec"].get("devices") or ()
        for capacity in (device.get("capacity") or {}).values()
    )


def _size(capacity: dict[str, Any]) -> int:
    try:
        return nano(capacity.get("value") or "0")
    except Unreadable:
        return 0


def gates(case: dict[str, Any]) -> frozenset[str]:
    """The gates that a case turns on, by name."""
    return frozenset(case.get("features") or ())


def features(case: dict[str, Any]) -> Features:
    """The gates that a case turns on; all others are off."""
    on = {GATES[name] for name in gates(case)}
    return Features(**{field: field in on for field in GATES.values()})


def inventory(case: dict[str, Any], of: Features) -> Devices:
    """The slices of a case and what others hold of their devices; raises BadInput."""
    devices = Devices(of)
    devices.holdings = Holdings()  # a case tells shares apart already, whatever its gates
    for number, raw in enumerate(case.get("slices") or ()):
        slice_ = _decoded(kinds.SLICE, raw)
        assert isinstance(slice_, resource.ResourceSlice)
        devices.put_slice(None, _apart(slice_, number))
    held = [AllocatedDevice(DeviceId(*names)) for names in case.get("allocatedDevices") or ()]
    for *names, share in case.get("allocatedSharedDeviceIDs") or ():
        held.append(AllocatedDevice(DeviceId(*names), share))
    for used in case.get("allocatedCapacity") or ():
        amounts = tuple((name, nano(q)) for name, q in (used.get("capacity") or {}).items())
        held.append(AllocatedDevice(DeviceId(*used["id"]), "capacity", amounts))
    devices.holdings.put("elsewhere", held)
    return devices


def _apart(slice_: resource.ResourceSlice, number: int) -> resource.ResourceSlice:
    """Names repeat in the data, as they cannot in a cluster; their order stays."""
    name = f"{slice_.metadata.name}\0{number:04}"
    metadata = msgspec.structs.replace(slice_.metadata, name=name)
    return msgspec.structs.replace(slice_, metadata=metadata)


def wanted(case: dict[str, Any]) -> tuple[Claim, ...]:
    """The claims to allocate, as they stand: with no defaults added. Raises BadInput."""
    classes: dict[str, resource.DeviceClass] = {}
    for raw in case.get("classes") or ():
        device_class = _decoded(kinds.CLASS, raw)
        assert isinstance(device_class, resource.DeviceClass)
        classes.setdefault(device_class.metadata.name, device_class)  # as Kubernetes' tests look
    asked = []
    for raw in case.get("claims") or ():
        claim = _decoded(kinds.CLAIM, raw)
        assert isinstance(claim, resource.ResourceClaim)
        asked.append(claim_of_spec(claim.metadata.name, claim.spec, classes, defaulted=False))
    return tuple(asked)


def place_of(case: dict[str, Any]) -> NodeTarget:
    """The node of a case; a case without one is about no node in particular."""
    node = _decoded(kinds.NODE, case.get("node") or {"metadata": {}})
    assert isinstance(node, core.Node)
    return NodeTarget(node.metadata.name, node.metadata.labels or {})


def match() -> Callable[[str, DeviceView], Outcome]:
    """Selectors evaluated here and now."""

    def matching(expression: str, device: DeviceView) -> Outcome:
        driver, of = device.id.driver, device.device
        if problem := rows.problem(driver, of):
            return undecided(problem)
        prepared = _prepared(expression)
        return judge(
            prepared, rows.row(prepared.reads, rows.row_fingerprint(prepared.reads, driver, of))
        )

    return matching


_shipped = cache(load_rules)


@cache
def _prepared(expression: str) -> Prepared:
    return prepare(expression)


def _decoded(kind: Kind, raw: dict[str, Any]) -> kinds.WireObject:
    return kind.decode(msgspec.json.encode(raw))


def told(asked: tuple[Claim, ...], allocated: AllocationOutcome, of: Features) -> Answer:
    if allocated.found is not AllocationStatus.FITS:
        return Answer(
            _KINDS[allocated.found],
            steps=allocated.steps,
            reason="; ".join(texts(allocated.reasons)),
        )
    results: list[dict[str, Any]] = [{"devices": {"results": []}} for _ in asked]
    for taken in allocated.devices:
        results[taken.claim]["devices"]["results"].append(_result(asked, taken, of))
    return Answer("allocated", results, allocated.steps)


_KINDS: dict[AllocationStatus, Literal["none", "error", "undecided"]] = {
    AllocationStatus.NONE: "none",
    AllocationStatus.ERROR: "error",
    AllocationStatus.UNDECIDED: "undecided",
}

SHARE = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


def _result(asked: tuple[Claim, ...], taken: DeviceResult, of: Features) -> dict[str, Any]:
    alternative = next(a for a in asked[taken.claim].alternatives() if a.name == taken.request)
    device = taken.device.device
    result: dict[str, Any] = {
        "request": taken.request,
        "driver": taken.device.id.driver,
        "pool": taken.device.id.pool,
        "device": taken.device.id.device,
        "adminAccess": taken.admin_access or None,
        "tolerations": [msgspec.to_builtins(t) for t in alternative.tolerations] or None,
    }
    if of.device_binding_and_status:
        result["bindingConditions"] = list(device.binding_conditions or ()) or None
        result["bindingFailureConditions"] = list(device.binding_failure_conditions or ()) or None
    if taken.consumed is not None:
        result["shareID"] = SHARE
        result["consumedCapacity"] = dict(taken.consumed) or None
    return {name: value for name, value in result.items() if value is not None}
