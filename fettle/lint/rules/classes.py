"""Rules about DeviceClasses: whether they exist, what they match, and which extended resources
stand for them.
"""

from collections.abc import Iterator

import msgspec

from fettle.dra import IMPLICIT_CLASS_PREFIX
from fettle.lint.cluster import Cluster, class_selection
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Field, Manifest, ManifestOption
from fettle.lint.names import listed, nearest
from fettle.lint.rules.selectors import misspelt_value
from fettle.lint.survey.matching import Selection


class UnknownClass(Rule):
    """A request names a DeviceClass that does not exist."""

    id = "FTL001"
    reproduced = True
    name = "unknown-class"
    severity = Severity.WARN
    strict = True
    inventory = True
    absence = True
    today = "The pod stays Pending: `device class … does not exist`."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            for request in claim.requests:
                if not request.alternatives:
                    yield from _unknown_classes(self, request.options, cluster, "")


class UnknownClassAmongAlternatives(Rule):
    """One alternative of firstAvailable names a DeviceClass that does not exist."""

    id = "FTL002"
    reproduced = True
    name = "unknown-class-among-alternatives"
    severity = Severity.WARN
    strict = True
    inventory = True
    absence = True
    today = (
        "The pod stays Pending: the classes of all alternatives must exist, even of unused ones."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            for request in claim.requests:
                if request.alternatives:
                    why = ", which blocks the other alternatives too"
                    yield from _unknown_classes(self, request.options, cluster, why)


def _unknown_classes(
    rule: Rule, options: tuple[ManifestOption, ...], cluster: Cluster, why: str
) -> Iterator[Finding]:
    if not cluster.knows("DeviceClass"):
        return
    for option in options:
        name = option.class_name
        if name and cluster.device_class(name) is None:
            known = cluster.view.classes
            has = f"existing: {listed(known)}" if known else "none exist"
            near = nearest(name, known)
            fix = f"write {near}" if near else "name one that exists, or create it first"
            message = f"DeviceClass {name!r} does not exist{why} ({has})"
            yield rule.finding(option.field.at("deviceClassName"), message, fix)


class ClassMatchesNothing(Rule):
    """The selectors of a DeviceClass match no device."""

    id = "FTL003"
    reproduced = True
    name = "class-matches-nothing"
    severity = Severity.WARN
    denies_if = "a class that is written misspells a value that devices show"
    strict = True
    inventory = True
    today = "The pod stays Pending: `cannot allocate all claims`."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for spec in manifest.device_classes:
            field, of_class = spec.at("selectors"), class_selection(spec)
            near = misspelt_value(cluster.survey_of(cluster.selection_among_driver(spec)), cluster)
            for finding in self._judge(field, of_class, "this", cluster):
                if near:
                    meant = {"severity": Severity.DENY, "fix": f"did you mean {near!r}?"}
                    yield msgspec.structs.replace(finding, **meant)
                else:  # its driver may come later
                    yield msgspec.structs.replace(finding, possible=True)
            if why := cluster.why_undecided(of_class):
                yield self.finding(field, why, severity=Severity.UNDECIDED)
        for option in manifest.options:
            if (selection := cluster.selection(option)) is not None:
                field = option.field.at("deviceClassName")
                of_class = Selection(selection.of_class)
                yield from self._judge(field, of_class, f"DeviceClass {option.class_name}", cluster)

    def _judge(
        self, field: Field, selection: Selection, what: str, cluster: Cluster
    ) -> Iterator[Finding]:
        survey = cluster.survey_of(selection)
        if survey is None or not survey.decided or survey.matched or survey.aborted:
            return
        yield self.finding(
            field,
            f"{what} matches none of the {survey.surveyed} devices in {survey.pools} pools",
            "compare its selectors with what `kubectl get resourceslices -o yaml` shows",
        )


class UnguardedClass(Rule):
    """A DeviceClass's selector fails on devices of other drivers."""

    id = "FTL008"
    reproduced = True
    name = "unguarded-class"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = (
        "Class selectors are evaluated on the devices of all drivers: one that fails ends the "
        "scheduling of every pod that uses the class, with `CEL runtime error`."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for spec in manifest.device_classes:
            of_class = class_selection(spec)
            survey, asked = cluster.survey_of(of_class), cluster.drivers_asked(of_class)
            # On devices of the driver that it asks for it fails for another reason: FTL005.
            elsewhere = [
                abort
                for abort in (survey.aborts if survey is not None else ())
                if abort.device.driver not in asked
            ]
            if survey is not None and elsewhere:
                first = elsewhere[0]
                yield self.finding(
                    spec.at("selectors"),
                    f"fails on {survey.aborted} of {survey.surveyed} devices, such as "
                    f"{first.device}: {first.reason}",
                    'begin with device.driver == "…" &&, so that it never reads other drivers\' '
                    "devices",
                )


class AskedForTwice(Rule):
    """A pod requests a class's devices both by a claim and as an extended resource."""

    id = "FTL041"
    reproduced = True
    name = "asked-for-twice"
    severity = Severity.WARN
    inventory = True
    today = "Both are allocated: the pod holds twice the devices."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for pod in manifest.pods:
            claims = cluster.claims_of(pod, manifest.namespace)
            classes = {option.class_name for claim in claims for option in claim.options}
            for name in classes:
                found = cluster.device_class(name)
                own_name = found.extended_resource_name if found is not None else None
                extended = {f"{IMPLICIT_CLASS_PREFIX}{name}", own_name}
                for resource, field in pod.resources.items():
                    if resource in extended:
                        yield self.finding(
                            field,
                            f"{resource} stands for DeviceClass {name}, whose devices a claim of "
                            "this pod requests too",
                            "request them once: by the claim or by the extended resource",
                        )


class SharedResourceName(Rule):
    """Two DeviceClasses with the same extendedResourceName."""

    id = "FTL042"
    reproduced = True
    name = "shared-resource-name"
    severity = Severity.WARN
    inventory = True
    today = "The newest class wins; the other one's devices are no longer found by that name."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for spec in manifest.device_classes:
            name = spec.text("extendedResourceName")
            for other, found in cluster.view.classes.items():
                if name and found.extended_resource_name == name and other != manifest.name:
                    yield self.finding(
                        spec.at("extendedResourceName"),
                        f"DeviceClass {other} has the same name; the newest of the two wins",
                        "use another name, or widen the selectors of one class",
                    )
