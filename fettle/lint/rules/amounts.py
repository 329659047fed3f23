"""Rules about how much a claim asks for: devices, capacity of a device, and quotas.

Quotas are known where `lint.watch` in the settings names ResourceQuota, in a snapshot, and where
they are among the files of `fettle lint`.
"""

from collections.abc import Iterable, Iterator, Set

from fettle.api.resource import MAX_RESULTS, Quantity
from fettle.dra import (
    UNIT,
    CapacityOffer,
    Unreadable,
    capacity_offer,
    largest_amount,
    nano,
    readable_amount,
)
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity, of_request
from fettle.lint.manifests import Field, Manifest, ManifestClaim, ManifestOption, ManifestRequest
from fettle.lint.names import listed, misspelt, nearest
from fettle.lint.rules.api_versions import WITHOUT_DEVICES
from fettle.lint.survey.totals import Survey

_QUOTA_SUFFIX = ".deviceclass.resource.k8s.io/devices"


class CountAboveNode(Rule):
    """A request asks for more devices than match on any one node."""

    id = "FTL009"
    reproduced = True
    name = "count-above-node"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = "The pod stays Pending until a larger node joins: `cannot allocate all claims`."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            for request in claim.requests:
                surveys = [(option, cluster.survey(option)) for option in request.options]
                short = [(o, s) for o, s in surveys if s is not None and _too_few(o, s)]
                if short and len(short) == len(surveys):
                    option, survey = max(short, key=lambda pair: pair[1].most)
                    yield self.finding(
                        option.field.at("count"),
                        f"{option.count} devices are requested, but one node has at most "
                        f"{survey.most} that match "
                        f"({survey.matched} on {len(survey.by_node)} nodes)",
                        f"ask for at most {survey.most}, or widen the selectors",
                    )


def _too_few(option: ManifestOption, survey: Survey) -> bool:
    if not survey.decided or not survey.matched or option.count is None:
        return False
    return not option.everything and survey.most < option.count


class OversizedClaim(Rule):
    """The requests of one claim need more than 32 devices together.

    The fewest devices that satisfy the claim count: of alternatives the smallest, of `All` one,
    because a node without any does not satisfy it.
    """

    id = "FTL010"
    reproduced = True
    name = "claim-too-large"
    severity = Severity.DENY
    today = (
        "Scheduling fails on every node: `adding … devices exceeds the claim limit of 32`. "
        "An alternative that is too large is skipped where another one fits."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            yield from self._claim(claim)

    def _claim(self, claim: ManifestClaim) -> Iterator[Finding]:
        before = 0
        undecided: list[Finding] = []
        for request in claim.requests:
            field, least = _fewest_devices(request)
            if least is None:
                message = "unknown allocationMode, so its devices cannot be counted"
                undecided.append(self.finding(field, message, severity=Severity.UNDECIDED))
            elif before + least > MAX_RESULTS:
                total = f"{before + least} ({before} + {least})" if before else f"{least}"
                yield self.finding(
                    field,
                    f"the claim asks for at least {total} devices, "
                    f"but Kubernetes allocates at most {MAX_RESULTS} for one claim",
                    f"ask for at most {MAX_RESULTS} in all its requests together, or use several "
                    "claims",
                )
                return
            else:
                before += least
        yield from undecided


def _fewest_devices(request: ManifestRequest) -> tuple[Field, int | None]:
    """The field that decides, and the fewest devices that satisfy it; None if unknown."""
    if not request.alternatives:
        (option,) = request.options
        known = "allocationMode" if option.everything or option.count is None else "count"
        return option.field.at(known), option.count
    counts = [option.count for option in request.options]
    known_counts = [count for count in counts if count is not None]
    least = None if len(known_counts) < len(counts) else min(known_counts, default=0)
    return request.field.at("firstAvailable"), least


class AllOfTooMany(Rule):
    """allocationMode All where every node has more than 32 matches, or some already allocated."""

    id = "FTL011"
    reproduced = True
    name = "all-of-too-many"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = (
        "`All` takes every match on the node or fails: more than 32 `exceeds the claim limit`, and "
        "if one is already allocated, the pod waits until it is free."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            survey = cluster.survey(option) if option.everything else None
            if survey is None or not survey.decided or not survey.matched:
                continue
            field = option.field.at("allocationMode")
            groups = survey.by_node.values()
            if all(len(devices) > MAX_RESULTS for devices in groups):
                fewest = min(map(len, groups))
                message = f"every node has more than {MAX_RESULTS} matches (at least {fewest})"
                yield self.finding(field, message, f"narrow the selectors to at most {MAX_RESULTS}")
            elif all(any(d.allocated for d in devices) for devices in groups):
                nodes = len(survey.by_node)
                message = f"each of the {nodes} nodes with matches has some allocated already"
                fix = "ask for a count if not all are needed"
                yield self.finding(field, message, fix, possible=True)


class DisjointRequests(Rule):
    """The requests of one claim can each be satisfied, but not on the same node."""

    id = "FTL012"
    reproduced = True
    name = "disjoint-requests"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = "The pod stays Pending: all devices of a claim must be reachable from one node."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        for claim in manifest.claims:
            if len(claim.requests) < 2:
                continue
            common: frozenset[str] | None = None
            for request in claim.requests:
                nodes = nodes_for(request, cluster)
                yield None
                if not nodes:
                    break  # not known, or a mistake that another rule finds
                if common is not None and not common & nodes:
                    yield self.finding(
                        request.field,
                        f"{len(nodes)} nodes have devices for request {request.name!r}, but none "
                        "has devices for the requests before it as well",
                        "use devices that one node has, or use separate claims in separate pods",
                    )
                    break
                common = nodes if common is None else common & nodes


def nodes_for(request: ManifestRequest, cluster: Cluster) -> frozenset[str]:
    """The nodes with enough matches for a request; empty if they are not known."""
    nodes: frozenset[str] = frozenset()
    for option in request.options:
        survey = cluster.survey(option)
        if survey is None or not survey.decided:
            return frozenset()
        nodes |= survey.nodes(max(option.count or 1, 1))
    return nodes


class NoRequests(Rule):
    """A claim without any request."""

    id = "FTL033"
    reproduced = True
    name = "no-requests"
    severity = Severity.WARN
    today = "Nothing is allocated, and the container starts without a device."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        if manifest.written_as in WITHOUT_DEVICES:  # FTL034 says what is wrong
            return
        if manifest.kind == "ResourceClaimTemplate" and manifest.root.raw("spec", "devices"):
            return  # FTL201 says where they belong
        for claim in manifest.claims:
            requests = claim.field.at("devices", "requests")
            if not requests.value:
                yield self.finding(
                    requests,
                    "the claim asks for no device, so its containers start without one",
                    "add a request with a deviceClassName",
                )


class UnknownCapacity(Rule):
    """A request names a capacity that its devices do not publish under that name."""

    id = "FTL016"
    reproduced = True
    name = "unknown-capacity"
    severity = Severity.WARN
    denies_if = "it misspells one that the driver's devices publish"
    strict = True
    inventory = True
    today = (
        "No device is ever eligible, and nothing says so: the name must be spelled as in the "
        "ResourceSlice, with its domain only if it has one there."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for request in manifest.requests:
            yield from of_request([list(self._judge(o, cluster)) for o in request.options])

    def _judge(self, option: ManifestOption, cluster: Cluster) -> Iterator[Finding]:
        survey, catalogue = cluster.survey(option), cluster.catalogue
        if survey is None or catalogue is None or not survey.decided or not survey.matched:
            return
        names = {name for d in survey.fingerprints.values() for name in d.device.capacity or ()}
        driver = cluster.contradictable(survey)
        of_driver = catalogue.capacities(driver)
        for name, field in option.field.members("capacity", "requests"):
            if name not in names:
                has = f"they publish: {listed(names)}" if names else "they publish no capacities"
                bare = name.rpartition("/")[2]
                near = bare if bare in names else nearest(name, names)
                yield self.finding(
                    field,
                    f"none of the {survey.matched} matching devices has a capacity {name!r} "
                    f"({has})",
                    f"did you mean {near}?"
                    if near
                    else "ask for a capacity that they publish, or set their driver to publish it",
                    Severity.DENY if _is_misspelt(name, driver, of_driver) else None,
                )


def _is_misspelt(name: str, driver: str, published: Set[str]) -> bool:
    """Whether a driver can never publish a capacity: it does so by another spelling. Which others
    there are is a matter of its settings, such as whether devices can be shared."""
    if not driver or name in published:
        return False
    domain, _, bare = name.rpartition("/")
    return (domain == driver and bare in published) or bool(misspelt(name, published))


class CapacityTooLarge(Rule):
    """A request asks for more of a capacity than any device has or can give."""

    id = "FTL017"
    reproduced = True
    name = "capacity-too-large"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = "No device is ever eligible: the pod stays Pending."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            survey = cluster.survey(option)
            if survey is None or not survey.decided or not survey.matched:
                continue
            for name, field in option.field.members("capacity", "requests"):
                given, wanted = _offers(survey, name), field.value
                if not isinstance(wanted, str | int) or not given or _may_be_given(given, wanted):
                    continue
                problem = f"no matching device can give {wanted} of {name}"
                if most := largest_amount(given):
                    yield self.finding(
                        field,
                        f"{problem}: the largest amount available is {most}",
                        f"ask for at most {most}, in the steps of its requestPolicy",
                    )
                else:
                    fix = "ask for less: the steps of its requestPolicy round it up"
                    yield self.finding(field, problem, fix)


def _offers(survey: Survey, name: str) -> list[CapacityOffer]:
    """This capacity of all devices that have it; [] if one of them cannot be read."""
    devices = [device.published for device in survey.fingerprints.values()]
    if any(device.unclear for device in devices):
        return []
    return [found for device in devices if (found := capacity_offer(device, name)) is not None]


def _may_be_given(given: Iterable[CapacityOffer], wanted: Quantity) -> bool:
    """Whether an unshared device can give this much; True if the quantity cannot be read."""
    asked = readable_amount(wanted)
    return asked is None or any(offer.gives(asked) for offer in given)


def _quota_limits(namespace: str, cluster: Cluster) -> dict[str, int]:
    """The smallest hard limit on devices, by resource."""
    found: dict[str, int] = {}
    for quota in cluster.quotas(namespace):
        hard = quota.spec.hard if quota.spec is not None else None
        for name, quantity in (hard or {}).items():
            if name.endswith(_QUOTA_SUFFIX) and (most := _device_count(quantity)) is not None:
                found[name] = min(most, found.get(name, most))
    return found


def _device_count(quantity: str | int) -> int | None:
    try:
        return nano(quantity) // UNIT
    except Unreadable:
        return None


class QuotaTooSmall(Rule):
    """A claim counts for more devices than a quota in its namespace ever allows."""

    id = "FTL055"
    name = "quota-too-small"
    reproduced = True
    severity = Severity.WARN
    today = (
        "A claim is refused (`exceeded quota`); from a template none is created, and its pods stay "
        "Pending with the event `FailedResourceClaimCreation`. `All` counts as 32 devices, "
        "alternatives as the largest of them."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        limits = _quota_limits(manifest.namespace, cluster) if manifest.claims else {}
        for claim in manifest.claims if limits else ():
            for class_name, count in _charged_to_claim(claim).items():
                most = limits.get(f"{class_name}{_QUOTA_SUFFIX}")
                if most is not None and count > most:
                    fewer = f"ask for at most {most}, or raise the quota"
                    yield self.finding(
                        claim.field.at("devices", "requests"),
                        f"counts for {count} devices of {class_name}, but a ResourceQuota in "
                        f"namespace {manifest.namespace} allows {most}",
                        fewer if most else "raise the quota, or use another class",
                    )


def _charged_to_claim(claim: ManifestClaim) -> dict[str, int]:
    """Devices by class, as the quota counts them: the worst case of each request."""
    total: dict[str, int] = {}
    for request in claim.requests:
        worst: dict[str, int] = {}
        for option in request.options:
            worst[option.class_name] = max(
                worst.get(option.class_name, 0), _charged_to_option(option)
            )
        for name, count in worst.items():
            total[name] = total.get(name, 0) + count
    return total


def _charged_to_option(option: ManifestOption) -> int:
    return MAX_RESULTS if option.everything else option.count or 0
