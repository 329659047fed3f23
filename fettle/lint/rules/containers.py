"""Rules about how containers use the claims of their pod."""

from collections.abc import Iterator
from typing import NamedTuple

from fettle.lint.cluster import Cluster
from fettle.lint.fields import Field
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest, ManifestClaim, ManifestPod
from fettle.lint.names import nearest


class _Use(NamedTuple):
    """A container's use of one request: where it stands, and the pod's claim entry it names."""

    field: Field
    request: str
    entry: Field


class UnknownRequest(Rule):
    """A container names a request that its claim does not have.

    The kubelet compares with the names of main requests, so `main/sub` matches nothing either.
    That is a warning: it is the library most drivers are built on, not the kubelet, that strips
    the names of alternatives.
    """

    id = "FTL035"
    seen = True
    name = "unknown-request"
    severity = Severity.DENY
    denies_pods = True
    today = "The pod runs, the container gets no device, and there is no event."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for pod in manifest.pods:
            for use in _uses(pod):
                what, claim = cluster.claim_of(use.entry, manifest.namespace)
                if claim is not None:
                    yield from self._compare(use, what, claim)
                elif what:
                    message = f"{what} is not known yet, so {use.request!r} cannot be checked"
                    yield self.finding(use.field, message, severity=Severity.UNDECIDED)

    def _compare(self, use: _Use, what: str, claim: ManifestClaim) -> Iterator[Finding]:
        names = [request.name for request in claim.requests]
        if use.request in names:
            return
        main, _, _ = use.request.partition("/")
        if any(option.name == use.request for option in claim.options):
            message = f"{use.request!r} names an alternative; the container gets no device"
            yield self.finding(use.field, message, f"write request: {main}", Severity.WARN)
            return
        has = f"has only: {', '.join(names)}" if names else "has no requests"
        near = nearest(use.request, names)
        yield self.finding(
            use.field,
            f"{what} has no request {use.request!r} ({has}); the container gets no device",
            f"write request: {near}"
            if near
            else "name one of its requests, or leave request out to get all of the claim's devices",
        )


def _uses(pod: ManifestPod) -> Iterator[_Use]:
    """Uses that name a request; a claim the pod does not list is for the API server to refuse."""
    entries = {entry.text("name"): entry for entry in pod.claims}
    for container in pod.containers:
        for use in container.each("resources", "claims"):
            entry = entries.get(use.text("name"))
            if use.text("request") and entry is not None:
                yield _Use(use.at("request"), use.text("request"), entry)


class UnusedClaim(Rule):
    """A pod lists a claim that none of its containers uses."""

    id = "FTL036"
    seen = True
    name = "unused-claim"
    severity = Severity.WARN
    today = "The devices are allocated to the pod and stay idle."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for pod in manifest.pods:
            used = {
                use.text("name")
                for container in pod.containers
                for use in container.each("resources", "claims")
            }
            for entry in pod.claims:
                name = entry.text("name")
                if name and name not in used:
                    yield self.finding(
                        entry,
                        f"no container uses the claim {name!r}, so its devices would be idle",
                        f"add {{name: {name}}} to a container's resources.claims, or remove it",
                    )
