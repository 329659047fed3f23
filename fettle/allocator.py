"""Which devices the in-tree DRA allocator takes on a node: first fit, in its own order, read-only.

Pools by driver and name, slices by name, devices in slice order; a request's devices are a
combination, the next request starts over (KEP-4381; k8s.io/dynamic-resource-allocation). What is
not modelled ends in "undecided", never in a guess. Pure; selectors are looked up, not evaluated.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from fettle.asks import Request
from fettle.model import DeviceId
from fettle.selectors.outcomes import Kind, Outcome
from fettle.view import DeviceView, PoolView
from fettle.wire import resource

MAX_STEPS = 2000

Match = Callable[[str, DeviceView], Outcome]
"""(expression, device) → what the selector says of it."""


class Found(StrEnum):
    FITS = "fits"
    NONE = "none"
    UNDECIDED = "undecided"


class Allocated(msgspec.Struct, frozen=True):
    """`devices` as (request name, device), in the order taken; `reason` for all but FITS."""

    found: Found
    devices: tuple[tuple[str, DeviceView], ...] = ()
    reason: str = ""


class _Undecided(Exception):
    pass


def allocate(
    requests: Sequence[Request],
    pools: Sequence[PoolView],
    match: Match,
    acceptable: Callable[[DeviceView], bool] | None = None,
) -> Allocated:
    """The first allocation that satisfies all requests, as the scheduler would find it.

    With `acceptable`, devices it turns down are left out: is there *any* allocation then?
    """
    try:
        candidates = [_candidates(r, pools, match, acceptable) for r in requests]
    except _Undecided as why:
        return Allocated(Found.UNDECIDED, reason=str(why))
    for request, (devices, impossible) in zip(requests, candidates, strict=True):
        if impossible or len(devices) < _wanted(request, devices):
            return Allocated(Found.NONE, reason=impossible or f"too few devices: {request.name}")
    wanted = [_wanted(r, d) for r, (d, _) in zip(requests, candidates, strict=True)]
    return _search(requests, [devices for devices, _ in candidates], wanted)


def _wanted(request: Request, devices: Sequence[DeviceView]) -> int:
    return request.count if request.count is not None else max(1, len(devices))


def _candidates(
    request: Request,
    pools: Sequence[PoolView],
    match: Match,
    acceptable: Callable[[DeviceView], bool] | None,
) -> tuple[list[DeviceView], str]:
    """The devices a request could take, in order; and, for `All`, why it can never succeed."""
    if request.unsupported:
        raise _Undecided(f"{request.name}: {request.unsupported}")
    devices: list[DeviceView] = []
    impossible = ""
    for pool in pools:
        if not pool.complete:
            if request.count is None:
                raise _Undecided(f"{request.name}: pool {pool.name} is incomplete")
            continue
        for device in pool.devices:
            if device.allocated and request.count is not None:
                continue
            if not _matches(request, device, match):
                continue
            if device.unsupported:
                raise _Undecided(f"{device.id}: {device.unsupported}")
            usable = not device.allocated and _tolerated(device.taints, request.tolerations)
            if usable and (acceptable is None or acceptable(device)):
                devices.append(device)
            elif request.count is None:
                impossible = f"{request.name}: all devices are asked for, {device.id} is not usable"
    return devices, impossible


def _matches(request: Request, device: DeviceView, match: Match) -> bool:
    for expression in request.selectors:
        outcome = match(expression, device)
        if outcome.kind is Kind.NO_MATCH:
            return False
        if not outcome.matches:
            raise _Undecided(f"{request.name} on {device.id}: {outcome.reason or outcome.kind}")
    return True


def _tolerated(
    taints: Sequence[resource.DeviceTaint], tolerations: Sequence[resource.DeviceToleration]
) -> bool:
    return all(
        taint.effect not in ("NoSchedule", "NoExecute")
        or any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    )


def tolerates(toleration: resource.DeviceToleration, taint: resource.DeviceTaint) -> bool:
    """As `ToleratesTaint` of k8s.io/dynamic-resource-allocation/resourceclaim does."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def _search(
    requests: Sequence[Request], candidates: Sequence[Sequence[DeviceView]], wanted: Sequence[int]
) -> Allocated:
    """Depth first over (request, start): an explicit stack of the positions taken."""
    plan = [i for i, count in enumerate(wanted) for _ in range(count)]
    taken: set[DeviceId] = set()
    positions: list[int] = []
    start = 0
    for _step in range(MAX_STEPS):
        depth = len(positions)
        if depth == len(plan):
            return Allocated(
                Found.FITS,
                tuple(
                    (requests[r].name, candidates[r][p])
                    for r, p in zip(plan, positions, strict=True)
                ),
            )
        row = candidates[plan[depth]]
        position = next((p for p in range(start, len(row)) if row[p].id not in taken), None)
        if position is not None:
            taken.add(row[position].id)
            positions.append(position)
            same = depth + 1 < len(plan) and plan[depth + 1] == plan[depth]
            start = position + 1 if same else 0
        elif not positions:
            return Allocated(Found.NONE, reason="no combination of devices satisfies all requests")
        else:
            last = positions.pop()
            taken.discard(candidates[plan[len(positions)]][last].id)
            start = last + 1
    return Allocated(Found.UNDECIDED, reason=f"not found within {MAX_STEPS} steps")
