"""What Fettle refuses: the lint rules on an object that is about to be stored.

A mistake that the stored object already has only warns: otherwise a stricter check would stall
changes to what was accepted long ago. What the scheduler writes is not judged at all.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from fettle.cluster import View
from fettle.config import HealthSettings
from fettle.lint import (
    DEFAULT_LEVELS,
    POD_TEMPLATES,
    Finding,
    Linter,
    Manifest,
    Severity,
    Table,
    in_vain,
    levels_for,
    requirements,
)
from fettle.model import Policies
from fettle.model import Validation as Levels
from fettle.scheduling import Engines
from webhook.authored import authored
from webhook.review import SCHEDULER, AdmissionRequest

_SHOWN = 10


class Grounds(NamedTuple):
    """What validation rests on, beside the object and the cluster.

    `levels` say cluster-wide how severe findings are. `engines` compile what DevicePolicies
    require; without them that is not judged. `templates` say where kinds keep those of their pods;
    `unknown` are kinds of which the view may lack objects; `thresholds` say what is degraded.
    """

    linter: Linter
    policies: Policies
    levels: Levels = DEFAULT_LEVELS
    engines: Engines | None = None
    templates: Table = POD_TEMPLATES
    unknown: frozenset[str] = frozenset()
    thresholds: HealthSettings = HealthSettings()


class ValidationResult(NamedTuple):
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


async def validate(request: AdmissionRequest, view: View, grounds: Grounds) -> ValidationResult:
    """The rules' findings on a new or changed object; nothing on anything else.

    How severe they are is said cluster-wide, and then by the policy of the object's namespace.
    A DevicePolicy is only warned of what it says in vain.
    """
    await asyncio.sleep(0)
    new, old = request.object, request.old_object
    if new is None or request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
        return ValidationResult()
    if request.username == SCHEDULER:
        return ValidationResult()
    changed = request.operation == "UPDATE" and old is not None
    if changed and old is not None and old.get("spec") == new.get("spec"):
        return ValidationResult()
    manifest = _manifest(request, new, grounds.templates)
    if grounds.engines is not None:
        await grounds.engines.evaluate(requirements(manifest))
    if vain := tuple(in_vain(manifest, grounds.engines, grounds.thresholds)):
        return ValidationResult(warned=vain)
    levels = levels_for(manifest, view, grounds.policies, grounds.levels)
    found = await grounds.linter.lint(manifest, view, levels, unknown=grounds.unknown)
    if changed and old is not None and any(f.severity is Severity.DENY for f in found):
        before = _manifest(request, old, grounds.templates)
        stood = set(await grounds.linter.lint(before, view, levels, unknown=grounds.unknown))
        found = [_demoted(f) if f in stood else f for f in found]
    return ValidationResult(
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


def _manifest(request: AdmissionRequest, object: dict[str, Any], templates: Table) -> Manifest:
    """The object as its author wrote it, of the kind that was asked about."""
    object = authored(object, request.group_kind)
    typed = {**object, "apiVersion": request.kind.api_version, "kind": request.kind.kind}
    sent_as = request.request_kind.api_version if request.request_kind is not None else ""
    return Manifest(typed, request.namespace or "default", sent_as, templates)
