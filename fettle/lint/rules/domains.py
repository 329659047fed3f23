"""Rules about the ComputeDomains of NVIDIA's driver. They are known where `lint.watch` in the
settings names ComputeDomain, in a snapshot, and where they stand among the files of `fettle lint`.
"""

from collections.abc import Iterator, Mapping

from fettle.api.nvidia import ComputeDomain
from fettle.lint.cluster import Cluster
from fettle.lint.drivers import parameters_of
from fettle.lint.fields import Field
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest

_DRIVER = "compute-domain.nvidia.com"
_CHANNEL = "ComputeDomainChannelConfig"


class UnknownComputeDomain(Rule):
    """A configuration for a ComputeDomain that does not exist, or is in another namespace."""

    id = "FTL024"
    name = "unknown-compute-domain"
    on_node = True
    severity = Severity.WARN
    inventory = True
    today = (
        "The claim is allocated and the pod bound; then the driver does not prepare the channel "
        "(`ComputeDomain not found: …`, retried again and again, or `namespace is different`), and "
        "the containers are never created."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        domains = cluster.compute_domains
        for claim in manifest.claims if domains is not None else ():
            for config in claim.configs:
                driver, parameters = parameters_of(config)
                field = parameters.at("domainID")
                if driver != _DRIVER or not (uid := parameters.text("domainID")):
                    continue
                if (domain := (domains or {}).get(uid)) is None:
                    yield from self._unknown(field, uid, cluster)
                elif (
                    parameters.text("kind") == _CHANNEL
                    and domain.metadata.namespace != manifest.namespace
                ):
                    yield self.finding(
                        field,
                        f"is the ComputeDomain {domain.metadata.key}, but this claim is in "
                        f"namespace {manifest.namespace}",
                        f"create the claim in namespace {domain.metadata.namespace}",
                    )

    def _unknown(self, field: Field, uid: str, cluster: Cluster) -> Iterator[Finding]:
        """A name is a mistake even where there may be further ComputeDomains."""
        if (domain := _named(uid, cluster.compute_domains or {})) is not None:
            yield self.finding(
                field,
                "is the name of a ComputeDomain, but must be its UID",
                f"in the pod, use the ResourceClaimTemplate that {domain.metadata.key} creates "
                "(spec.channel.resourceClaimTemplate)",
            )
        elif cluster.knows("ComputeDomain"):
            yield self.finding(
                field,
                f"no ComputeDomain has the UID {uid}",
                "in the pod, use the ResourceClaimTemplate that the driver creates for a "
                "ComputeDomain (its spec.channel.resourceClaimTemplate)",
            )


def _named(name: str, domains: Mapping[str, ComputeDomain]) -> ComputeDomain | None:
    return next((domain for domain in domains.values() if domain.metadata.name == name), None)
