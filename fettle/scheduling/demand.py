"""What one pod needs of devices: its policy, device-plugin units, and DRA claims.

Derived from the pod as it is sent by the scheduler and the claims, templates, classes and
namespace labels of a view; equal asks share verdicts. Stands between view and verdict; pure.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from fettle.api import core, kinds, resource
from fettle.cluster import View
from fettle.dra import (
    NO_TIME_LIMIT,
    AllocatedDevice,
    Alternative,
    Binding,
    Claim,
    Request,
    allocated_devices,
    claim_name,
    claim_of_spec,
    claim_use,
    device_units,
    entries_with_claims,
    is_left_over,
    requests_behind,
    unreadable_shares,
    why_not_twice,
)
from fettle.model import Policies, Policy, Resolved, reasons
from fettle.model.reasons import Reason


class Units(msgspec.Struct, frozen=True, gc=False):
    """`count` units of an extended resource; `backing` where a DeviceClass stands behind it."""

    resource: str
    count: int
    backing: tuple[Request, ...] = ()


class Bound(msgspec.Struct, frozen=True, gc=False):
    """A claim that is allocated already: what it holds, and the nodes where it can be used, by a
    selector that can be parsed.

    `held` is also what it has admin access to. `awaits` says which condition a pod has to wait for
    before it is bound.
    """

    name: str
    held: tuple[AllocatedDevice, ...] = ()
    nodes: core.NodeSelector | None = None
    awaits: reasons.BindingAwaited | None = None


class Demand(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod needs. `claims` are yet to be allocated, `bound` are allocated already.

    `barred` are reasons why the scheduler places the pod nowhere now, such as a claim that is being
    deleted; `unsettled` why part of the ask cannot be judged, such as a claim not yet seen.
    `in_flight` pods with the same needs may be placed already without being visible (`unseen.py`).
    """

    policy: Policy
    units: tuple[Units, ...] = ()
    claims: tuple[Claim, ...] = ()
    bound: tuple[Bound, ...] = ()
    barred: tuple[Reason, ...] = ()
    unsettled: tuple[Reason, ...] = ()
    in_flight: int = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names for people of what is asked: resources, then device classes."""
        names = [u.resource for u in self.units]
        names += [a.class_name for c in self.claims for a in c.alternatives() if a.class_name]
        names += [h.device.driver for b in self.bound for h in b.held]
        return tuple(dict.fromkeys(names)) or ("resource claims",)

    @property
    def allocates(self) -> bool:
        """Whether the scheduler allocates devices for it, which takes until others see it."""
        return bool(self.claims) or any(units.backing for units in self.units)

    def alternatives(self) -> Iterator[Alternative]:
        """All that could be asked of the allocator."""
        for claim in self.claims:
            yield from claim.alternatives()
        for units in self.units:
            for request in units.backing:
                yield from request.alternatives

    @property
    def only_admin_access(self) -> bool:
        """Whether all that it asks for is admin access to devices that others use."""
        wanted = (bool(each.admin_access) for each in self.alternatives())
        looks = chain(wanted, (each.admin_access for bound in self.bound for each in bound.held))
        return not self.units and not self.unsettled and next(looks, False) and all(looks)

    @property
    def selectors(self) -> frozenset[str]:
        return frozenset(e for a in self.alternatives() for e in a.selectors)


def copy_to_place(pod: core.Pod) -> core.Pod:
    """A pod of the same manifest that is yet to be placed: claims that are named are shared with
    it, and from templates it gets claims of its own."""
    metadata = msgspec.structs.replace(pod.metadata, uid="")
    spec = msgspec.structs.replace(pod.spec, node_name=None) if pod.spec is not None else None
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=None)


def resolve_policy(pod: core.Pod, view: View, policies: Policies) -> Resolved:
    """The policy of a pod, from its annotations and its namespace's labels."""
    labels = view.namespaces.get(pod.metadata.namespace)
    return policies.resolve(pod.metadata.annotations, labels, view.policies, view.quarantined)


def demand_of(
    pod: core.Pod,
    view: View,
    policies: Policies,
    binding: Binding = NO_TIME_LIMIT,
    *,
    backed: bool = True,
) -> Demand | None:
    """The pod's ask in this view; None where it needs no devices at all.

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
    barred: list[Reason] = [*_left(pod, units, view)]
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
    policy = resolve_policy(pod, view, policies).policy
    return Demand(policy, units, tuple(unallocated), tuple(bound), tuple(barred), tuple(unsettled))


def _left(pod: core.Pod, units: Iterable[Units], view: View) -> Iterator[Reason]:
    """Why a claim from an earlier attempt keeps the pod from being placed, if there is one."""
    claim = view.extended_claims.get(pod.metadata.uid)
    if claim is not None and is_left_over(claim, pod) and any(u.backing for u in units):
        yield reasons.ClaimLeftOver(claim.metadata.key)


def _nodes(claim: resource.ResourceClaim) -> core.NodeSelector | None:
    return claim.allocation.node_selector if claim.allocation is not None else None


def _missing(pod: core.Pod, entry: core.PodResourceClaim) -> reasons.ClaimNotFound:
    """What an entry stands for that the cluster does not have, as far as is known."""
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
    """Why the claim or, until it is made, the template of an entry is quarantined; "" if not.

    Of a claim that is as it was before it could not be read any more nothing is made.
    """
    if claim is not None and unreadable_shares(claim):
        return ""  # that is all that cannot be read of it, and it matters to others only
    namespace = pod.metadata.namespace
    made = f"ResourceClaim {namespace}/{claim_name(pod, entry)}"
    template = f"ResourceClaimTemplate {namespace}/{entry.resource_claim_template_name}"
    said = view.quarantined.get(made, "")
    return said if said or claim is not None else view.quarantined.get(template, "")


def _unread_classes(view: View) -> list[str]:
    """Names of classes that cannot be read."""
    prefix = f"{kinds.CLASS.name} "
    return [key.removeprefix(prefix) for key in view.quarantined if key.startswith(prefix)]


def _unreadable_classes(wanted: Claim, view: View) -> list[reasons.DeviceClassUnreadable]:
    """Why classes that it names cannot be read."""
    names = dict.fromkeys(alternative.class_name for alternative in wanted.alternatives())
    return [
        reasons.DeviceClassUnreadable(name, view.quarantined[f"DeviceClass {name}"])
        for name in names
        if f"DeviceClass {name}" in view.quarantined
    ]


def _claim_of(
    pod: core.Pod, entry: core.PodResourceClaim, view: View
) -> tuple[resource.ResourceClaimSpec | None, resource.ResourceClaim | None]:
    """The claim that a pod's entry stands for; while there is none, its template's spec."""
    namespace = pod.metadata.namespace
    name = claim_name(pod, entry)
    claim = view.claims.get(f"{namespace}/{name}") if name else None
    if claim is not None:
        return claim.spec, claim
    template = view.templates.get(f"{namespace}/{entry.resource_claim_template_name}")
    return (template.spec.spec if template is not None else None), None
