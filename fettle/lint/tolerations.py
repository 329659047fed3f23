"""Rules about the device taints that a claim tolerates."""

from collections.abc import Iterator
from typing import ClassVar

from fettle.lint.findings import Context, Finding, Severity
from fettle.lint.raw import Raw, mapping, mappings, text
from fettle.lint.shapes import claim_specs


class TolerationWithoutKey:
    """An empty key with `Equal` tolerates any taint of that value, not all taints.

    The documentation of the API says that such a toleration matches everything; the allocator
    compares the value only, so `{}` tolerates just the taints without a value.
    """

    id: ClassVar[str] = "FTL026"
    name: ClassVar[str] = "toleration-without-key"
    severity: ClassVar[Severity] = Severity.DENY

    def check(self, object: Raw, context: Context) -> Iterator[Finding]:
        for path, spec in claim_specs(object):
            for where, request in _requests(f"{path}.devices.requests", spec):
                for index, toleration in mappings(request.get("tolerations")):
                    if _is_keyless(toleration):
                        yield self._finding(f"{where}.tolerations[{index}]", toleration)

    def _finding(self, field: str, toleration: Raw) -> Finding:
        value = text(toleration.get("value"))
        matched = f"with the value {value!r}, whatever its key" if value else "without a value"
        return Finding(
            rule=self.id,
            severity=self.severity,
            field=field,
            message="an empty key with operator Equal (the default) tolerates "
            f"just the taints {matched}, not every taint",
            fix="name the taint's key, or write operator: Exists to tolerate every taint",
        )


def _is_keyless(toleration: Raw) -> bool:
    """A key or operator of a wrong type is for the API server to refuse, not for this rule."""
    return (toleration.get("key") or "") == "" and (toleration.get("operator") or "") in (
        "",
        "Equal",
    )


def _requests(path: str, spec: Raw) -> Iterator[tuple[str, Raw]]:
    """Requests and alternatives: all that can hold tolerations."""
    for index, request in mappings(mapping(spec, "devices").get("requests")):
        yield f"{path}[{index}].exactly", mapping(request, "exactly")
        for position, alternative in mappings(request.get("firstAvailable")):
            yield f"{path}[{index}].firstAvailable[{position}]", alternative
