"""Injected values carried over when an author applies the original manifest again.

The lists that hold our entries are atomic, and most of these specs never change: without this, to
apply or replace what was written before would be refused with "field is immutable". Only what an
earlier injection recorded is put back, and only where its author left it out.
"""

import re
from functools import partial
from typing import Any

from fettle.api.raw import mapping
from fettle.model import ANNOTATIONS as POLICY_ANNOTATIONS
from fettle.model import INJECTED, JOB_EXIT_CODES
from webhook import claims, jobs, trainjobs
from webhook.claims import InjectedTolerations
from webhook.injecting import ANNOTATIONS, Injecting, record_of
from webhook.patches import Editing
from webhook.places import FieldPath, called, value_at

Object = dict[str, Any]

_OURS = re.compile(
    r"spec\.(podFailurePolicy|podReplacementPolicy|backoffLimit|backoffLimitPerIndex|failurePolicy)"
    rf"|.*\.annotations\[({'|'.join(map(re.escape, (*POLICY_ANNOTATIONS, JOB_EXIT_CODES)))})\]"
)
"""All that is ever injected into workloads: the record is the author's to forge, and must not have
us put back what somebody took away for a reason."""
_DEFAULTS: dict[str, Any] = {
    "spec.podReplacementPolicy": jobs.DEFAULT_REPLACEMENT,
    "spec.backoffLimit": jobs.DEFAULT_BACKOFF_LIMIT,
}
"""What the API puts where an author wrote nothing."""


def carry(new: Object, old: Object) -> Editing:
    """For workloads: each recorded value that is still there and that the new object lacks."""
    editing = Editing(new)
    for name, value in record_of(old).values.items():
        if _OURS.fullmatch(name):
            _carry(editing, old, name, value)
    trainjobs.carry(editing, old)
    return _with_record(editing, old)


def carry_claim(new: Object, old: Object, spec: FieldPath) -> Editing:
    """For claims and their templates: all of it, or nothing where that is not the old spec."""
    record = record_of(old)
    injecting = Injecting(new, record.policy)
    claims.inject(injecting, spec, partial(InjectedTolerations.recorded, record))
    for name, value in record.values.items():
        if _OURS.fullmatch(name):  # what a template says to its claims
            _carry(injecting.editing, old, name, value)
    if mapping(injecting.document, "spec") != mapping(old, "spec"):
        return Editing(new)
    return _with_record(injecting.editing, old)


def _carry(editing: Editing, old: Object, name: str, value: Any) -> None:
    place, kept = called(editing.document, name), called(old, name)
    if place is None or kept is None:
        return
    stands = value_at(old, kept.path)
    written = value_at(editing.document, place.path)
    if _holds(stands, value) and written in (None, _DEFAULTS.get(name)) and stands != written:
        editing.set(place.path, stands)


def _holds(stored: Any, value: Any) -> bool:
    """Whether this is the value, apart from fields that the API's defaulting added."""
    if isinstance(stored, dict) and isinstance(value, dict):
        return all(key in stored and _holds(stored[key], value[key]) for key in value)
    if isinstance(stored, list) and isinstance(value, list):
        same = len(stored) == len(value)
        return same and all(_holds(s, v) for s, v in zip(stored, value, strict=True))
    return bool(stored == value)


def _with_record(editing: Editing, old: Object) -> Editing:
    record = mapping(old, "metadata", "annotations").get(INJECTED)
    if editing.operations and record is not None:
        place = ANNOTATIONS.at(INJECTED)
        if value_at(editing.document, place.path) != record:
            editing.set(place.path, record)
    return editing
