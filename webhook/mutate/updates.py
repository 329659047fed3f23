"""What Fettle changes in an object that is updated: injected values are put back.

The lists that hold injected entries are atomic, and most of these specs are immutable. So to apply
the original manifest again would be refused with "field is immutable". Only what an earlier
injection recorded is put back, and only where the author left it out.
"""

import re
from functools import partial
from typing import Any

from fettle.api.core import DEFAULT_SCHEDULER
from fettle.api.raw import mapping, strings
from fettle.lint import Field, workload_kinds
from fettle.model import ANNOTATIONS as POLICY_ANNOTATIONS
from fettle.model import INJECTED, JOB_EXIT_CODES
from webhook.mutate import jobs
from webhook.mutate.affinity import carry_affinity
from webhook.mutate.annotations import Workload, carry_jobset_patch, unknown_annotations
from webhook.mutate.claims import CLAIM_SPECS, InjectedTolerations, inject_tolerations
from webhook.mutate.injection import Injection, record_of
from webhook.patches import Editing, field_at

Object = dict[str, Any]

_OURS = re.compile(
    r"spec\.(podFailurePolicy|podReplacementPolicy|backoffLimit|backoffLimitPerIndex|failurePolicy)"
    r"|.*\.spec\.schedulerName"
    rf"|.*\.annotations\[({'|'.join(map(re.escape, (*POLICY_ANNOTATIONS, JOB_EXIT_CODES)))})\]"
)
"""All fields that are ever injected into workloads. An author can forge the record, which must not
make Fettle put back what somebody removed for a reason."""
_DEFAULTS: dict[str, Any] = {
    "spec.podReplacementPolicy": jobs.DEFAULT_REPLACEMENT,
    "spec.backoffLimit": jobs.DEFAULT_BACKOFF_LIMIT,
}
"""What the API fills in where an author wrote nothing."""


def carried_over(new: Object, old: Object, kind: tuple[str, str], workload: Workload) -> Editing:
    """The edits that put injected values back; `kind` is the API group and kind."""
    if mapping(new, "spec") == mapping(old, "spec"):
        return Editing(new)
    if kind in CLAIM_SPECS:
        return _claim_carried_over(new, old, CLAIM_SPECS[kind])
    return _workload_carried_over(new, old, workload)


def _workload_carried_over(new: Object, old: Object, workload: Workload) -> Editing:
    """Each recorded value that the old object still has and the new one lacks."""
    editing = Editing(new)
    values = record_of(old).values
    for path, value in values.items():
        if _OURS.fullmatch(path):
            _carry(editing, old, path, value)
    for *template, _ in workload.annotated:
        carry_affinity(editing, old, values, tuple(template))
    carry_jobset_patch(editing, old)
    return _with_record(editing, old)


def _claim_carried_over(new: Object, old: Object, spec: workload_kinds.Path) -> Editing:
    """All recorded values; none if even with them the spec differs from the old one."""
    record = record_of(old)
    injection = Injection(new, record.policy)
    inject_tolerations(injection, spec, partial(InjectedTolerations.from_record, record))
    for path, value in record.values.items():
        if _OURS.fullmatch(path):  # annotations that a template gives to its claims
            _carry(injection.editing, old, path, value)
    if mapping(injection.document, "spec") != mapping(old, "spec"):
        return Editing(new)
    return _with_record(injection.editing, old)


def _carry(editing: Editing, old: Object, path: str, value: Any) -> None:
    field, stored = field_at(editing.document, path), field_at(old, path)
    if field is None or stored is None or not _holds(stored.value, value):
        return
    if field.value in (None, _default(path)) and stored.value != field.value:
        editing.set(field.keys, stored.value)


def _default(path: str) -> Any:
    return DEFAULT_SCHEDULER if path.endswith(".schedulerName") else _DEFAULTS.get(path)


def _holds(stored: Any, value: Any) -> bool:
    """Whether the stored value is this one, apart from fields that API defaulting added."""
    if isinstance(stored, dict) and isinstance(value, dict):
        return all(key in stored and _holds(stored[key], value[key]) for key in value)
    if isinstance(stored, list) and isinstance(value, list):
        same = len(stored) == len(value)
        return same and all(_holds(s, v) for s, v in zip(stored, value, strict=True))
    return bool(stored == value)


def _with_record(editing: Editing, old: Object) -> Editing:
    record = mapping(old, "metadata", "annotations").get(INJECTED)
    if editing.operations and record is not None:
        field = Field("", editing.document).at("metadata", "annotations", INJECTED)
        if field.value != record:
            editing.set(field.keys, record)
    return editing


def update_warnings(new: Object, old: Object, kind: str, workload: Workload) -> tuple[str, ...]:
    """Warnings about what changed in annotations without any effect."""
    known = {*unknown_annotations(old, workload)}
    added = (warning for warning in unknown_annotations(new, workload) if warning not in known)
    return (*_too_late(new, old, kind), *added)


def _too_late(new: Object, old: Object, kind: str) -> tuple[str, ...]:
    """A warning if policy annotations changed: the object keeps what it was created with."""
    before, after = _annotations(old), _annotations(new)
    changed = [key for key in POLICY_ANNOTATIONS if before.get(key) != after.get(key)]
    if not changed:
        return ()
    return (
        f"fettle: {' and '.join(changed)} changed, but this {kind} keeps what it was created "
        "with: delete and recreate it",
    )


def _annotations(object: Object) -> dict[str, str]:
    return strings(mapping(object, "metadata").get("annotations"))
