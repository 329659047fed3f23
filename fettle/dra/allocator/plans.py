"""What each alternative of a claim needs on one node, found out before the search begins.

A port of the checks of `validateDeviceRequest` of k8s.io/dynamic-resource-allocation/structured
(incubating), in its order, since the first error is the one that counts.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from fettle.dra.allocator.outcomes import Aborted, Unclear
from fettle.dra.allocator.profiles import Features
from fettle.dra.claims import ALL, EXACT_COUNT, Alternative, Claim, Request
from fettle.dra.quantities import Amount
from fettle.model import reasons
from fettle.model.reasons import Reason, Unmodelled


class RequestData:
    """One alternative during a search: what it needs, and which candidates its selectors match.

    `told` is what people call it: the claim's name and its own. `everything` are the candidates
    that mode All needs, None in other modes. `matches` are those that were looked at; alternatives
    with the same selectors share them.
    """

    __slots__ = (
        "admin",
        "alternative",
        "capacity",
        "claim",
        "count",
        "everything",
        "matches",
        "request",
        "told",
    )

    def __init__(
        self,
        claim: int,
        name: str,
        request: Request,
        alternative: Alternative,
        matches: dict[int, bool],
    ) -> None:
        self.claim = claim
        self.told = f"{name}/{alternative.name}"
        self.request = request
        self.alternative = alternative
        self.count = alternative.count
        self.admin = bool(alternative.admin_access)
        self.capacity: dict[str, Amount] = dict(alternative.capacity or ())
        self.everything: list[int] | None = None
        self.matches = matches

    @property
    def name(self) -> str:
        return self.alternative.name


AllRequestData = Sequence[Sequence[Sequence[RequestData]]]
"""By claim, request, alternative."""


def lay_out(claims: Sequence[Claim]) -> AllRequestData:
    """A plan for every alternative."""
    matches: defaultdict[tuple[str, ...], dict[int, bool]] = defaultdict(dict)
    return [
        [
            [RequestData(c, claim.name, r, a, matches[a.selectors]) for a in r.alternatives]
            for r in claim.requests
        ]
        for c, claim in enumerate(claims)
    ]


def every(plans: AllRequestData) -> Iterator[RequestData]:
    return (plan for requests in plans for alternatives in requests for plan in alternatives)


def check_gates(request: Request, claim: str, features: Features) -> None:
    """Raises Aborted where a request needs a gate that is off."""
    if request.listed and not features.prioritized_list:
        raise Aborted(reasons.FeatureGateOff(f"{claim}/{request.name}", "DRAPrioritizedList"))
    if features.consumable_capacity:
        return
    for alternative in request.alternatives:
        if alternative.capacity is not None:
            raise Aborted(
                reasons.FeatureGateOff(f"{claim}/{alternative.name}", "DRAConsumableCapacity")
            )


def check(plan: RequestData, features: Features) -> None:
    """Raises Aborted or Unclear for what no device could satisfy."""
    alternative, name = plan.alternative, plan.told
    if alternative.derived:
        if features.derived_attributes:
            raise Unclear(reasons.NotModelled(Unmodelled.DERIVED_ATTRIBUTES, name))
        raise Aborted(reasons.FeatureGateOff(name, "DRADerivedAttributes"))
    if alternative.unclear:
        raise Unclear(reasons.RequestUnclear(name, alternative.unclear))
    if alternative.class_missing:
        raise Aborted(reasons.DeviceClassNotFound(name, alternative.class_name))
    if alternative.error:
        raise Aborted(reasons.RequestInvalid(name, alternative.error))
    if alternative.admin_access is not None and not features.admin_access:
        raise Aborted(reasons.FeatureGateOff(name, "DRAAdminAccess"))
    if alternative.mode not in (EXACT_COUNT, ALL):
        detail = f"unknown allocation mode {alternative.mode!r}"
        raise Aborted(reasons.RequestInvalid(name, detail))


def add_to_limit(
    total: int, request: Request, alternatives: Sequence[RequestData], claim: str, limit: int
) -> int:
    """The fewest devices that a claim needs, with one request more; raises Aborted."""
    fewest = min(plan.count for plan in alternatives)
    if fewest > limit - total:
        raise Aborted(reasons.ClaimTooLarge(claim, request.name, fewest, limit, total))
    return total + fewest


def unknown_constraints(claim: Claim) -> Iterator[Reason]:
    for number, constraint in enumerate(claim.constraints):
        if constraint.attribute is None:
            yield reasons.ConstraintInvalid(claim.name, number)
