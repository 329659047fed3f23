"""Rules about how much of a device's capacity a request asks for."""

from collections.abc import Iterator

from fettle.amounts import Unreadable, nano
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest
from fettle.lint.names import listed, nearest
from fettle.lint.surveys import Survey
from fettle.wire.resource import CapacityPolicy, DeviceCapacity


class UnknownCapacity(Rule):
    """A request asks for a capacity by a name that its devices do not publish as such."""

    id = "FTL016"
    seen = True
    name = "unknown-capacity"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = (
        "No device is ever eligible, without a word: the name must be spelled as in the "
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
                    has = f"they have: {listed(names)}" if names else "they have no capacities"
                    bare = name.rpartition("/")[2]
                    near = bare if bare in names else nearest(name, names)
                    yield self.finding(
                        field,
                        f"none of the {survey.matched} matching devices has a capacity {name!r} "
                        f"({has})",
                        f"write {near}" if near else "ask for a capacity that they publish",
                    )


class CapacityTooLarge(Rule):
    """A request asks for more of a capacity than any device has, or may give."""

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
                if isinstance(field.value, str | int) and _never(survey, name, field.value):
                    most = max((_most(capacity) for capacity in _of(survey, name)), key=nano)
                    yield self.finding(
                        field,
                        f"no matching device can give {field.value} of {name}: the most that one "
                        f"gives is {most}",
                        f"ask for at most {most}, in the steps of its requestPolicy",
                    )


def _never(survey: Survey, name: str, wanted: str | int) -> bool:
    """Whether the devices have this capacity, and none can give so much of it."""
    capacities = _of(survey, name)
    try:
        return bool(capacities) and not any(_gives(capacity, wanted) for capacity in capacities)
    except Unreadable:
        return False


def _of(survey: Survey, name: str) -> list[DeviceCapacity]:
    devices = (device.device for device in survey.looks.values())
    return [found for d in devices if (found := (d.capacity or {}).get(name)) is not None]


def _most(capacity: DeviceCapacity) -> str:
    """The largest amount that one request can get of it."""
    policy, whole = capacity.request_policy, capacity.value
    amounts = list(policy.valid_values or ()) if policy is not None else []
    if policy is not None and not amounts and policy.valid_range is not None:
        amounts = [policy.valid_range.max] if policy.valid_range.max is not None else []
    fitting = [amount for amount in amounts if nano(amount) <= nano(whole)]
    return str(max(fitting, key=nano, default=whole))


def _gives(capacity: DeviceCapacity, wanted: str | int) -> bool:
    taken = _consumed(capacity.request_policy, nano(wanted))
    return taken is not None and taken <= nano(capacity.value)


def _consumed(policy: CapacityPolicy | None, wanted: int) -> int | None:
    """What a request consumes, rounded by the policy; None: the policy does not allow it."""
    if policy is None:
        return wanted
    if policy.default is not None and nano(policy.default) == wanted:
        return wanted
    if policy.valid_values:
        return min((n for v in policy.valid_values if (n := nano(v)) >= wanted), default=None)
    if (allowed := policy.valid_range) is None:
        return wanted
    least = nano(allowed.min) if allowed.min is not None else 0
    taken = max(wanted, least)
    if allowed.step is not None and (step := nano(allowed.step)) > 0:
        taken = least + -(-(taken - least) // step) * step
    return None if allowed.max is not None and taken > nano(allowed.max) else taken
