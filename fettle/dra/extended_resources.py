"""Extended resources of pods: how many units a pod needs, and the DRA requests behind them.

Counted and named as the scheduler does. Stands between API objects and demands. Pure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from fettle.api import core, resource
from fettle.dra.claims import Alternative, Request, request_of_class
from fettle.dra.quantities import Unreadable, amount
from fettle.model import OWN_PREFIX

MARKER = "fettle.dev/claims"
"""An extended resource, of which the webhook adds none to pods with claims, so that the scheduler
asks Fettle."""
IMPLICIT_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""With the name of a class: the extended resource that every DeviceClass implicitly has."""


def device_units(pod: core.Pod) -> Iterator[tuple[str, int]]:
    """(extended resource, units) of a pod, counted as the scheduler does.

    The sum over containers and sidecars, or what one init container needs if that is more; plus the
    overhead of the pod's RuntimeClass.
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
    beside = _device_units(pod.spec.overhead or {})
    for name in sorted({*running, *peak, *beside}):
        count = max(running.get(name, 0), peak.get(name, 0)) + beside.get(name, 0)
        if count > 0:
            yield name, count


def needs_units(pod: core.Pod) -> bool:
    """Whether `device_units` yields anything. Faster, since it is called for every pod."""
    if pod.spec is None:
        return False
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    return any(_container_units(container) for container in containers) or bool(
        pod.spec.overhead and _device_units(pod.spec.overhead)
    )


def _container_units(container: core.Container) -> dict[str, int]:
    if container.resources is None:
        return {}
    return _device_units(
        {**(container.resources.limits or {}), **(container.resources.requests or {})}
    )


def _device_units(quantities: core.Quantities) -> dict[str, int]:
    return {
        name: count
        for name, quantity in quantities.items()
        if is_device_resource(name) and (count := units_of(quantity)) > 0
    }


@lru_cache(maxsize=1024)
def is_device_resource(name: str) -> bool:
    """Whether a resource is an extended resource, as Kubernetes defines it, and not our marker."""
    domain, slash, _ = name.partition("/")
    if not slash:
        return False
    if name.startswith(IMPLICIT_CLASS_PREFIX):
        return True
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return not native and not name.startswith(OWN_PREFIX)


def domain_of(resource: str) -> str:
    """The domain of a resource: `nvidia.com` of `nvidia.com/gpu`."""
    return resource.partition("/")[0]


MAX_UNITS = 2**63 - 1


@lru_cache(maxsize=1024)
def units_of(quantity: str | int) -> int:
    """An extended resource's quantity as the scheduler counts it; 0 if it cannot be read.

    A part of a unit counts as one, though the API server takes none.
    """
    try:
        return min(max(0, amount(quantity).ceil()), MAX_UNITS)
    except Unreadable:
        return 0


def requests_behind(
    pod: core.Pod,
    name: str,
    classes: Mapping[str, resource.DeviceClass],
    unread: Collection[str] = (),
) -> tuple[Request, ...]:
    """The DRA requests behind a resource on nodes without a device plugin; () if there are none.

    One for each container that keeps running, and one more if an init container needs more than the
    containers after it (`createRequestsAndMappings` of the scheduler's DRA plugin). If no known
    class is behind the resource, one of the `unread` classes may be.
    """
    device_class = _class_behind(name, classes)
    if pod.spec is None:
        return ()
    if device_class is None:
        whys = [f"DeviceClass {each} cannot be read" for each in unread if _may_mean(name, each)]
        return (Request(name, (Alternative(name, unclear=whys[0]),)),) if whys else ()
    init = pod.spec.init_containers or ()
    containers = (*init, *(pod.spec.containers or ()))
    brief = {i for i, c in enumerate(init) if c.restart_policy != "Always"}
    needs = [_container_units(c).get(name, 0) for c in containers]
    wanted = {i: n for i, n in enumerate(needs) if n and i not in brief}
    extra: tuple[int, int] | None = None
    for i in sorted(brief):
        borrowed = sum(n for j, n in wanted.items() if j >= i)
        if needs[i] > borrowed and (extra is None or needs[i] - borrowed > extra[1]):
            extra = (i, needs[i] - borrowed)
    if extra is not None:
        wanted[extra[0]] = extra[1]
    return tuple(
        request_of_class(_request_name(i, containers[i], name), device_class, n)
        for i, n in wanted.items()
    )


def in_order(requests: Sequence[Request]) -> tuple[Request, ...]:
    """Requests of several resources, sorted as the scheduler does: by name, as text."""
    return tuple(sorted(requests, key=lambda request: request.name))


def _request_name(index: int, container: core.Container, name: str) -> str:
    assert container.resources is not None  # it asks for units
    names = sorted({**(container.resources.limits or {}), **(container.resources.requests or {})})
    return f"container-{index}-request-{names.index(name)}"


def _class_behind(
    name: str, classes: Mapping[str, resource.DeviceClass]
) -> resource.DeviceClass | None:
    if name.startswith(IMPLICIT_CLASS_PREFIX):
        return classes.get(name.removeprefix(IMPLICIT_CLASS_PREFIX))
    named = [c for c in classes.values() if c.extended_resource_name == name]
    return min(named, key=_newest_then_first, default=None)


def _may_mean(name: str, unread: str) -> bool:
    """Whether a class of which only the name is known may be behind a resource."""
    if name.startswith(IMPLICIT_CLASS_PREFIX):
        return name == IMPLICIT_CLASS_PREFIX + unread
    return True


def _newest_then_first(device_class: resource.DeviceClass) -> tuple[float, str]:
    created = device_class.metadata.creation_timestamp
    return (-created.timestamp() if created is not None else 0.0, device_class.metadata.name)


def uses_devices(pod: core.Pod) -> bool:
    """Whether a pod has claims or requests extended resources other than the marker."""
    return bool(pod.resource_claims) or needs_units(pod)
