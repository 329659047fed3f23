"""What is reported besides the rules: values of wrong types, selectors that do not compile, and
what has no effect in DevicePolicies and in objects that refer to them.

The table of rules holds only claims and workloads that can never work. `fettle lint` reports all of
these checks, the webhook only those that the API server cannot make. The grammar of CEL only the
worker knows; here is what the text of a selector shows without it.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from fettle.api import DevicePolicy, kinds
from fettle.api.resource import Device
from fettle.config import HealthSettings, Settings
from fettle.dra import is_device_resource
from fettle.lint.annotations import (
    EVICTED_FOR_GOOD,
    IGNORED,
    MISSPELT_NAME,
    NOT_PASSED_ON,
    UNKNOWN_ANNOTATION,
    evicted_for_good,
    ignored_references,
    misspelt_names,
    not_passed_on,
    unknown_annotations,
)
from fettle.lint.findings import Check, Finding, Severity
from fettle.lint.identities import IDENTITY, mistakes_in_identity
from fettle.lint.manifests import Field, Manifest, expressions
from fettle.lint.names import nearest
from fettle.lint.refusals import REFUSALS
from fettle.lint.rules import RULES
from fettle.lint.shapes.customs import Customs
from fettle.lint.structure import (
    MISSING,
    STRUCTURE,
    UNION,
    UNKNOWN_FIELD,
    WRONG_TYPE,
    meant_quantity,
    mistakes_in_structure,
)
from fettle.model import (
    LONGEST_PATTERN,
    BadInput,
    Degraded,
    OnDeviceFailure,
    Placement,
    Policies,
    Policy,
    PolicyAffinity,
    Requirement,
    RestartAction,
    RuleSeverity,
    Validation,
    prefers_in_vain,
    shown,
    why_no_expression,
)

if TYPE_CHECKING:
    from fettle.cel import Engines

INVALID_POLICY = Check(
    "FTL102",
    "invalid-policy",
    Severity.DENY,
    "A DevicePolicy with a value that is not allowed.",
    "The API server refuses it if the CustomResourceDefinition is up to date.",
)
INVALID_EXPRESSION = Check(
    "FTL103",
    "invalid-expression",
    Severity.DENY,
    "A CEL selector that does not compile.",
    "The API server refuses the object.",
)
UNKNOWN_RULE = Check(
    "FTL104",
    "unknown-rule",
    Severity.WARN,
    "A DevicePolicy whose validation.rules name a rule that does not exist.",
    "It has no effect; the webhook warns when the policy is written, and never refuses it.",
)
IGNORED_REQUIREMENT = Check(
    "FTL105",
    "ignored-requirement",
    Severity.WARN,
    "A requirement of a DevicePolicy that does not compile for a device or for a node.",
    "It is ignored: pods are placed as if it were not there. The webhook warns when the policy is "
    "written, and never refuses it.",
)
COUNTED_EVICTIONS = Check(
    "FTL107",
    "eviction-counts",
    Severity.WARN,
    "A DevicePolicy with `onDeviceFailure: Evict`, or a `startDeadline`, and without "
    "`ignoreDisruptions`.",
    "Each pod that Fettle evicts counts against the backoffLimit of its Job; the webhook warns "
    "when the policy is written, and never refuses it.",
)
PREFERS_IN_VAIN = Check(
    "FTL108",
    "prefers-what-it-refuses",
    Severity.WARN,
    "A DevicePolicy with `degraded: Prefer` and a `minScore` that degraded devices do not reach.",
    "They are refused instead of preferred; the webhook warns when the policy is written, and "
    "never refuses it.",
)
INVALID_RULES = Check(
    "FTL110",
    "invalid-rules-file",
    Severity.DENY,
    "A file for `health.rulesFile` with a row that cannot be read, or that never counts since an "
    "earlier one matches all that it does.",
    "Fettle does not use settings with a file that cannot be read. A row that never counts has no "
    "effect.",
)
WITHOUT_EFFECT = Check(
    "FTL111",
    "field-without-effect",
    Severity.WARN,
    "A DevicePolicy with `restartAction` but no exit codes to restart on, with `gangDegraded: "
    "Refuse` or `affinity: Required` and a patience beside `degraded: Refuse`, or with `affinity` "
    "and without the setting `nodeMarks.label`.",
    "The field does nothing; the webhook warns when the policy is written, and never refuses it.",
)
IMPOSSIBLE_LITERAL = Check(
    "FTL116",
    "impossible-literal",
    Severity.DENY,
    "A CEL selector that makes a quantity or a version of a text that is none. Only a warning if "
    "it may hold without that.",
    "The API server accepts it; then scheduling ends with `CEL runtime error` on every device.",
)
BROKEN_RULE = Check(
    "FTL290",
    "broken-definition-rule",
    Severity.DENY,
    "A custom resource that breaks a rule of its CustomResourceDefinition "
    "(`x-kubernetes-validations`). By `--crds`; else, as the files or Fettle have it, a warning.",
    "The API server refuses it.",
)
ENDLESS_GRACE = Check(
    "FTL117",
    "endless-grace",
    Severity.WARN,
    "A pod with devices whose terminationGracePeriodSeconds is more than an hour: longer than it "
    "takes to save a checkpoint.",
    "If its process does not end by itself, as on a failed device, it holds its devices that long "
    "after it was deleted, evicted or preempted, and drains and gangs wait for it.",
)
HASTY_DEADLINE = Check(
    "FTL118",
    "hasty-deadline",
    Severity.WARN,
    "A DevicePolicy whose `startDeadline` is less than a minute, less than a driver takes to be "
    "replaced.",
    "A pod is evicted that would have started; the webhook warns when the policy is written, and "
    "never refuses it.",
)
WRONG_PATTERN = Check(
    "FTL247",
    "wrong-message-pattern",
    Severity.WARN,
    "A JobSet with a rule in its failurePolicy for messages that match what is no regular "
    "expression.",
    "JobSet accepts it, logs an error at each failure, and takes it as one that matches nothing.",
)
CHECKS = (
    IGNORED,
    INVALID_POLICY,
    INVALID_EXPRESSION,
    UNKNOWN_RULE,
    IGNORED_REQUIREMENT,
    COUNTED_EVICTIONS,
    PREFERS_IN_VAIN,
    UNKNOWN_ANNOTATION,
    INVALID_RULES,
    WITHOUT_EFFECT,
    EVICTED_FOR_GOOD,
    NOT_PASSED_ON,
    MISSPELT_NAME,
    IMPOSSIBLE_LITERAL,
    ENDLESS_GRACE,
    HASTY_DEADLINE,
    WRONG_PATTERN,
    *STRUCTURE,
    *IDENTITY,
    BROKEN_RULE,
)
COMPLETENESS = frozenset({BROKEN_RULE.id, MISSING.id, UNION.id, *(rule.id for rule in REFUSALS)})
"""Checks that a part of an object may fail though the whole is sound."""
IDS = frozenset({*(rule.id for rule in (*RULES, *REFUSALS)), *(check.id for check in CHECKS)})
"""Ids of rules and checks, which policies and the settings can name."""

_THRESHOLDS = HealthSettings()
_DOES_NOT_COMPILE = "it does not compile"
_ANY_DEVICE = ("driver.example.com", Device(name="device"))


# --- all checks of one object
_LONGEST = 10 * 1024
"""Characters that the API server accepts."""
_CALLS = ("quantity", "semver")
_QUOTES = "\"'"
_BRANCHES = (
    *("||", "?", "true", "false", ".all(", ".exists(", ".exists_one(", ".filter(", ".map("),
    *(".bind(", ".transform", "sortBy("),
)
"""What may leave a part of an expression out."""


def run_checks(
    manifest: Manifest,
    known: Policies,
    installed: Mapping[str, Policy],
    engines: "Engines | None",
    levels: Validation,
    thresholds: HealthSettings,
    *,
    labels: bool = True,
    customs: Customs | None = None,
) -> Iterator[Finding]:
    """The findings of all checks, with the severities that `levels` set.

    `known` are the policies of the settings, `installed` those of the cluster. `engines` have
    compiled the expressions; without them, expressions are not checked. `thresholds` define from
    which score on a device is degraded. `labels`: whether the steward labels Nodes, as far as is
    known. `customs`: the fields of custom resources, None for the shipped ones.
    """
    found = _found(manifest, known, installed, engines, thresholds, labels=labels, customs=customs)
    yield from at_levels(found, levels)


def at_levels(found: Iterable[Finding], levels: Validation) -> Iterator[Finding]:
    """The findings of checks with the severities that `levels` set."""
    for finding in found:
        level = levels.rules.get(finding.rule)
        if level is None:
            yield finding
        elif level is not RuleSeverity.OFF:
            yield msgspec.structs.replace(finding, severity=Severity(level.value))


def _found(
    manifest: Manifest,
    known: Policies,
    installed: Mapping[str, Policy],
    engines: "Engines | None",
    thresholds: HealthSettings,
    *,
    labels: bool,
    customs: Customs | None,
) -> Iterator[Finding]:
    yield from mistakes_in_identity(manifest, customs)
    is_policy = manifest.kind == kinds.POLICY.name
    of_policies = {UNKNOWN_FIELD.id}  # values: FTL102
    if is_policy and not _read(manifest)[1]:
        of_policies.add(WRONG_TYPE.id)  # what reads policies takes a quoted number
    for finding in mistakes_in_structure(manifest, customs):
        if not is_policy or finding.rule in of_policies:
            yield finding
    for rule in REFUSALS:
        yield from rule.check(manifest)
    yield from ignored_references(manifest, known, installed)
    yield from unknown_annotations(manifest)
    yield from misspelt_names(manifest)
    yield from not_passed_on(manifest)
    yield from endless_grace(manifest)
    yield from wrong_patterns(manifest)
    yield from invalid_policy(manifest)
    yield from ineffective_settings(manifest, engines, thresholds, labels=labels)
    yield from evicted_for_good(manifest, known, installed)
    if engines is None:
        return
    for field in selector_fields(manifest):
        outcome = engines.devices.outcome(field.value, *_ANY_DEVICE)
        if outcome is not None and outcome.reason.startswith(_DOES_NOT_COMPILE):
            yield INVALID_EXPRESSION.finding(field, outcome.reason)
        else:
            yield from _impossible_literals(field, engines)


def _impossible_literals(field: Field, engines: "Engines") -> Iterator[Finding]:
    """The texts in a selector that are no quantity, or no version, by the engine's word."""
    certain = holds_only_with_all(field.value) and "firstAvailable" not in field.keys
    for call, literal in literals_of(field.value):
        outcome = engines.devices.outcome(_is_one(call, literal), *_ANY_DEVICE)
        if outcome is not None and outcome.kind == _NO_MATCH:
            yield IMPOSSIBLE_LITERAL.finding(
                field,
                f"{literal} is {_LITERALS[call]}, so {call}({literal}) always fails",
                meant_literal(call, literal),
                severity=None if certain else Severity.WARN,
            )


def _is_one(call: str, literal: str) -> str:
    """The expression that says whether a literal is a quantity or version."""
    return f"is{call.capitalize()}({literal})"


_NO_MATCH = "no match"
_LITERALS = {"quantity": "no quantity", "semver": "no version of three numbers"}


def selector_fields(manifest: Manifest) -> Iterator[Field]:
    """The CEL expressions in the selectors of claims and classes."""
    for option in manifest.options:
        yield from option.selectors
    for spec in manifest.device_classes:
        yield from expressions(spec)


def has_expressions(manifest: Manifest) -> bool:
    return any(True for _ in selector_fields(manifest)) or bool(policy_requirements(manifest))


async def compile_expressions(manifests: Iterable[Manifest], engines: "Engines") -> None:
    """Compile all expressions of these objects."""
    manifests = tuple(manifests)
    texts = [field.value for manifest in manifests for field in selector_fields(manifest)]
    literals = {_is_one(*found) for text in texts for found in literals_of(text)}
    await engines.devices.evaluate([*texts, *sorted(literals)], [_ANY_DEVICE])
    for manifest in manifests:
        await engines.evaluate(policy_requirements(manifest))


def endless_grace(manifest: Manifest) -> Iterator[Finding]:
    """Pods with devices that may take more than an hour to end."""
    for pod in manifest.pods:
        grace = pod.field.at("terminationGracePeriodSeconds")
        seconds = grace.integer() or 0
        has_devices = any(map(is_device_resource, pod.resources)) or any(True for _ in pod.claims)
        if has_devices and seconds > _LONGEST_GRACE_S:
            yield ENDLESS_GRACE.finding(
                grace,
                f"the pod may hold its devices for {seconds / 3600:.3g} hours after it should end",
                "write the seconds that it takes to save its work",
            )


_LONGEST_GRACE_S = 3600


def wrong_patterns(manifest: Manifest) -> Iterator[Finding]:
    """Patterns in a JobSet's failurePolicy that match no message."""
    if (manifest.group, manifest.kind) != ("jobset.x-k8s.io", "JobSet"):
        return
    rules = manifest.root.each("spec", "failurePolicy", "rules")
    patterns = (field for rule in rules for field in rule.entries("onJobFailureMessagePatterns"))
    for field in islice(patterns, _MOST_PATTERNS):
        if len(field.text()) <= LONGEST_PATTERN and (why := why_no_expression(field.text())):
            message = f"{shown(field.text())} is no regular expression as Go reads it ({why[:80]})"
            yield WRONG_PATTERN.finding(field, message)


_MOST_PATTERNS = 100
"""Of one object; each takes 0.1 s at most to compile."""


# --- checks of DevicePolicies


def policy_requirements(manifest: Manifest) -> tuple[Requirement, ...]:
    """The requirements of a DevicePolicy; none if it cannot be read or is another object."""
    policy, _ = _read(manifest)
    return policy.placement.requires if policy is not None else ()


def invalid_policy(manifest: Manifest) -> Iterator[Finding]:
    """Values in a DevicePolicy that the API server refuses."""
    policy, reason = _read(manifest)
    if policy is not None and not manifest.root.at("spec").exists:
        yield MISSING.finding(manifest.root.at("spec"), "is required", "write spec: {}")
    if reason:
        yield INVALID_POLICY.finding(manifest.root.at("spec"), reason)


def ineffective_settings(
    manifest: Manifest,
    engines: "Engines | None",
    thresholds: HealthSettings = _THRESHOLDS,
    *,
    labels: bool = True,
) -> Iterator[Finding]:
    """Settings in a DevicePolicy that have no effect, and that the API server cannot check.

    `engines` have compiled its requirements; without them, requirements are not checked.
    `thresholds` define from which score on a device is degraded. `labels`: whether the steward
    labels Nodes, as far as is known.
    """
    policy, _ = _read(manifest)
    if policy is None:
        return
    rules = manifest.root.at("spec", "validation", "rules")
    for name in unknown_rules(policy):
        near = nearest(name, IDS)
        fix = f"write {near} if that is meant; " if near else ""
        yield UNKNOWN_RULE.finding(
            rules.at(name), f"unknown rule {name}", f"{fix}docs/rules.md lists them"
        )
    failure = policy.failure
    evicts = failure.on_device_failure is OnDeviceFailure.EVICT
    if (evicts or failure.start_deadline is not None) and not failure.ignore_disruptions:
        yield COUNTED_EVICTIONS.finding(
            manifest.root.at("spec", "failure", "onDeviceFailure" if evicts else "startDeadline"),
            "each eviction counts against the backoffLimit of a Job",
            "write ignoreDisruptions: true",
        )
    deadline_s = failure.start_deadline_s
    if deadline_s is not None and deadline_s < _LEAST_DEADLINE_S:
        yield HASTY_DEADLINE.finding(
            manifest.root.at("spec", "failure", "startDeadline"),
            "a pod is evicted before a driver that restarts could start it",
            "write more than a driver takes to be replaced, such as 10m",
        )
    yield from _without_effect(manifest, policy)
    yield from _affinity_without_effect(manifest, policy.placement, labels=labels)
    below = thresholds.degraded_below
    if vain := prefers_in_vain(policy.placement, below):
        minimum = manifest.root.at("spec", "placement", "minScore")
        yield PREFERS_IN_VAIN.finding(
            minimum, vain, f"write less than {below:g}, or degraded: Allow"
        )
    if engines is None:
        return
    fields = manifest.root.entries("spec", "placement", "requires")
    for field, requirement in zip(fields, policy.placement.requires, strict=True):
        if why := engines.refusal(requirement):
            yield IGNORED_REQUIREMENT.finding(field.at("expression"), why)


_LEAST_DEADLINE_S = 60


def _without_effect(manifest: Manifest, policy: Policy) -> Iterator[Finding]:
    failure, placement = policy.failure, policy.placement
    restarts = failure.restart_action is not RestartAction.RESTART
    if restarts and not failure.restart_container_on_exit_codes:
        yield WITHOUT_EFFECT.finding(
            manifest.root.at("spec", "failure", "restartAction"),
            "without restartContainerOnExitCodes nothing is restarted in place",
            "write restartContainerOnExitCodes: [75], with the codes that the workload uses",
        )
    if placement.gang_degraded is not None and placement.degraded is Degraded.REFUSE:
        yield WITHOUT_EFFECT.finding(
            manifest.root.at("spec", "placement", "gangDegraded"),
            "degraded: Refuse refuses Degraded devices to every pod already",
            "leave it out, or write degraded: Allow",
        )


def _affinity_without_effect(
    manifest: Manifest, placement: Placement, *, labels: bool
) -> Iterator[Finding]:
    there = manifest.root.at("spec", "placement")
    if placement.affinity is not PolicyAffinity.NONE and not labels:
        yield WITHOUT_EFFECT.finding(
            there.at("affinity"),
            "no Node is labelled by its health, so all match",
            "set nodeMarks.label (docs/nodes.md), or leave it out",
        )
    required = (
        placement.affinity is PolicyAffinity.REQUIRED and placement.degraded is Degraded.REFUSE
    )
    if required and placement.ends:
        yield WITHOUT_EFFECT.finding(
            there.at("patience" if placement.patience is not None else "gangPatience"),
            "affinity: Required keeps pods off degraded nodes however long they wait",
            "write affinity: Preferred, or leave the patience out",
        )


def remarks_on_policies(settings: Settings) -> list[str]:
    """What `ineffective_settings` finds in the policies of the settings, one sentence each."""
    return [
        f"policy {name}: {remark}"
        for name, policy in sorted(settings.all_policies().by_name.items())
        for remark in _remarks(policy, settings)
    ]


def without_effect(policy: Policy, settings: Settings) -> list[str]:
    """A sentence for each field of an installed DevicePolicy that does nothing, but for
    requirements, which only a compiler can tell."""
    return _remarks(policy, settings, but={COUNTED_EVICTIONS.id, HASTY_DEADLINE.id})


def _remarks(policy: Policy, settings: Settings, but: Set[str] = frozenset()) -> list[str]:
    about = {
        "apiVersion": kinds.POLICY.api_version,
        "kind": kinds.POLICY.name,
        "metadata": {"name": policy.name},
        "spec": msgspec.to_builtins(policy),
    }
    found = ineffective_settings(
        Manifest(about), None, settings.health, labels=settings.node_marks.label
    )
    return [
        f"{one.field.removeprefix('spec.')}: {one.message}: {one.fix} ({one.rule})"
        for one in found
        if one.rule not in but
    ]


def unknown_rules(policy: Policy) -> list[str]:
    """Ids in `validation.rules` that no rule or check has."""
    return sorted(policy.validation.rules.keys() - IDS)


def _read(manifest: Manifest) -> tuple[Policy | None, str]:
    """The policy, or why it cannot be read; neither for an object of another kind."""
    if (manifest.api_version, manifest.kind) != (kinds.POLICY.api_version, kinds.POLICY.name):
        return None, ""
    try:
        decoded = kinds.POLICY.decode(msgspec.json.encode(manifest.object))
    except (BadInput, TypeError, ValueError, OverflowError, RecursionError) as error:
        return None, str(error)
    assert isinstance(decoded, DevicePolicy)
    return decoded.policy(), ""


def literals_of(text: str) -> Iterator[tuple[str, str]]:
    """Each call `quantity("…")` or `semver("…")`: the function, and the text with its quotes."""
    code, literals = _parts(text)
    for index, literal in enumerate(literals):
        before, after = code[index].rstrip(), code[index + 1].lstrip()
        if not before.endswith("(") or not after.startswith(")"):
            continue
        before = before[:-1].rstrip()
        for call in _CALLS:
            other = before.removesuffix(call)
            if other != before and not (other[-1:].isalnum() or other[-1:] in ("_", ".")):
                yield call, literal


def holds_only_with_all(text: str) -> bool:
    """Whether it is a chain of && on the outside, and nothing in it may be left out: so it never
    holds if one part always fails."""
    code, _ = _parts(text)
    without = '""'.join(code)
    if any(branch in without for branch in _BRANCHES) or "!" in without.replace("!=", ""):
        return False
    depth = 0
    for index, letter in enumerate(without):
        depth += (letter in "([{") - (letter in ")]}")
        if depth > 0 and without.startswith("&&", index):
            return False
    return bool(without)


def _parts(text: str) -> tuple[list[str], list[str]]:
    """The code before, between and after its texts, and these; nothing of what is hard to read."""
    unread: tuple[list[str], list[str]] = ([""], [])
    if len(text) > _LONGEST or "\\" in text or "//" in text:
        return unread
    code, literals, at = [], [], 0
    while (start := _first_quote(text, at)) >= 0:
        end = text.find(text[start], start + 1)
        if end < 0 or text.startswith(text[start] * 3, start) or text[:start].endswith(_PREFIXES):
            return unread
        code.append(text[at:start])
        literals.append(text[start : end + 1])
        at = end + 1
    return [*code, text[at:]], literals


_PREFIXES = ("r", "R", "b", "B")
"""Of raw texts and of bytes."""


def _first_quote(text: str, at: int) -> int:
    found = [where for quote in _QUOTES if (where := text.find(quote, at)) >= 0]
    return min(found, default=-1)


def meant_literal(call: str, literal: str) -> str:
    """What to write instead, if that is plain.

    >>> meant_literal("semver", "'v570'")
    'write 570.0.0'
    """
    said = literal[1:-1]
    if call == "quantity":
        return meant_quantity(said)
    numbers = said.lstrip("vV").split(".")
    if len(numbers) > 3 or not all(part.isascii() and part.isdigit() for part in numbers):
        return "write three numbers, such as 570.0.0"
    return f"write {'.'.join(str(int(part)) for part in (*numbers, '0', '0')[:3])}"
