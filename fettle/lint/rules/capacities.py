"""Rules about how much of a device's capacity a request asks for."""

from collections.abc import Iterable, Iterator

from fettle.api.resource import Quantity
from fettle.dra import Offer, offers
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest
from fettle.lint.names import listed, nearest
from fettle.lint.survey.surveys import Survey


class UnknownCapacity(Rule):
    """A request names a capacity that its devices do not publish under that name."""

    id = "FTL016"
    seen = True
    name = "unknown-capacity"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = (
        "No device is ever eligible, and nothing says so: the name must be spelled as in the "
        "ResourceSlice, with its domain only if it has one there."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            survey = cluster.survey(option)
            if survey is None or not survey.decided or not survey.matched:
                continue
            names = {name for d in survey.looks.values() for name in d.device.capacity or ()}
            for name, field in option.field.members("capacity", "requests"):
                if name not in names:
                    has = (
                        f"they publish: {listed(names)}" if names else "they publish no capacities"
                    )
                    bare = name.rpartition("/")[2]
                    near = bare if bare in names else nearest(name, names)
                    yield self.finding(
                        field,
                        f"none of the {survey.matched} matching devices has a capacity {name!r} "
                        f"({has})",
                        f"write {near}" if near else "ask for a capacity that they publish",
                    )


class CapacityTooLarge(Rule):
    """A request asks for more of a capacity than any device has or can give."""

    id = "FTL017"
    seen = True
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
                if not isinstance(wanted, str | int) or not given or _may_give(given, wanted):
                    continue
                problem = f"no matching device can give {wanted} of {name}"
                if most := offers.most(given):
                    yield self.finding(
                        field,
                        f"{problem}: the largest amount available is {most}",
                        f"ask for at most {most}, in the steps of its requestPolicy",
                    )
                else:
                    fix = "ask for less: the steps of its requestPolicy round it up"
                    yield self.finding(field, problem, fix)


def _offers(survey: Survey, name: str) -> list[Offer]:
    """This capacity of all devices that have it; [] where one of them cannot be read."""
    devices = [device.published for device in survey.looks.values()]
    if any(device.unclear for device in devices):
        return []
    return [found for device in devices if (found := offers.offer(device, name)) is not None]


def _may_give(given: Iterable[Offer], wanted: Quantity) -> bool:
    """Whether a device that is not shared with others gives this much, or it cannot be read."""
    asked = offers.read(wanted)
    return asked is None or any(offer.gives(asked) for offer in given)
