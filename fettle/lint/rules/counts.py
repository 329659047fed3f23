"""Rules about how many devices a claim asks for."""

from collections.abc import Iterator

from fettle.api.resource import MAX_RESULTS
from fettle.lint.cluster import Cluster
from fettle.lint.fields import Field
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest, ManifestClaim, ManifestOption, ManifestRequest
from fettle.lint.survey.surveys import Survey


class CountAboveNode(Rule):
    """A request asks for more devices than match on any one node."""

    id = "FTL009"
    seen = True
    name = "count-above-node"
    severity = Severity.WARN
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
                        f"{survey.most} that match ({survey.matched} on {len(survey.on)} nodes)",
                        f"ask for at most {survey.most}, or widen the selectors",
                    )


def _too_few(option: ManifestOption, survey: Survey) -> bool:
    if not survey.decided or not survey.matched or option.count is None:
        return False
    return not option.everything and survey.most < option.count


class ClaimTooLarge(Rule):
    """The requests of one claim need more than 32 devices together.

    What counts is the least a claim can get: of alternatives the smallest, of `All` one device,
    since a node without any does not satisfy it.
    """

    id = "FTL010"
    seen = True
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
            field, least = _least(request)
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


def _least(request: ManifestRequest) -> tuple[Field, int | None]:
    """The field that decides, and the fewest devices that satisfy it; None: cannot be told."""
    if not request.alternatives:
        (option,) = request.options
        known = "allocationMode" if option.everything or option.count is None else "count"
        return option.field.at(known), option.count
    counts = [option.count for option in request.options]
    known_counts = [count for count in counts if count is not None]
    least = None if len(known_counts) < len(counts) else min(known_counts, default=0)
    return request.field.at("firstAvailable"), least


class AllOfTooMany(Rule):
    """allocationMode All where every node has more than 32 matches, or some that are taken."""

    id = "FTL011"
    seen = True
    name = "all-of-too-many"
    severity = Severity.WARN
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
            groups = survey.on.values()
            if all(len(devices) > MAX_RESULTS for devices in groups):
                fewest = min(map(len, groups))
                message = f"every node has more than {MAX_RESULTS} matches (at least {fewest})"
                yield self.finding(field, message, f"narrow the selectors to at most {MAX_RESULTS}")
            elif all(any(d.allocated for d in devices) for devices in groups):
                message = (
                    f"each of the {len(survey.on)} nodes with matches has some allocated already"
                )
                yield self.finding(field, message, "ask for a count if not all are needed")


class DisjointRequests(Rule):
    """The requests of one claim can each be satisfied, but not on the same node."""

    id = "FTL012"
    seen = True
    name = "disjoint-requests"
    severity = Severity.WARN
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
                    break  # not known, or for another rule
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
    """The nodes with enough matches for a request; empty where that is not known."""
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
    seen = True
    name = "no-requests"
    severity = Severity.WARN
    today = "Nothing is allocated, and the container starts without a device."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            requests = claim.field.at("devices", "requests")
            if not requests.value:
                yield self.finding(
                    requests,
                    "the claim asks for no device, so its containers start without one",
                    "add a request with a deviceClassName",
                )
