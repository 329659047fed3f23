"""Rules about old versions of the API, and fields whose feature gate is off."""

from collections.abc import Iterator, Mapping

from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Field, Manifest, ManifestOption
from fettle.lint.shapes import kubernetes, place

REMOVED: Mapping[str, str] = {"v1beta1": "1.38", "v1beta2": "1.39"}
"""Versions of resource.k8s.io, each with the Kubernetes release that stops serving it."""
ALPHA_VERSIONS = ("v1alpha1", "v1alpha2", "v1alpha3")
WITHOUT_DEVICES = ("resource.k8s.io/v1alpha1", "resource.k8s.io/v1alpha2")
"""Whose claims had no requests for devices."""
_MOVED_KINDS = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
"""Kinds that alpha versions no longer have; other kinds are still served in them."""
_V1 = "resource.k8s.io/v1"
_ALTERNATIVES_GATE = "DRAPrioritizedList"
_OPTION_GATES: Mapping[str, str] = {
    "DRADeviceTaints": "tolerations",
    "DRAConsumableCapacity": "capacity",
    "DRAAdminAccess": "adminAccess",
}
GATES: tuple[str, ...] = (_ALTERNATIVES_GATE, *_OPTION_GATES)
"""The feature gates of Kubernetes that a rule depends on."""


class FeatureDisabled(Rule):
    """A field that this cluster drops, because its feature gate is off."""

    id = "FTL032"
    name = "feature-disabled"
    reproduced = True
    severity = Severity.WARN
    today = "The API server silently drops the field and stores a different claim."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        if not cluster.disabled:
            return
        for claim in manifest.claims:
            for request in claim.requests:
                for gate, field in _gated_fields(request.field, request.options):
                    if gate in cluster.disabled and field.value:
                        yield self.finding(
                            field,
                            f"the feature gate {gate} is off in this cluster, so this is dropped",
                            f"do without it, or turn {gate} on",
                        )


def _gated_fields(
    request: Field, options: tuple[ManifestOption, ...]
) -> Iterator[tuple[str, Field]]:
    yield _ALTERNATIVES_GATE, request.at("firstAvailable")
    for option in options:
        for gate, field in _OPTION_GATES.items():
            yield gate, option.field.at(field)


class OldVersion(Rule):
    """A version of resource.k8s.io that Kubernetes does not serve, or will stop serving."""

    id = "FTL034"
    reproduced = True
    name = "old-version"
    severity = Severity.WARN
    today = (
        "Kubernetes 1.37 does not serve beta versions by default (404), but what was stored "
        "through one remains; v1beta1 is removed in 1.38, v1beta2 in 1.39."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        group, _, version = manifest.written_as.partition("/")
        if group != "resource.k8s.io":
            return
        message = ""
        if cluster.view.served.get(manifest.kind) is False:
            return  # this cluster serves no other version of it
        if version in REMOVED:
            message = f"is no longer served as of Kubernetes {REMOVED[version]}"
        elif version in ALPHA_VERSIONS and manifest.kind in _MOVED_KINDS:
            message = f"no longer has the kind {manifest.kind}, and is not served for it"
        if message:
            field = manifest.root.at("apiVersion")
            first = place(kubernetes().kinds[_V1].get(manifest.kind, "")).since
            when = (
                f" once your clusters run Kubernetes {first}, which serves it first"
                if first
                else ""
            )
            fix = f"write {_V1}{when}"
            yield self.finding(field, f"{manifest.written_as} {message}", fix)
