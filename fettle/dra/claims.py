"""What ResourceClaims request and hold, as values that can be compared and hashed.

A claim is read from the spec of a ResourceClaim or template, with its classes. Errors, and what is
not modelled, are kept where the allocator would find them. Stands between API objects and demands.
Pure.
"""

from collections.abc import Iterator, Mapping

import msgspec

from fettle.api import resource
from fettle.dra.quantities import Amount, Unreadable, amount, nano
from fettle.model import DeviceId

EXACT_COUNT, ALL = "ExactCount", "All"


class Alternative(msgspec.Struct, frozen=True, gc=False):
    """What an `exactly` asks for, or one subrequest of a `firstAvailable` list.

    `name` is as in allocation results (`request` or `request/subrequest`). `selectors` are CEL
    expressions, those of the class first. `capacity` is None if the request has none. `error` is
    why every allocation of it fails; `unclear` is what about it is not modelled.
    """

    name: str
    class_name: str = ""
    selectors: tuple[str, ...] = ()
    mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[resource.DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, Amount], ...] | None = None
    derived: bool = False
    class_missing: bool = False
    error: str = ""
    unclear: str = ""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One device request; `listed` if it is a `firstAvailable` list."""

    name: str
    alternatives: tuple[Alternative, ...]
    listed: bool = False


class Constraint(msgspec.Struct, frozen=True, gc=False):
    """`matchAttribute` or, with `distinct`, `distinctAttribute`; `attribute` None: neither.

    `requests` empty: all of them.
    """

    attribute: str | None
    distinct: bool = False
    requests: frozenset[str] = frozenset()

    def concerns(self, request: str, alternative: str) -> bool:
        return not self.requests or request in self.requests or alternative in self.requests


class Claim(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A claim that is yet to be allocated; `name` is for people."""

    name: str
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    def alternatives(self) -> Iterator[Alternative]:
        for request in self.requests:
            yield from request.alternatives


class AllocatedDevice(msgspec.Struct, frozen=True, gc=False):
    """A device that a claim holds. `share` is "" if the claim holds it alone; `consumed` in 1e-9.

    `tolerations` are those of its request when it was allocated. With `admin_access` the device is
    only monitored, whoever else uses it.
    """

    device: DeviceId
    share: str = ""
    consumed: tuple[tuple[str, int], ...] = ()
    tolerations: tuple[resource.DeviceToleration, ...] = ()
    admin_access: bool = False


def claim_of_spec(
    name: str,
    spec: resource.ResourceClaimSpec,
    classes: Mapping[str, resource.DeviceClass],
    *,
    defaulted: bool = True,
) -> Claim:
    """What a spec requests. `defaulted`: with the API's defaults, as it would be stored."""
    devices = spec.devices
    if devices is None:
        return Claim(name)
    return Claim(
        name,
        tuple(
            _request(r, classes, spec.unknown, defaulted=defaulted) for r in devices.requests or ()
        ),
        tuple(_constraint(c) for c in devices.constraints or ()),
    )


def request_of_class(name: str, device_class: resource.DeviceClass, count: int) -> Request:
    """The request that the scheduler makes for an extended resource."""
    class_ = device_class.metadata.name
    selectors = tuple(cel_expressions(device_class.selectors))
    unclear = _unclear_class(device_class)
    return Request(name, (Alternative(name, class_, selectors, count=count, unclear=unclear),))


def held_devices(claim: resource.ResourceClaim) -> tuple[AllocatedDevice, ...] | None:
    """The devices that a claim keeps from others: all but those with adminAccess.

    None if it is not allocated.
    """
    results = _results(claim)
    return None if results is None else tuple(_held(r) for r in results if not r.admin_access)


def allocated_devices(claim: resource.ResourceClaim) -> tuple[AllocatedDevice, ...] | None:
    """All devices of a claim, also those with adminAccess; None if it is not allocated."""
    results = _results(claim)
    return None if results is None else tuple(map(_held, results))


def _results(
    claim: resource.ResourceClaim,
) -> tuple[resource.DeviceRequestAllocationResult, ...] | None:
    if (allocation := claim.allocation) is None:
        return None
    devices = allocation.devices
    return devices.results or () if devices is not None else ()


def _held(result: resource.DeviceRequestAllocationResult) -> AllocatedDevice:
    return AllocatedDevice(
        DeviceId(result.driver, result.pool, result.device),
        result.share_id or "",
        _consumed(result) if result.share_id is not None else (),
        result.tolerations or (),
        bool(result.admin_access),
    )


def unreadable_shares(claim: resource.ResourceClaim) -> list[tuple[DeviceId, str]]:
    """Devices of which a claim holds a share whose consumed capacity cannot be read, and why."""
    found = []
    for result in _results(claim) or ():
        quantities = {} if result.admin_access else result.consumed_capacity or {}
        for name, quantity in quantities.items():
            try:
                nano(quantity)
            except Unreadable as reason:
                id_ = DeviceId(result.driver, result.pool, result.device)
                found.append((id_, f"its consumption of {name} on {id_}: {reason}"))
    return found


def _consumed(result: resource.DeviceRequestAllocationResult) -> tuple[tuple[str, int], ...]:
    try:
        return tuple((name, nano(q)) for name, q in (result.consumed_capacity or {}).items())
    except Unreadable:
        return ()


def _request(
    request: resource.DeviceRequest,
    classes: Mapping[str, resource.DeviceClass],
    unknown: str,
    *,
    defaulted: bool,
) -> Request:
    if request.first_available:
        listed = tuple(
            _alternative(f"{request.name}/{sub.name}", sub, classes, unknown, defaulted=defaulted)
            for sub in request.first_available
        )
        return Request(request.name, listed, listed=True)
    if request.exactly is None:
        odd = Alternative(request.name, unclear=unknown or "a request of unknown form")
        return Request(request.name, (odd,))
    exact = _alternative(request.name, request.exactly, classes, unknown, defaulted=defaulted)
    return Request(request.name, (exact,))


def _alternative(
    name: str,
    written: resource.ExactDeviceRequest | resource.DeviceSubRequest,
    classes: Mapping[str, resource.DeviceClass],
    unknown: str,
    *,
    defaulted: bool,
) -> Alternative:
    device_class = classes.get(written.device_class_name)
    of_class = device_class.selectors if device_class is not None else ()
    capacity, unclear = _capacity(written.capacity)
    unclear = unclear or unknown or _unclear_class(device_class)
    return Alternative(
        name=name,
        class_name=written.device_class_name,
        selectors=(*cel_expressions(of_class), *cel_expressions(written.selectors)),
        mode=written.allocation_mode or (EXACT_COUNT if defaulted else ""),
        count=written.count if written.count is not None else int(defaulted),
        admin_access=_admin_access(written),
        tolerations=written.tolerations or (),
        capacity=capacity,
        derived=bool(written.derived_attributes),
        class_missing=bool(written.device_class_name) and device_class is None,
        error=_error(written),
        unclear=unclear,
    )


def _unclear_class(device_class: resource.DeviceClass | None) -> str:
    """What about a class is not modelled; "" if nothing."""
    if device_class is None or device_class.spec is None:
        return ""
    if any(selector.cel is None for selector in device_class.selectors):
        return f"a selector of class {device_class.metadata.name} is of an unknown form"
    return device_class.spec.unknown


def _admin_access(
    written: resource.ExactDeviceRequest | resource.DeviceSubRequest,
) -> bool | None:
    return written.admin_access if isinstance(written, resource.ExactDeviceRequest) else None


def _error(written: resource.ExactDeviceRequest | resource.DeviceSubRequest) -> str:
    if any(s.cel is None for s in written.selectors or ()):
        return "a selector is of an unknown form"
    if not written.device_class_name:
        return "the device class name is missing"
    return ""


def _capacity(
    written: resource.CapacityRequirements | None,
) -> tuple[tuple[tuple[str, Amount], ...] | None, str]:
    """What is requested, and why it cannot be read ("" if it can)."""
    if written is None:
        return None, ""
    try:
        requests = sorted((written.requests or {}).items())
        return tuple((name, amount(quantity)) for name, quantity in requests), ""
    except Unreadable as reason:
        return (), f"a requested capacity cannot be read: {reason}"


def cel_expressions(selectors: tuple[resource.DeviceSelector, ...] | None) -> Iterator[str]:
    for selector in selectors or ():
        if selector.cel is not None:
            yield selector.cel.expression


def _constraint(constraint: resource.DeviceConstraint) -> Constraint:
    requests = frozenset(constraint.requests or ())
    if constraint.match_attribute is not None:
        return Constraint(constraint.match_attribute, distinct=False, requests=requests)
    if constraint.distinct_attribute is not None:
        return Constraint(constraint.distinct_attribute, distinct=True, requests=requests)
    return Constraint(None, requests=requests)
