"""Rules about versions of the API, and features that are switched off."""

from collections.abc import Iterator, Mapping

from fettle.lint.cluster import Cluster
from fettle.lint.fields import Field
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest, Option

REMOVED: Mapping[str, str] = {"v1beta1": "1.38", "v1beta2": "1.39"}
"""Versions of resource.k8s.io, and the Kubernetes in which they are no longer served."""


class FeatureDisabled(Rule):
    """A field that this cluster drops, because its feature gate is off."""

    id = "FTL032"
    name = "feature-disabled"
    severity = Severity.WARN
    today = "The API server drops the field without a word, and stores a different claim."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        if not cluster.disabled:
            return
        for claim in manifest.claims:
            for request in claim.requests:
                for gate, field in _gated(request.field, request.options):
                    if gate in cluster.disabled and field.value:
                        yield self.finding(
                            field,
                            f"the feature gate {gate} is off in this cluster, so this is dropped",
                            f"do without it, or turn {gate} on",
                        )


def _gated(request: Field, options: tuple[Option, ...]) -> Iterator[tuple[str, Field]]:
    yield "DRAPrioritizedList", request.at("firstAvailable")
    for option in options:
        yield "DRADeviceTaints", option.field.at("tolerations")
        yield "DRAConsumableCapacity", option.field.at("capacity")
        yield "DRAAdminAccess", option.field.at("adminAccess")


class OldVersion(Rule):
    """A beta version of resource.k8s.io that a coming Kubernetes no longer serves."""

    id = "FTL034"
    seen = True
    name = "old-version"
    severity = Severity.WARN
    today = (
        "Kubernetes 1.37 does not serve beta versions unless told to (404), and what was stored "
        "through one stays; v1beta1 is removed in 1.38, v1beta2 in 1.39."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        group, _, version = manifest.written_as.partition("/")
        if group == "resource.k8s.io" and version in REMOVED:
            yield self.finding(
                manifest.root.at("apiVersion"),
                f"{manifest.written_as} is no longer served from Kubernetes {REMOVED[version]} on",
                "write resource.k8s.io/v1",
            )
