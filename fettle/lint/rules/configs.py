"""Rules about opaque configurations of drivers, which Kubernetes stores without reading them.

ComputeDomains of NVIDIA's driver are known where `lint.watch` in the settings names ComputeDomain,
in a snapshot, and where they are among the files of `fettle lint`.
"""

from collections.abc import Iterator, Mapping

from fettle.api.raw import text
from fettle.api.resource import ComputeDomain
from fettle.lint.cluster import Cluster
from fettle.lint.drivers import Driver, parameters_of
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Field, Manifest, ManifestClaim, ManifestOption
from fettle.lint.names import listed, nearest
from fettle.lint.rules.selectors import required_values
from fettle.pacing import pause

_COMPUTE_DOMAIN_DRIVER = "compute-domain.nvidia.com"
_CHANNEL = "ComputeDomainChannelConfig"


def _all_configs(manifest: Manifest) -> Iterator[Field]:
    """The configurations of claims and classes."""
    for claim in manifest.claims:
        yield from claim.configs
    for spec in manifest.device_classes:
        yield from spec.each("config")


def _known_driver(config: Field, cluster: Cluster) -> tuple[Driver, Field] | None:
    name, parameters = parameters_of(config)
    driver = cluster.drivers.get(name)
    written = isinstance(parameters.value, dict)  # else the API server refuses it
    return (driver, parameters) if driver is not None and written else None


class ConfigOfOtherDriver(Rule):
    """An opaque configuration for a driver that none of the requested devices belongs to."""

    id = "FTL018"
    name = "config-of-other-driver"
    on_node = True
    severity = Severity.WARN
    inventory = True
    today = "It is silently ignored."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            for config in claim.configs:
                driver, _ = parameters_of(config)
                candidates: set[str] = set()
                for option in claim.meant(config.at("requests")):
                    survey = cluster.survey(option)
                    if survey is None or not survey.drivers:
                        break  # not known: the devices may belong to that driver
                    candidates |= survey.drivers
                else:
                    if driver and candidates and driver not in candidates:
                        near = nearest(driver, candidates)
                        yield self.finding(
                            config.at("opaque", "driver"),
                            f"the requested devices belong to {listed(candidates)}, so "
                            f"the configuration for {driver} is ignored",
                            f"write {near}" if near else "",
                        )


class BadConfig(Rule):
    """An opaque configuration that its driver does not accept.

    What the driver's schema does not know at all may be newer than the schema, so it only warns.
    """

    id = "FTL019"
    name = "bad-config"
    on_node = True
    severity = Severity.DENY
    warns_if = "a field, version or kind is unknown, since the driver may be newer"
    today = (
        "The claim is allocated and the pod bound; then the driver refuses to prepare the device "
        "(`FailedPrepareDynamicResources`), and the containers are never created."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for config in _all_configs(manifest):
            if known := _known_driver(config, cluster):
                validation = cluster.drivers.validate(*known)
                for problem in validation.problems:
                    severity = Severity.DENY if problem.denies else Severity.WARN
                    yield self.finding(problem.field, problem.message, severity=severity)
                if validation.undecided:
                    yield self.finding(known[1], validation.undecided, severity=Severity.UNDECIDED)


class FeatureOff(Rule):
    """An opaque configuration that needs a driver feature that is off."""

    id = "FTL020"
    name = "driver-feature-off"
    on_node = True
    severity = Severity.WARN
    denies_if = "`lint.driverFeatures` says that it is off"
    today = "As for a bad configuration: the driver refuses to prepare the device."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for config in _all_configs(manifest):
            if known := _known_driver(config, cluster):
                driver = known[0].driver
                for missing in cluster.drivers.validate(*known).missing:
                    where = "here" if missing.declared else "by default"
                    yield self.finding(
                        missing.field,
                        f"needs the feature {missing.feature} of {driver}, which is off {where}",
                        "turn it on in the driver, and declare it in Fettle's settings: "
                        f"lint.driverFeatures: {{{driver}: {{{missing.feature}: true}}}}",
                        severity=Severity.DENY if missing.declared else Severity.WARN,
                    )


class ConfigOfOtherKind(Rule):
    """A configuration for one kind of device on a request for another kind."""

    id = "FTL021"
    name = "config-of-other-kind"
    on_node = True
    severity = Severity.WARN
    denies_if = "the class can never get another kind"
    today = "The driver refuses to prepare the device: `cannot apply GpuConfig to device …`."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            for config in claim.configs:
                requests = config.at("requests")
                if not requests.value or (known := _known_driver(config, cluster)) is None:
                    continue  # drivers ignore one for all requests where it does not apply
                driver, parameters = known
                kind = cluster.drivers.validate(driver, parameters).kind
                for option in claim.meant(requests):
                    types = _device_types(option, driver, cluster)
                    if kind and kind.devices and types and not types & set(kind.devices):
                        yield self.finding(
                            parameters.at("kind"),
                            f"{kind.kind} is for devices of type {listed(kind.devices)}, and "
                            f"request {option.name!r} gets type {listed(types)}",
                            _suggest_kind(driver, types),
                            Severity.DENY
                            if types == _types_of_class(option, driver, cluster)
                            else Severity.WARN,
                        )
                        break


def _device_types(option: ManifestOption, driver: Driver, cluster: Cluster) -> set[str]:
    """The attribute `type` of an option's devices, or the type that its class stands for."""
    survey = cluster.survey(option)
    if survey is not None and survey.decided and survey.fingerprints:
        of_driver = [d for f, d in survey.fingerprints.items() if f.driver == driver.driver]
        values = [(d.device.attributes or {}).get("type") for d in of_driver]
        if all(value is not None and value.string for value in values):
            return {value.string for value in values if value is not None and value.string}
    return _types_of_class(option, driver, cluster)


def _types_of_class(option: ManifestOption, driver: Driver, cluster: Cluster) -> set[str]:
    """The types that a class requires, whatever devices exist now; empty if it takes any. One that
    comes with the driver and is not known here is as the driver has it."""
    if (selection := cluster.selection(option)) is None:
        known = driver.classes.get(option.class_name)
        return {known} if known else set()
    for expression in selection.of_class:
        for read, values in required_values(cluster.equations(expression)):
            if (read.domain, read.name) == (driver.driver, "type"):
                return {value for _, value in values}
    return set()


def _suggest_kind(driver: Driver, types: set[str]) -> str:
    kinds = [kind.kind for kind in driver.kinds if types & set(kind.devices)]
    return f"write kind: {kinds[0]}" if kinds else ""


class ConfigOfParent(Rule):
    """A configuration names a request with alternatives, not one of them."""

    id = "FTL022"
    name = "config-of-parent"
    on_node = True
    severity = Severity.WARN
    today = (
        "Drivers compare it with the name that was allocated, `main/sub`: those of NVIDIA and the "
        "example driver ignore the configuration."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            listed_requests = {r.name: r for r in claim.requests if r.alternatives}
            for config in claim.configs:
                for entry in config.entries("requests"):
                    if (request := listed_requests.get(text(entry.value))) is not None:
                        names = ", ".join(option.name for option in request.options)
                        yield self.finding(
                            entry,
                            f"{request.name!r} has alternatives, and drivers look for the name of "
                            "the allocated one",
                            f"write {names}",
                        )


class ConfigNeverApplies(Rule):
    """A configuration that later ones replace for every request."""

    id = "FTL023"
    name = "config-never-applies"
    on_node = True
    severity = Severity.WARN
    today = "If two configurations apply to one request, the last one wins."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            for config, concerned in _replaced(claim):
                yield self.finding(
                    config,
                    "never applies: later configurations of the same kind replace it for all "
                    f"its requests ({listed(concerned)})",
                    "remove it, or move it after the others",
                )


def _option_names(claim: ManifestClaim, config: Field) -> set[str]:
    return {option.name for option in claim.meant(config.at("requests"))}


def _replaced(claim: ManifestClaim) -> list[tuple[Field, set[str]]]:
    """Configurations that later ones of the same driver and kind replace for all their requests,
    with these requests. Configurations of other kinds apply side by side."""
    found: list[tuple[Field, set[str]]] = []
    covered: dict[tuple[str, str], set[str]] = {}
    for config in reversed(list(claim.configs)):
        driver, parameters = parameters_of(config)
        later = covered.setdefault((driver, parameters.text("kind")), set())
        concerned = _option_names(claim, config)
        if concerned and concerned <= later:
            found.append((config, concerned))
        later |= concerned
        pause()
    return found[::-1]


class UnknownComputeDomain(Rule):
    """A configuration for a ComputeDomain that does not exist, or is in another namespace."""

    id = "FTL024"
    name = "unknown-compute-domain"
    on_node = True
    severity = Severity.WARN
    denies_if = "it is the name of one, or is in another namespace"
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
                if driver != _COMPUTE_DOMAIN_DRIVER or not (uid := parameters.text("domainID")):
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
                        Severity.DENY,
                    )

    def _unknown(self, field: Field, uid: str, cluster: Cluster) -> Iterator[Finding]:
        """A name in place of a UID is a mistake even if not all ComputeDomains are known."""
        if (domain := _domain_named(uid, cluster.compute_domains or {})) is not None:
            yield self.finding(
                field,
                "is the name of a ComputeDomain, but must be its UID",
                f"in the pod, use the ResourceClaimTemplate that {domain.metadata.key} creates "
                "(spec.channel.resourceClaimTemplate)",
                Severity.DENY,
            )
        elif cluster.knows("ComputeDomain"):
            yield self.finding(
                field,
                f"no ComputeDomain has the UID {uid}",
                "in the pod, use the ResourceClaimTemplate that the driver creates for a "
                "ComputeDomain (its spec.channel.resourceClaimTemplate)",
            )


def _domain_named(name: str, domains: Mapping[str, ComputeDomain]) -> ComputeDomain | None:
    return next((domain for domain in domains.values() if domain.metadata.name == name), None)
