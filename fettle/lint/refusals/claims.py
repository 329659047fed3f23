"""Rules about claims and DeviceClasses that the API server refuses."""

from collections.abc import Iterator

from fettle.lint.findings import Finding, Refusal
from fettle.lint.manifests import Field, Manifest, ManifestClaim
from fettle.lint.names import nearest
from fettle.lint.refusals.wording import twice, why_no_label, why_no_subdomain

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
                if isinstance(named.value, str) and (why := why_no_label(named.value)):
                    yield self.finding(named, f"{named.value!r} {why}")
        for option in manifest.options:
            named = option.field.at("deviceClassName")
            if isinstance(named.value, str) and (why := why_no_subdomain(named.value)):
                yield self.finding(named, f"{named.value!r} {why}")


class WrongDeviceToleration(Refusal):
    """A toleration of a request for a value that its operator does not look at."""

    id = "FTL216"
    name = "wrong-device-toleration"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for option in manifest.options:
            for toleration in option.tolerations:
                if toleration.text("operator") == "Exists" and toleration.text("value"):
                    yield self.finding(toleration.at("value"), "Exists takes no value")
