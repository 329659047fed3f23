"""What Fettle refuses: the lint rules, applied to an object that is about to be stored.

Stands at the end of *watch → inventory → health → verdict → answer*. The rules see the object as
its author wrote it: without the alternatives that mutation added as a fallback, so that a mistake
is reported once, at the field that the author knows.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from fettle.api.raw import Raw, mappings
from fettle.cel import Engines
from fettle.cluster import View
from fettle.config import HealthSettings
from fettle.lint import (
    DEFAULT_LEVELS,
    RULES,
    Field,
    Finding,
    Linter,
    Manifest,
    Severity,
    ineffective_settings,
    levels_for,
    misspelt_names,
    policy_requirements,
    workload_kinds,
)
from fettle.model import Policies
from fettle.model import Validation as Levels
from fettle.pacing import run_within
from webhook.mutate.claims import CLAIM_SPECS, SOUND, fallbacks_of
from webhook.mutate.injection import record_of
from webhook.review import SCHEDULER, AdmissionRequest, shortened

Object = dict[str, Any]

MISTAKES_OF_THE_CLUSTER = {
    rule.id: rule.mistake[0].lower() + rule.mistake[1:].rstrip(".")
    for rule in RULES
    if rule.inventory
}
"""What is wrong in general, by the rules that compare an object with what the cluster has."""
_MORE = "`fettle lint --kubeconfig FILE` says more"
_MAX_SHOWN = 10
_MOST_OF_RULE = 64
"""So many findings of one rule and severity are looked for; an object may have thousands."""
_LONGEST_FINDING = 1024
"""Characters. A finding quotes names, and a CRD may let them be of any length."""


class ValidationContext(NamedTuple):
    """What validation needs, beside the object and the view.

    `levels` is the cluster-wide severity of findings. `engines` compile the requirements of
    DevicePolicies; without them, requirements are not judged. `templates` says where each kind
    keeps its pod templates. `incomplete_kinds` are kinds of which the view may lack objects.
    `thresholds` says which score is degraded. `labels_nodes`: whether the steward labels Nodes.
    `to_strangers`: whoever reaches the port is answered, so findings say nothing of the cluster.
    """

    linter: Linter
    policies: Policies
    levels: Levels = DEFAULT_LEVELS
    engines: Engines | None = None
    templates: workload_kinds.Table = workload_kinds.POD_TEMPLATES
    incomplete_kinds: frozenset[str] = frozenset()
    thresholds: HealthSettings = HealthSettings()
    labels_nodes: bool = True
    to_strangers: bool = False


class ValidationResult(NamedTuple):
    """Findings by severity; `undecided` are rules that could not judge."""

    denied: tuple[Finding, ...] = ()
    warned: tuple[Finding, ...] = ()
    undecided: tuple[Finding, ...] = ()

    @property
    def message(self) -> str:
        """Why the object is refused, for its author; "" if it is not."""
        shown = [shortened(str(f), _LONGEST_FINDING) for f in self.denied[:_MAX_SHOWN]]
        if (more := len(self.denied) - _MAX_SHOWN) > 0:
            shown.append(f"and {more} more")
        return " | ".join(shown)


async def validate(
    request: AdmissionRequest, view: View, context: ValidationContext
) -> ValidationResult:
    """The rules' findings on a new object, or on one whose spec changed; else none.

    The policy of the object's namespace may change the severities that `context` gives.
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
    manifest = _manifest(request, new, context.templates)
    if context.engines is not None:
        await context.engines.evaluate(policy_requirements(manifest))
    without_effect = tuple(
        ineffective_settings(
            manifest, context.engines, context.thresholds, labels=context.labels_nodes
        )
    )
    if without_effect:
        return ValidationResult(warned=without_effect)
    levels = levels_for(manifest, view, context.policies, context.levels)
    linter, incomplete = context.linter, context.incomplete_kinds
    most = _MOST_OF_RULE
    found = await linter.lint(manifest, view, levels, unknown=incomplete, most=most)
    if changed and old is not None and any(f.severity is Severity.DENY for f in found):
        # A mistake that the stored object has already only warns: a rule that became stricter must
        # not stall changes to what was accepted long ago.
        before = _manifest(request, old, context.templates)
        known = set(await linter.lint(before, view, levels, unknown=incomplete, most=most))
        told = Counter(f.rule for f in known)
        found = [_demoted(f) if f in known or told[f.rule] >= most else f for f in found]
    # Beside the rules, which may deny: what is ignored is never a reason to refuse an object.
    misspelt: list[Finding] = []
    if not manifest.late:
        some = islice(misspelt_names(manifest), _MAX_SHOWN)
        misspelt = await run_within(partial(list, some))
    if context.to_strangers:
        found = [*dict.fromkeys(map(_without_the_cluster, found))]
    return ValidationResult(
        denied=_of(Severity.DENY, found),
        warned=(*_of(Severity.WARN, found), *misspelt),
        undecided=_of(Severity.UNDECIDED, found),
    )


def _of(severity: Severity, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.severity is severity)


def _without_the_cluster(finding: Finding) -> Finding:
    """The same without what it says of classes, devices, policies and other objects."""
    if (mistake := MISTAKES_OF_THE_CLUSTER.get(finding.rule)) is None:
        return finding
    return msgspec.structs.replace(finding, message=mistake, fix=_MORE)


def _demoted(finding: Finding) -> Finding:
    if finding.severity is not Severity.DENY:
        return finding
    return msgspec.structs.replace(finding, severity=Severity.WARN)


def _manifest(
    request: AdmissionRequest, object: Object, templates: workload_kinds.Table
) -> Manifest:
    """The object as its author wrote it, of the kind that the request names."""
    object = without_fallbacks(object, request.group_kind)
    typed = {**object, "apiVersion": request.kind.api_version, "kind": request.kind.kind}
    sent_as = request.request_kind.api_version if request.request_kind is not None else ""
    return Manifest(typed, request.namespace or "default", sent_as, templates)


# --- the object as its author wrote it


def without_fallbacks(object: Object, kind: tuple[str, str]) -> Object:
    """The object, or a copy without injected alternatives; `kind` is its API group and kind.

    An alternative is removed only if the record names it and it equals the one that it stands in
    for. So a forged record hides nothing from the rules.
    """
    spec = CLAIM_SPECS.get(kind)
    record = record_of(object)
    if spec is None or not record.values:
        return object
    requests = Field("", object).at(*spec, "devices", "requests")
    restored = {
        request.keys: _request_without_fallbacks(request.value)
        for request in requests.each(named=True)
        if request.at("firstAvailable").path in record.values
    }
    if not restored:
        return object
    whole = [restored.get(request.keys, request.value) for request in requests.entries()]
    return _with(object, requests.keys, whole)


def _request_without_fallbacks(request: Raw) -> Raw:
    """The request with the first half of its alternatives, if the second only repeats it."""
    options = [option for _, option in mappings(request.get("firstAvailable"))]
    half = len(options) // 2
    own, added = options[:half], options[half:]
    if not own or len(options) != len(request["firstAvailable"]):
        return request
    if own[0].get("name") == SOUND and added == fallbacks_of(own, was_exactly=True):
        exactly = {key: value for key, value in own[0].items() if key != "name"}
        bare = {key: value for key, value in request.items() if key != "firstAvailable"}
        return {**bare, "exactly": exactly}
    if added == fallbacks_of(own, was_exactly=False):
        return {**request, "firstAvailable": own}
    return request


def _with(object: Object, path: Sequence[str | int], value: object) -> Object:
    """A copy of the object, along the path of members, with that value at its end."""
    member, *below = path
    key = str(member)
    return {**object, key: _with(object[key], below, value) if below else value}
