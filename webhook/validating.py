"""What Fettle refuses: the lint rules on an object that is about to be stored.

Pure, apart from yielding to other requests between rules. A mistake that the stored object already
has only warns: otherwise a stricter check would stall changes to what was accepted long ago.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from fettle.lint.contexts import ViewContext
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.raw import Raw
from fettle.view import View
from webhook.review import Request

_SHOWN = 10


class Validation(NamedTuple):
    """What the rules found; those that could not judge are in `undecided`."""

    denied: tuple[Finding, ...] = ()
    warned: tuple[Finding, ...] = ()
    undecided: tuple[Finding, ...] = ()

    @property
    def message(self) -> str:
        """Why the object is refused, for its author; "" if it is not."""
        shown = [str(finding) for finding in self.denied[:_SHOWN]]
        if (more := len(self.denied) - _SHOWN) > 0:
            shown.append(f"and {more} more")
        return " | ".join(shown)


async def validate(request: Request, view: View, rules: Sequence[Rule]) -> Validation:
    """The rules' findings on a new or changed object; nothing on anything else."""
    await asyncio.sleep(0)
    new = request.object
    if new is None or request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
        return Validation()
    context = ViewContext(view, request.namespace)
    found: list[Finding] = []
    for rule in rules:
        findings = list(rule.check(_typed(request, new), context))
        if findings and request.operation == "UPDATE" and request.old_object is not None:
            before = set(rule.check(_typed(request, request.old_object), context))
            findings = [_demoted(f) if f in before else f for f in findings]
        found += findings
        await asyncio.sleep(0)
    return Validation(
        denied=_of(Severity.DENY, found),
        warned=_of(Severity.WARN, found),
        undecided=_of(Severity.UNDECIDED, found),
    )


def _of(severity: Severity, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.severity is severity)


def _demoted(finding: Finding) -> Finding:
    if finding.severity is not Severity.DENY:
        return finding
    return msgspec.structs.replace(finding, severity=Severity.WARN)


def _typed(request: Request, object: dict[str, Any]) -> Raw:
    """The object as the kind it was asked about, whatever it says itself."""
    group, version = request.kind.group, request.kind.version
    api_version = f"{group}/{version}" if group else version
    return {**object, "apiVersion": api_version, "kind": request.kind.kind}
