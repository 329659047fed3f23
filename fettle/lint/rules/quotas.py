"""Rules about quotas of devices. They are known where `lint.watch` in the settings names
ResourceQuota, in a snapshot, and where they stand among the files of `fettle lint`.
"""

from collections.abc import Iterator

from fettle.api.resource import MAX_RESULTS
from fettle.dra import UNIT, Unreadable, nano
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest, ManifestClaim, ManifestOption

_PER_CLASS = ".deviceclass.resource.k8s.io/devices"


def _limits(namespace: str, cluster: Cluster) -> dict[str, int]:
    """The smallest hard limit on devices by resource."""
    found: dict[str, int] = {}
    for quota in cluster.quotas(namespace):
        hard = quota.spec.hard if quota.spec is not None else None
        for name, quantity in (hard or {}).items():
            if name.endswith(_PER_CLASS) and (most := _whole(quantity)) is not None:
                found[name] = min(most, found.get(name, most))
    return found


def _whole(quantity: str | int) -> int | None:
    try:
        return nano(quantity) // UNIT
    except Unreadable:
        return None


class QuotaTooSmall(Rule):
    """A claim counts for more devices than a quota in its namespace ever allows."""

    id = "FTL055"
    name = "quota-too-small"
    seen = True
    severity = Severity.WARN
    today = (
        "A claim is refused (`exceeded quota`); from a template none is created, and its pods stay "
        "Pending with the event `FailedResourceClaimCreation`. `All` counts as 32 devices, "
        "alternatives as the largest of them."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        limits = _limits(manifest.namespace, cluster) if manifest.claims else {}
        for claim in manifest.claims if limits else ():
            for class_name, count in _charged(claim).items():
                most = limits.get(f"{class_name}{_PER_CLASS}")
                if most is not None and count > most:
                    fewer = f"ask for at most {most}, or raise the quota"
                    yield self.finding(
                        claim.field.at("devices", "requests"),
                        f"counts for {count} devices of {class_name}, but a ResourceQuota in "
                        f"namespace {manifest.namespace} allows {most}",
                        fewer if most else "raise the quota, or use another class",
                    )


def _charged(claim: ManifestClaim) -> dict[str, int]:
    """Devices by class, as the quota counts them: the worst case of each request."""
    total: dict[str, int] = {}
    for request in claim.requests:
        worst: dict[str, int] = {}
        for option in request.options:
            worst[option.class_name] = max(worst.get(option.class_name, 0), _devices(option))
        for name, count in worst.items():
            total[name] = total.get(name, 0) + count
    return total


def _devices(option: ManifestOption) -> int:
    return MAX_RESULTS if option.everything else option.count or 0
