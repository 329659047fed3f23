"""What one pod needs of devices: its policy, device-plugin units, and DRA claims.

Made from the pod as the scheduler sends it, and from the claims, templates, classes and namespace
labels of a view. Equal demands share verdicts, and pods with the same manifest share a demand.
Stands between view and verdict; pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import chain
from math import inf
from operator import is_

import msgspec

from fettle.api import core, kinds, resource
from fettle.cluster import EMPTY, View
from fettle.dra import (
    ALL,
    NO_TIME_LIMIT,
    AllocatedDevice,
    Alternative,
    Binding,
    Claim,
    Request,
    allocated_devices,
    can_be_allocated,
    claim_name,
    claim_of_spec,
    claim_use,
    device_units,
    entries_with_claims,
    is_for_entry,
    is_left_over,
    requests_behind,
    unreadable_shares,
    why_not_twice,
)
from fettle.model import (
    ANNOTATION,
    ANNOTATIONS,
    NOTHING_INHERITED,
    Inherited,
    Mode,
    Policies,
    Policy,
    Resolved,
    reasons,
)
from fettle.model.reasons import Reason

MAX_KEPT = 1000
"""How many demands are kept."""
EXTENDED_RESOURCES = "<extended-resources>"
"""What the scheduler calls the claim that it makes for extended resources."""


class Units(msgspec.Struct, frozen=True, gc=False):
    """`count` units of an extended resource; `backing` if a DeviceClass stands behind it."""

    resource: str
    count: int
    backing: tuple[Request, ...] = ()


class Bound(msgspec.Struct, frozen=True, gc=False):
    """A claim that is allocated already, and the nodes where it can be used.

    `held` includes devices that it has admin access to. The selector of `nodes` can be parsed.
    `awaits` says which condition a pod waits for before it is bound.
    """

    name: str
    held: tuple[AllocatedDevice, ...] = ()
    nodes: core.NodeSelector | None = None
    awaits: reasons.BindingAwaited | None = None


class WaitStage(IntEnum):
    """Whether a pod has waited long enough to get what a rule condemns that is set aside."""

    NOT_YET = 0
    ENOUGH_FOR_A_BURST = 1
    ENOUGH = 2


class Demand(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod needs. `claims` are yet to be allocated, `bound` are allocated already.

    `barred` says why the scheduler places the pod nowhere now, such as a claim that is being
    deleted. `unsettled` says why part of the demand cannot be judged, such as a claim not seen yet.
    `in_flight` counts pods with the same needs that may be placed already, but are not visible yet.
    `mode` says how far Fettle may go. `patience_over`: the pod has waited as long as its policy
    lets it, so it takes Degraded devices where nothing better is left. `waited` is `NOT_YET` where
    nothing is set aside.
    """

    policy: Policy
    units: tuple[Units, ...] = ()
    claims: tuple[Claim, ...] = ()
    bound: tuple[Bound, ...] = ()
    barred: tuple[Reason, ...] = ()
    unsettled: tuple[Reason, ...] = ()
    in_flight: int = 0
    mode: Mode = Mode.ENFORCE
    patience_over: bool = False
    waited: WaitStage = WaitStage.NOT_YET

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the pod asks for, in names for people: resources, then device classes."""
        names = [u.resource for u in self.units]
        names += [a.class_name for c in self.claims for a in c.alternatives() if a.class_name]
        names += [h.device.driver for b in self.bound for h in b.held]
        return tuple(dict.fromkeys(names)) or ("resource claims",)

    @property
    def allocates(self) -> bool:
        """Whether the scheduler allocates devices for it, which others see only a moment later."""
        return bool(self.claims) or any(units.backing for units in self.units)

    def alternatives(self) -> Iterator[Alternative]:
        """All alternatives that the allocator may have to satisfy."""
        for claim in self.claims:
            yield from claim.alternatives()
        for units in self.units:
            for request in units.backing:
                yield from request.alternatives

    def most_devices(self, pool: str) -> float:
        """How many devices it asks for at most, of this resource or, if it is a driver, by claims.

        Infinite if it asks for all.
        """
        units = [units.count for units in self.units if units.resource == pool]
        if units:
            return sum(units)
        backing = (r for units in self.units for r in units.backing)
        requests = chain((r for claim in self.claims for r in claim.requests), backing)
        return sum(max(map(_count, r.alternatives), default=0) for r in requests)

    @property
    def only_admin_access(self) -> bool:
        """Whether it asks for nothing but admin access to devices that others use."""
        wanted = (bool(each.admin_access) for each in self.alternatives())
        each_is = chain(wanted, (each.admin_access for bound in self.bound for each in bound.held))
        return not self.units and not self.unsettled and next(each_is, False) and all(each_is)

    @property
    def selectors(self) -> frozenset[str]:
        return frozenset(e for a in self.alternatives() for e in a.selectors)


def _count(alternative: Alternative) -> float:
    if alternative.admin_access:
        return 0
    return inf if alternative.mode == ALL else alternative.count


def held_claims(pod: core.Pod, view: View) -> Iterator[Bound]:
    """The claims that a pod with a node was given, with their devices; a claim that the scheduler
    made for its extended resources is called `EXTENDED_RESOURCES`."""
    yield from bound_by(pod, view.claims)
    claim = view.extended_claims.get(pod.metadata.identity)
    if claim is not None and (held := allocated_devices(claim)):
        yield Bound(EXTENDED_RESOURCES, held)


def bound_by(pod: core.Pod, claims: Mapping[str, resource.ResourceClaim]) -> Iterator[Bound]:
    """Those of a pod's entries that these claims, by `namespace/name`, give devices."""
    for entry in entries_with_claims(pod):
        claim = claims.get(f"{pod.metadata.namespace}/{claim_name(pod, entry)}")
        if (
            claim is not None
            and is_for_entry(pod, entry, claim)
            and pod.metadata.uid in claim.reserved_for
            and (held := allocated_devices(claim))
        ):
            yield Bound(entry.name, held)


def copy_to_place(pod: core.Pod) -> core.Pod:
    """A pod of the same manifest that is not placed yet, and has not waited yet.

    It shares claims that it names, and gets claims of its own from templates.
    """
    metadata = msgspec.structs.replace(pod.metadata, uid="", creation_timestamp=None)
    spec = msgspec.structs.replace(pod.spec, node_name=None) if pod.spec is not None else None
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=None)


def side_by_side(demand: Demand, pod: core.Pod, number: int) -> Demand:
    """What so many copies of a pod need together on one node. They share claims that they name."""
    if number == 1:
        return demand
    shared = {one.name for one in pod.resource_claims if one.resource_claim_name}
    claims = [
        msgspec.structs.replace(claim, name=f"{claim.name} {copy}") if copy else claim
        for claim in demand.claims
        for copy in range(1 if claim.name in shared else number)
    ]
    units = [
        Units(
            each.resource,
            each.count * number,
            tuple(
                msgspec.structs.replace(request, name=f"{request.name} {copy}") if copy else request
                for request in each.backing
                for copy in range(number)
            ),
        )
        for each in demand.units
    ]
    # How likely one of them all gets a bad unit says nothing of a single one.
    placement = msgspec.structs.replace(
        demand.policy.placement, max_risk=1.0, patience=None, gang_patience=None
    )
    policy = msgspec.structs.replace(demand.policy, placement=placement)
    return msgspec.structs.replace(demand, units=tuple(units), claims=tuple(claims), policy=policy)


def resolve_policy(pod: core.Pod, view: View, policies: Policies) -> Resolved:
    """The policy of a pod, from its annotations, its workload's, and its namespace's labels."""
    labels = view.namespaces.get(pod.metadata.namespace)
    return policies.resolve(
        pod.metadata.annotations, labels, view.policies, view.quarantined, _inherited(pod, view)
    )


def _inherited(pod: core.Pod, view: View) -> Inherited:
    if not view.inherited:
        return NOTHING_INHERITED
    return view.inherited.get(pod.metadata.controller_identity, NOTHING_INHERITED)


def demand_of(
    pod: core.Pod,
    view: View,
    policies: Policies,
    binding: Binding = NO_TIME_LIMIT,
    *,
    backed: bool = True,
) -> Demand | None:
    """The pod's demand in this view; None if it needs no devices at all.

    `backed`: whether DRA may stand behind extended resources.
    """
    unread = _unread_classes(view)
    units = tuple(
        Units(
            name,
            count,
            requests_behind(pod, name, view.classes, unread) if backed else (),
        )
        for name, count in device_units(pod)
    )
    needed = list(entries_with_claims(pod))
    if not units and not needed:
        return None
    unallocated: list[Claim] = []
    bound: list[Bound] = []
    barred: list[Reason] = [*_left_over(pod, units, view)]
    unsettled: list[Reason] = []
    named: dict[str, core.PodResourceClaim] = {}
    for entry in needed:
        spec, claim = _claim_of(pod, entry, view)
        name = claim_name(pod, entry)
        if name is not None and (first := named.setdefault(name, entry)) is not entry:
            if why := why_not_twice(first, entry, claim, pod):
                barred.append(why)
            continue
        use = claim_use(entry, claim, pod, binding)
        if unreadable := _unreadable(pod, entry, claim, view):
            unsettled.append(reasons.ClaimUnreadable(entry.name, unreadable))
        elif use.barred:
            barred.append(use.barred)
        elif claim is not None and (held := allocated_devices(claim)) is not None:
            bound.append(Bound(entry.name, held, _nodes(claim), use.awaits))
        elif spec is None:
            unsettled.append(_missing(pod, entry))
        else:
            wanted = claim_of_spec(entry.name, spec, view.classes)
            if unread_classes := _unreadable_classes(wanted, view):
                unsettled += unread_classes
            else:
                unallocated.append(wanted)
    resolved = resolve_policy(pod, view, policies)
    return Demand(
        resolved.policy,
        units,
        tuple(unallocated),
        tuple(bound),
        tuple(barred),
        tuple(unsettled),
        mode=resolved.mode.mode,
    )


def _left_over(pod: core.Pod, units: Iterable[Units], view: View) -> Iterator[Reason]:
    """Why a claim of an earlier scheduling attempt keeps the pod from being placed, if so."""
    claim = view.extended_claims.get(pod.metadata.identity)
    if claim is not None and is_left_over(claim, pod) and any(u.backing for u in units):
        yield reasons.ClaimLeftOver(claim.metadata.key)


def _nodes(claim: resource.ResourceClaim) -> core.NodeSelector | None:
    return claim.allocation.node_selector if claim.allocation is not None else None


def _missing(pod: core.Pod, entry: core.PodResourceClaim) -> reasons.ClaimNotFound:
    """The reason for an entry whose claim and template are not known."""
    namespace, name = pod.metadata.namespace, claim_name(pod, entry)
    claim = f"{namespace}/{name}" if name is not None else ""
    if entry.resource_claim_name is not None:
        return reasons.ClaimNotFound(entry.name, claim)
    template = f"{namespace}/{entry.resource_claim_template_name}"
    return reasons.ClaimNotFound(entry.name, claim, template)


def _unreadable(
    pod: core.Pod,
    entry: core.PodResourceClaim,
    claim: resource.ResourceClaim | None,
    view: View,
) -> str:
    """Why the claim of an entry (before it is made: the template) is quarantined; "" if not."""
    if claim is not None and unreadable_shares(claim):
        return ""  # only its shares cannot be read, which matter to other pods only
    namespace = pod.metadata.namespace
    made = f"ResourceClaim {namespace}/{claim_name(pod, entry)}"
    template = f"ResourceClaimTemplate {namespace}/{entry.resource_claim_template_name}"
    why = view.quarantined.get(made, "")
    return why if why or claim is not None else view.quarantined.get(template, "")


def _unread_classes(view: View) -> list[str]:
    """The names of classes that cannot be read."""
    prefix = f"{kinds.CLASS.name} "
    return [key.removeprefix(prefix) for key in view.quarantined if key.startswith(prefix)]


def _unreadable_classes(wanted: Claim, view: View) -> list[reasons.DeviceClassUnreadable]:
    """Why classes that a claim names cannot be read."""
    names = dict.fromkeys(alternative.class_name for alternative in wanted.alternatives())
    return [
        reasons.DeviceClassUnreadable(name, view.quarantined[f"DeviceClass {name}"])
        for name in names
        if f"DeviceClass {name}" in view.quarantined
    ]


def _claim_of(
    pod: core.Pod, entry: core.PodResourceClaim, view: View
) -> tuple[resource.ResourceClaimSpec | None, resource.ResourceClaim | None]:
    """The spec and the claim that a pod's entry stands for; before it is made, its template's."""
    namespace = pod.metadata.namespace
    name = claim_name(pod, entry)
    claim = view.claims.get(f"{namespace}/{name}") if name else None
    if claim is not None:
        return claim.spec, claim
    template = view.templates.get(f"{namespace}/{entry.resource_claim_template_name}")
    return (template.spec.spec if template is not None else None), None


# Kept demands


class DemandCache:
    """The demands of pods in the newest view; pods with the same manifest share one.

    Pods of one workload come one after another. To make a demand, many objects are looked up, which
    costs as much as looking up 500 names. `make` may go only by the view, by the policy
    annotations of the pod and its workload, and by what its containers and claims need.
    """

    def __init__(self, make: Callable[[core.Pod], Demand | None]) -> None:
        self._make = make
        self._sources = _sources_of(EMPTY)
        self._demands: dict[bytes, Demand | None] = {}

    def of(self, pod: core.Pod, view: View) -> Demand | None:
        """The pod's demand in this view; None if it needs no devices."""
        sources = _sources_of(view)
        if len(self._demands) >= MAX_KEPT or not all(map(is_, sources, self._sources)):
            self.clear()
            self._sources = sources
        key = _key(pod, view)
        if key is None:
            return self._make(pod)
        try:
            return self._demands[key]
        except KeyError:
            demand = self._demands[key] = self._make(pod)
            return demand

    def clear(self) -> None:
        self._demands.clear()


def _sources_of(view: View) -> tuple[object, ...]:
    """The objects of a view that any demand may be made from."""
    # Compared by identity: a view shares the objects of the view before it if nothing changed.
    return view.classes, view.templates, view.namespaces, view.policies, view.quarantined


def _key(pod: core.Pod, view: View) -> bytes | None:
    """All that a pod's own demand is made from; None if that depends on more than this."""
    spec, metadata = pod.spec, pod.metadata
    if spec is None or metadata.identity in view.extended_claims:
        return None
    claims = _claims(pod, view) if spec.resource_claims else ()
    if claims is None:
        return None
    given = metadata.annotations or {}
    annotations = [given.get(name) for name in ANNOTATIONS]
    inherited = _inherited(pod, view).annotations if ANNOTATION not in given else {}
    units = spec.containers, spec.init_containers, spec.overhead
    return msgspec.json.encode((metadata.namespace, annotations, inherited, *units, claims))


_Wanted = tuple[str, str | resource.ResourceClaimSpec | None]


def _claims(pod: core.Pod, view: View) -> list[_Wanted] | None:
    """The pod's name for each of its claims, with the template's name or the claim's spec.

    None if some claim is allocated already, or cannot be allocated now.
    """
    wanted: dict[str, _Wanted] = {}
    for entry in entries_with_claims(pod):
        name = claim_name(pod, entry)
        if name is None:
            wanted[f"/{entry.name}"] = (entry.name, entry.resource_claim_template_name)
            continue
        key = f"{pod.metadata.namespace}/{name}"
        claim = view.claims.get(key)
        if (
            claim is None
            or key in wanted
            or f"{kinds.CLAIM.name} {key}" in view.quarantined
            or not can_be_allocated(entry, claim, pod)
        ):
            return None
        wanted[key] = (entry.name, claim.spec)
    return [*wanted.values()]
