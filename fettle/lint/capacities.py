"""Rules about how much of a device's capacity a request asks for."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fettle.allocator.capacities import Requested, fits
from fettle.allocator.outcomes import Aborted
from fettle.amounts import Unreadable, amount, nano
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest
from fettle.lint.names import listed, nearest
from fettle.lint.surveys import Survey
from fettle.published import Capacity
from fettle.wire.resource import DeviceCapacity, Quantity


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
                offers, wanted = _offers(survey, name), field.value
                if not isinstance(wanted, str | int) or not offers or _may_give(offers, wanted):
                    continue
                problem = f"no matching device can give {wanted} of {name}"
                if most := _most(offers):
                    yield self.finding(
                        field,
                        f"{problem}: the largest amount available is {most}",
                        f"ask for at most {most}, in the steps of its requestPolicy",
                    )
                else:
                    fix = "ask for less: the steps of its requestPolicy round it up"
                    yield self.finding(field, problem, fix)


class _Offer(NamedTuple):
    """A capacity of a device as it is published, and as the allocator reads it."""

    wire: DeviceCapacity
    read: Capacity


def _offers(survey: Survey, name: str) -> list[_Offer]:
    """This capacity of all devices that have it; [] where one of them cannot be read."""
    devices = [device.published for device in survey.looks.values()]
    if any(device.unclear for device in devices):
        return []
    return [
        _Offer(found, device.capacities[name])
        for device in devices
        if (found := (device.device.capacity or {}).get(name)) is not None
    ]


def _may_give(offers: Iterable[_Offer], wanted: Quantity) -> bool:
    """Whether a device that is not shared with others offers this much, or that is unclear.

    Whether steps are counted in whole units depends on a feature gate, which is not known here.
    """
    try:
        asked = {"": amount(wanted)}
    except Unreadable:
        return True
    return any(_gives(offer, asked, fractional=way) for offer in offers for way in (False, True))


def _gives(offer: _Offer, asked: Requested, *, fractional: bool) -> bool:
    try:
        return fits(asked, {"": offer.read}, {}, {}, fractional=fractional)
    except Aborted:
        return False


def _most(offers: Iterable[_Offer]) -> str:
    """The largest of the amounts that a device names and can give; "" if there is none."""
    given = (one for offer in offers for one in _named(offer.wire) if _may_give((offer,), one))
    return str(max(given, key=nano, default=""))


def _named(capacity: DeviceCapacity) -> Iterator[Quantity]:
    yield capacity.value
    if (policy := capacity.request_policy) is not None:
        yield from policy.valid_values or ()
        if policy.valid_range is not None and policy.valid_range.max is not None:
            yield policy.valid_range.max
