"""Rules about constraints between the devices of one claim."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fettle.api.resource import DeviceAttribute
from fettle.cel import AttributeRead, split_name
from fettle.dra import DeviceView, lookup_attribute
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Field, Manifest, ManifestClaim, ManifestOption
from fettle.lint.names import listed, nearest
from fettle.lint.survey.matching import Selection
from fettle.lint.survey.totals import Survey

SurveyedOptions = list[tuple[ManifestOption, Survey]]
NeededDevices = dict[Selection, tuple[Survey, int]]


class _Countable(NamedTuple):
    """A constraint on an attribute, what it needs, and the nodes that have candidates of each
    request."""

    field: Field
    attribute: str
    needed: NeededDevices
    nodes: Iterator[str]

    @property
    def total(self) -> int:
        return sum(count for _, count in self.needed.values())


class UnpublishedAttribute(Rule):
    """A constraint on an attribute that no matching device publishes."""

    id = "FTL013"
    reproduced = True
    name = "unpublished-attribute"
    severity = Severity.WARN
    denies_if = "no device of the driver can have it"
    strict = True
    inventory = True
    today = "The constraint is never satisfied: the pod stays Pending."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            for constraint, field, attribute in _constrained_attributes(
                claim, "matchAttribute", "distinctAttribute"
            ):
                for option, survey in _surveyed(claim, constraint, cluster) or ():
                    if survey.fingerprints and not _has_attribute(survey, attribute):
                        yield self._unpublished(field, attribute, option, survey, cluster)
                        break

    def _unpublished(
        self,
        field: Field,
        attribute: str,
        option: ManifestOption,
        survey: Survey,
        cluster: Cluster,
    ) -> Finding:
        published = {
            name if "/" in name else f"{fingerprint.driver}/{name}"
            for fingerprint in survey.fingerprints
            for name in fingerprint.attributes
        }
        near = nearest(attribute, published)
        driver = cluster.contradictable(survey)
        read = AttributeRead("attributes", *split_name(attribute, driver))
        never = driver and not cluster.may_come(driver, read)
        return self.finding(
            field,
            f"none of the {survey.matched} devices that match request {option.name!r} has the "
            f"attribute {attribute} (they publish: {listed(published)})",
            f"did you mean {near}?" if near else "use an attribute that the driver publishes",
            Severity.DENY if never else None,
        )


class NoCommonValue(Rule):
    """matchAttribute where no node has enough devices with the same value."""

    id = "FTL014"
    reproduced = True
    name = "no-common-value"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = "The pod stays Pending: `cannot allocate all claims`."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        for one in _countable(manifest, "matchAttribute", cluster):
            for node in one.nodes:
                if _share_a_value(one.needed, one.attribute, node):
                    break
                yield None
            else:
                yield self.finding(
                    one.field,
                    f"no node has {one.total} matching devices that share one value of "
                    f"{one.attribute}",
                    "ask for fewer devices, or drop the constraint",
                )


class TooFewDistinctValues(Rule):
    """distinctAttribute where no node has that many different values."""

    id = "FTL015"
    reproduced = True
    name = "too-few-distinct-values"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = "The pod stays Pending: `cannot allocate all claims`."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        for one in _countable(manifest, "distinctAttribute", cluster):
            most = 0
            for node in one.nodes:
                most = max(most, _count_values(one.needed, one.attribute, node))
                if most >= one.total:
                    break
                yield None
            else:
                fewer = f"ask for at most {most}, or " if most else ""
                yield self.finding(
                    one.field,
                    f"{one.total} devices with different values of {one.attribute} are requested, "
                    f"but one node has at most {most}",
                    f"{fewer}drop the constraint",
                )


class ContradictoryConstraints(Rule):
    """One constraint wants an attribute to be the same on devices, another to differ on them."""

    id = "FTL058"
    reproduced = True
    name = "contradictory-constraints"
    severity = Severity.DENY
    today = "No devices can ever satisfy both: the pod stays Pending."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            same: dict[str, list[Field]] = {}
            for constraint, _, attribute in _constrained_attributes(claim, "matchAttribute"):
                same.setdefault(attribute, []).append(constraint)
            for constraint, field, attribute in _constrained_attributes(claim, "distinctAttribute"):
                for other in same.get(attribute, ()):
                    if _fewest_shared(claim, constraint, other) > 1:
                        yield self.finding(
                            field,
                            f"wants {attribute} to differ on devices on which a matchAttribute "
                            "constraint wants it to be the same",
                            "drop one of the two constraints",
                        )
                        break


def _fewest_shared(claim: ManifestClaim, one: Field, other: Field) -> int:
    """How many devices two constraints are both about, at least."""
    both = {o.name for o in claim.meant(one.at("requests"))}
    both &= {o.name for o in claim.meant(other.at("requests"))}
    return sum(
        min(o.count or 0 for o in request.options)
        for request in claim.requests
        if request.options and all(o.name in both for o in request.options)
    )


def _constrained_attributes(
    claim: ManifestClaim, *kinds: str
) -> Iterator[tuple[Field, Field, str]]:
    """Each constraint, the field of its attribute, and the attribute."""
    for constraint in claim.constraints:
        for kind in kinds:
            if attribute := constraint.text(kind):
                yield constraint, constraint.at(kind), attribute


def _surveyed(claim: ManifestClaim, constraint: Field, cluster: Cluster) -> SurveyedOptions | None:
    """The options that a constraint is about, with their surveys; None if one is not known.

    None for alternatives too: any of them may satisfy the constraint.
    """
    wanted: SurveyedOptions = []
    for option in claim.meant(constraint.at("requests")):
        survey = cluster.survey(option)
        if survey is None or not survey.decided or option.count is None or "/" in option.name:
            return None
        wanted.append((option, survey))
    return wanted


def _countable(manifest: Manifest, kind: str, cluster: Cluster) -> Iterator[_Countable]:
    """The constraints of a kind of which nodes can say whether they have the devices for it."""
    for claim in manifest.claims:
        for constraint, field, attribute in _constrained_attributes(claim, kind):
            wanted = _surveyed(claim, constraint, cluster)
            if wanted and _all_publish(wanted, attribute):
                needed = _needed_devices(wanted)
                yield _Countable(field, attribute, needed, _nodes_with_all(wanted))


def _all_publish(wanted: SurveyedOptions, attribute: str) -> bool:
    """Whether each request has a match with the attribute; if not, another rule reports it."""
    return all(_has_attribute(survey, attribute) for _, survey in wanted)


def _has_attribute(survey: Survey, attribute: str) -> bool:
    return any(_attribute_values(attribute, survey.fingerprints.values()))


def _needed_devices(wanted: SurveyedOptions) -> NeededDevices:
    """How many devices each selection needs: requests with equal selectors share candidates."""
    needed: NeededDevices = {}
    for option, survey in wanted:
        _, before = needed.get(survey.selection, (survey, 0))
        needed[survey.selection] = (survey, before + (option.count or 0))
    return needed


def _nodes_with_all(wanted: SurveyedOptions) -> Iterator[str]:
    first, *others = (survey.by_node for _, survey in wanted)
    return (node for node in first if all(node in on for on in others))


def _share_a_value(needed: NeededDevices, attribute: str, node: str) -> bool:
    counted = []
    for survey, count in needed.values():
        counts = Counter(_attribute_values(attribute, survey.by_node[node]))
        counted.append({one for one, found in counts.items() if found >= count})
    return bool(set.intersection(*counted))


def _count_values(needed: NeededDevices, attribute: str, node: str) -> int:
    values: set[DeviceAttribute] = set()
    for survey, _ in needed.values():
        values.update(_attribute_values(attribute, survey.by_node[node]))
    return len(values)


def _attribute_values(attribute: str, devices: Iterable[DeviceView]) -> Iterator[DeviceAttribute]:
    found = (lookup_attribute(attribute, device) for device in devices)
    return (value for value in found if value is not None)
