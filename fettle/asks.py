"""What one pod needs of devices: its policy, device-plugin units, and DRA requests.

Derived from the pod as it is sent by the scheduler and the claims, templates, classes and
namespace labels of a view; equal asks share verdicts. Stands between view and verdict; pure.
"""

from collections.abc import Iterator, Mapping

import msgspec

from fettle.model import DeviceId
from fettle.policy import Policies, Policy, Resolved
from fettle.view import View
from fettle.wire import core, resource

OWN_PREFIX = "fettle.dev/"
MARKER = "fettle.dev/claims"
"""The extended resource that the webhook adds to pods with claims, so that we are asked."""
IMPLICIT_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"


class Request(msgspec.Struct, frozen=True):
    """One DRA request: `count` devices that match all `selectors`, or all of them (count None).

    `selectors` are CEL expressions, those of the class first. `unsupported` says what about the
    request is not modelled ("" if nothing): it is then undecided on every node.
    """

    name: str
    class_name: str
    selectors: tuple[str, ...]
    count: int | None
    tolerations: tuple[resource.DeviceToleration, ...] = ()
    unsupported: str = ""


class Units(msgspec.Struct, frozen=True):
    """`count` units of an extended resource; `backing` where a DeviceClass stands behind it."""

    resource: str
    count: int
    backing: Request | None = None


class Ask(msgspec.Struct, frozen=True):
    """What a pod needs. `held` are the devices of claims that are allocated already.

    `unsettled` are reasons why part of the ask cannot be judged, such as a claim not yet seen.
    """

    policy: Policy
    units: tuple[Units, ...] = ()
    requests: tuple[Request, ...] = ()
    held: tuple[DeviceId, ...] = ()
    unsettled: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names for people of what is asked: resources, then device classes."""
        names = [u.resource for u in self.units]
        names += [r.class_name for r in self.requests]
        names += [d.driver for d in self.held]
        return tuple(dict.fromkeys(names)) or ("resource claims",)

    @property
    def selectors(self) -> frozenset[str]:
        requests = (*self.requests, *(u.backing for u in self.units if u.backing is not None))
        return frozenset(e for r in requests for e in r.selectors)


def uses_devices(pod: core.Pod) -> bool:
    """Whether a pod asks for any extended resource of somebody else's, or has a claim."""
    if pod.spec is None:
        return False
    return bool(pod.spec.resource_claims) or any(True for _ in device_units(pod))


def device_units(pod: core.Pod) -> Iterator[tuple[str, int]]:
    """(extended resource, units) of a pod, counted as the scheduler does.

    The sum over containers and sidecars, or one init container's need where that is more.
    """
    if pod.spec is None:
        return
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers or ():
        needs = _container_units(container)
        if container.restart_policy == "Always":
            for name, count in needs.items():
                running[name] = running.get(name, 0) + count
                peak[name] = max(peak.get(name, 0), running[name])
        else:
            for name, count in needs.items():
                peak[name] = max(peak.get(name, 0), running.get(name, 0) + count)
    for container in pod.spec.containers or ():
        for name, count in _container_units(container).items():
            running[name] = running.get(name, 0) + count
    for name in sorted({*running, *peak}):
        if (count := max(running.get(name, 0), peak.get(name, 0))) > 0:
            yield name, count


def _container_units(container: core.Container) -> dict[str, int]:
    if container.resources is None:
        return {}
    quantities = {**(container.resources.limits or {}), **(container.resources.requests or {})}
    return {
        name: count
        for name, quantity in quantities.items()
        if is_device_resource(name) and (count := units_of(quantity)) > 0
    }


def is_device_resource(name: str) -> bool:
    """Whether a resource is an extended one, as Kubernetes defines it, and not our marker."""
    if name.startswith(IMPLICIT_CLASS_PREFIX):
        return True
    domain, slash, _ = name.partition("/")
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash) and not native and not name.startswith(OWN_PREFIX)


MAX_UNITS = 2**63 - 1
_SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def units_of(quantity: str | int) -> int:
    """An extended resource's quantity, which the API requires to be whole; 0 if it is none."""
    if isinstance(quantity, int):
        return min(max(0, quantity), MAX_UNITS)
    number = quantity.rstrip("kKMGi")
    factor = _SUFFIXES.get(quantity[len(number) :], 1)
    try:
        return min(max(0, int(number)) * factor, MAX_UNITS)
    except ValueError:
        return 0


def resolve_policy(pod: core.Pod, view: View, policies: Policies) -> Resolved:
    """The policy of a pod, from its annotations and its namespace's labels."""
    return policies.resolve(pod.metadata.annotations, view.namespaces.get(pod.metadata.namespace))


def ask_of(pod: core.Pod, view: View, policies: Policies) -> Ask | None:
    """The pod's ask in this view; None where it needs no devices at all."""
    units = tuple(
        Units(name, count, _backing(name, count, view.classes)) for name, count in device_units(pod)
    )
    claims = pod.spec.resource_claims if pod.spec is not None else None
    if not units and not claims:
        return None
    requests: list[Request] = []
    held: list[DeviceId] = []
    unsettled: list[str] = []
    for entry in claims or ():
        spec, claim = _claim_of(pod, entry, view)
        if claim is not None and (devices := allocated_devices(claim)) is not None:
            held += devices
        elif spec is None:
            unsettled.append(f"claim {entry.name}: neither claim nor template is known yet")
        else:
            requests += _requests(entry.name, spec, view.classes)
            if spec.devices is not None and spec.devices.constraints:
                unsettled.append(f"claim {entry.name}: constraints are not modelled")
    policy = resolve_policy(pod, view, policies).policy
    return Ask(policy, units, tuple(requests), tuple(held), tuple(unsettled))


def standing_selectors(view: View) -> Iterator[str]:
    """The expressions of all classes and templates: what pods yet to come will be judged by."""
    for device_class in view.classes.values():
        if device_class.spec is not None:
            yield from _expressions(device_class.spec.selectors)
    for template in view.templates.values():
        for request in _requests("", template.spec.spec, view.classes):
            yield from request.selectors


def allocated_devices(claim: resource.ResourceClaim) -> tuple[DeviceId, ...] | None:
    """The devices a claim is allocated, without those of admin access; None: not allocated."""
    if claim.status is None or claim.status.allocation is None:
        return None
    devices = claim.status.allocation.devices
    results = devices.results or () if devices is not None else ()
    return tuple(DeviceId(r.driver, r.pool, r.device) for r in results if not r.admin_access)


def _claim_of(
    pod: core.Pod, entry: core.PodResourceClaim, view: View
) -> tuple[resource.ResourceClaimSpec | None, resource.ResourceClaim | None]:
    """The claim that a pod's entry stands for; while there is none, its template's spec."""
    namespace = pod.metadata.namespace
    name = entry.resource_claim_name
    if name is None and pod.status is not None:
        statuses = pod.status.resource_claim_statuses or ()
        name = next((s.resource_claim_name for s in statuses if s.name == entry.name), None)
    claim = view.claims.get(f"{namespace}/{name}") if name else None
    if claim is not None:
        return claim.spec, claim
    template = view.templates.get(f"{namespace}/{entry.resource_claim_template_name}")
    return (template.spec.spec if template is not None else None), None


def _requests(
    claim: str, spec: resource.ResourceClaimSpec, classes: Mapping[str, resource.DeviceClass]
) -> Iterator[Request]:
    for request in (spec.devices.requests if spec.devices is not None else None) or ():
        name = f"{claim}/{request.name}"
        exact = request.exactly
        if exact is None:
            what = "firstAvailable" if request.first_available else "a request of unknown form"
            yield Request(name, _first_class(request), (), 1, (), f"{what} is not modelled")
            continue
        device_class = classes.get(exact.device_class_name)
        mode = exact.allocation_mode or "ExactCount"
        yield Request(
            name=name,
            class_name=exact.device_class_name,
            selectors=(
                *_expressions(
                    device_class.spec.selectors
                    if device_class is not None and device_class.spec is not None
                    else None
                ),
                *_expressions(exact.selectors),
            ),
            count=None if mode == "All" else (exact.count if exact.count is not None else 1),
            tolerations=exact.tolerations or (),
            unsupported=_unsupported(exact, mode, device_class),
        )


def _first_class(request: resource.DeviceRequest) -> str:
    return request.first_available[0].device_class_name if request.first_available else "?"


def _unsupported(
    exact: resource.ExactDeviceRequest, mode: str, device_class: resource.DeviceClass | None
) -> str:
    if device_class is None:
        return f"device class {exact.device_class_name!r} is not known"
    if exact.admin_access:
        return "adminAccess is not modelled"
    if exact.capacity:
        return "capacity requests are not modelled"
    if mode not in ("ExactCount", "All"):
        return f"allocationMode {mode} is not modelled"
    return ""


def _expressions(selectors: tuple[resource.DeviceSelector, ...] | None) -> Iterator[str]:
    for selector in selectors or ():
        if selector.cel is not None:
            yield selector.cel.expression


def _backing(name: str, count: int, classes: Mapping[str, resource.DeviceClass]) -> Request | None:
    """The DRA request that stands for an extended resource on nodes without a device plugin."""
    if name.startswith(IMPLICIT_CLASS_PREFIX):
        device_class = classes.get(name.removeprefix(IMPLICIT_CLASS_PREFIX))
    else:
        named = [c for c in classes.values() if c.spec and c.spec.extended_resource_name == name]
        device_class = max(named, key=_newest_then_first, default=None)
    if device_class is None:
        return None
    selectors = _expressions(device_class.spec.selectors if device_class.spec else None)
    return Request(name, device_class.metadata.name, tuple(selectors), count)


def _newest_then_first(device_class: resource.DeviceClass) -> tuple[float, tuple[int, ...]]:
    created = device_class.metadata.creation_timestamp
    inverse_name = tuple(-ord(c) for c in device_class.metadata.name)
    return (created.timestamp() if created is not None else 0.0, inverse_name)
