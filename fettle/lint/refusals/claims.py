"""Rules about claims and DeviceClasses that the API server refuses."""

from collections.abc import Callable, Iterator

from fettle.lint.findings import Finding, Refusal, Severity
from fettle.lint.manifests import Field, Manifest, ManifestClaim, expressions
from fettle.lint.names import nearest
from fettle.lint.refusals.wording import twice, why_in_doubt, why_no_label, why_no_subdomain

_MOST_REQUESTS, _MOST_ALTERNATIVES, _MOST_SELECTORS = 32, 8, 32


class DuplicateRequest(Refusal):
    """Two requests of a claim, or two alternatives of a request, with one name."""

    id = "FTL210"
    name = "duplicate-request"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for claim in manifest.claims:
            yield from self._twice(request.field for request in claim.requests)
            for request in claim.requests:
                yield from self._twice(request.field.each("firstAvailable"))

    def _twice(self, entries: Iterator[Field]) -> Iterator[Finding]:
        for name, field in twice((entry.text("name"), entry) for entry in entries):
            yield self.finding(field.at("name"), f"{name} is the name of another one already")


class UnknownRequestName(Refusal):
    """A constraint or configuration for a request that the claim does not have."""

    id = "FTL211"
    name = "unknown-request-name"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for claim in manifest.claims:
            for part in (*claim.constraints, *claim.configs):
                for entry in part.entries("requests"):
                    if isinstance(entry.value, str) and not claim.named(entry.value):
                        yield self._unknown(entry, claim)

    def _unknown(self, entry: Field, claim: ManifestClaim) -> Finding:
        names = {option.name for option in claim.options} | {r.name for r in claim.requests}
        near = nearest(entry.value, names)
        there = ", ".join(sorted(names)) or "no requests"
        message = f"the claim has no request {entry.value!r}, but {there}"
        return self.finding(entry, message, f"write {near}" if near else "")


class WrongCount(Refusal):
    """A count below one, or beside `allocationMode: All`."""

    id = "FTL212"
    name = "wrong-count"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for option in manifest.options:
            count = option.field.integer("count")
            if count is None:
                continue
            if option.mode == "All" and count:
                message = "has no meaning with allocationMode: All"
                yield self.finding(option.field.at("count"), message, "leave it out")
            elif option.mode == "ExactCount" and count < 0:
                yield self.finding(option.field.at("count"), "must be greater than zero")


class WrongConstraint(Refusal):
    """A constraint without an attribute, or with one whose name has no domain."""

    id = "FTL213"
    name = "wrong-constraint"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for claim in manifest.claims:
            for constraint in claim.constraints:
                fields = [constraint.at(f"{how}Attribute") for how in ("match", "distinct")]
                there = [field for field in fields if field.exists]
                if not there:
                    message = "needs one of matchAttribute and distinctAttribute"
                    yield self.finding(constraint, message)
                for field in there:
                    if isinstance(field.value, str) and "/" not in field.value:
                        message = f"{field.value!r} has no domain"
                        yield self.finding(field, message, f"write DRIVER/{field.value}")


class TooManyParts(Refusal):
    """More than 32 requests, constraints, configurations or selectors, or 8 alternatives."""

    id = "FTL214"
    name = "too-many-parts"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for claim in manifest.claims:
            for part in ("requests", "constraints", "config"):
                yield from self._many(claim.field.at("devices", part), _MOST_REQUESTS)
            for request in claim.requests:
                yield from self._many(request.field.at("firstAvailable"), _MOST_ALTERNATIVES)
        for owner in (*(o.field for o in manifest.options), *manifest.device_classes):
            yield from self._many(owner.at("selectors"), _MOST_SELECTORS)

    def _many(self, field: Field, most: int) -> Iterator[Finding]:
        if isinstance(field.value, list) and len(field.value) > most:
            yield self.finding(field, f"has {len(field.value)} entries; at most {most} may be")


class WrongRequestName(Refusal):
    """A request, or the class that it names, whose name is none."""

    id = "FTL215"
    name = "wrong-request-name"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for request in manifest.requests:
            alternatives = request.field.each("firstAvailable")
            for named in (request.field.at("name"), *(a.at("name") for a in alternatives)):
                yield from self._named(named, why_no_label)
        for option in manifest.options:
            yield from self._named(option.field.at("deviceClassName"), why_no_subdomain)

    def _named(self, field: Field, why_none: Callable[[str], str]) -> Iterator[Finding]:
        said = field.value
        if not isinstance(said, str):
            return
        if why := why_none(said):
            yield self.finding(field, f"{said!r} {why}")
        elif why := why_in_doubt(said):
            fix = f"write {said.lower()}"
            yield self.finding(field, f"{said!r} {why}", fix, Severity.WARN)


class WrongDeviceToleration(Refusal):
    """A toleration of a request for a value that its operator does not look at."""

    id = "FTL216"
    name = "wrong-device-toleration"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for option in manifest.options:
            for toleration in option.tolerations:
                if toleration.text("operator") == "Exists" and toleration.text("value"):
                    yield self.finding(toleration.at("value"), "Exists takes no value")


class WrongSlice(Refusal):
    """A ResourceSlice for no nodes or for two choices of nodes, or with devices whose parts do not
    fit."""

    id = "FTL217"
    name = "wrong-slice"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != ("resource.k8s.io", "ResourceSlice"):
            return
        spec = manifest.root.at("spec")
        per_device = spec.at("perDeviceNodeSelection").value is True
        for field, message in _nodes(spec, (*_NODES, "perDeviceNodeSelection")):
            yield self.finding(field, message)
        if spec.at("sharedCounters").value and spec.at("devices").value:
            yield self.finding(spec.at("sharedCounters"), "and devices exclude each other")
        for device in spec.each("devices"):
            beside = device.at("basic") if device.at("basic").exists else device
            for field, message in _device_errors(beside, per_device):
                yield self.finding(field, message)


_NODES = ("nodeName", "nodeSelector", "allNodes")


def _nodes(owner: Field, names: tuple[str, ...]) -> Iterator[tuple[Field, str]]:
    given = [owner.at(name) for name in names if owner.at(name).exists]
    for field in given:
        if field.value is False or field.value == "":
            yield field, "must be left out or have another value"
    if not given:
        yield owner, f"needs one of {', '.join(names)}"
    elif len(given) > 1:
        said = " and ".join(field.path.rpartition(".")[2] for field in given)
        yield given[1], f"{said} exclude each other"


def _device_errors(device: Field, per_device: bool) -> Iterator[tuple[Field, str]]:
    if per_device:
        yield from _nodes(device, _NODES)
    else:
        for name in _NODES:
            if device.at(name).exists:
                yield device.at(name), "needs perDeviceNodeSelection: true in the spec"
    parts = len(device.raw("attributes")) + len(device.raw("capacity"))
    if parts > _MOST_PARTS and not _has_lists(device):
        yield device, f"has {parts} attributes and capacities; at most {_MOST_PARTS} may be"
    bound, failed = device.at("bindingConditions"), device.at("bindingFailureConditions")
    if bool(bound.value) != bool(failed.value):
        yield (failed if bound.value else bound), "is required beside the other conditions"
    if device.at("allowMultipleAllocations").value is not True:
        for _, capacity in device.members("capacity"):
            if capacity.at("requestPolicy").exists:
                message = "needs allowMultipleAllocations: true"
                yield capacity.at("requestPolicy"), message


def _has_lists(device: Field) -> bool:
    return any(
        isinstance(value, list)
        for _, a in device.members("attributes")
        for value in a.raw().values()
    )


_MOST_PARTS = 32


class TooLongExpression(Refusal):
    """A CEL selector of more than 10 KiB."""

    id = "FTL218"
    name = "too-long-expression"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        owners = (*(option.field for option in manifest.options), *manifest.device_classes)
        for owner in owners:
            for expression in expressions(owner):
                if len(expression.value.encode()) > _LONGEST_EXPRESSION:
                    message = f"is longer than {_LONGEST_EXPRESSION} bytes"
                    yield self.finding(expression, message)


_LONGEST_EXPRESSION = 10 * 1024
