"""Where pods of a policy may go, for those who ask no extender, such as schedulers that cannot be
configured, queues and autoscalers: node affinity on what the steward writes on Nodes about their
health; and which scheduler places them.

Affinity goes into pods and into the templates of workloads, since queues and autoscalers read
templates. A node without the label matches: nobody has judged it yet, or an autoscaler only
imagines it. What an author says of the label stays. Else each term of theirs has our expression
once, whatever another webhook adds meanwhile.

Only what goes by the default scheduler is given away: who names another one means it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fettle.api.core import DEFAULT_SCHEDULER
from fettle.api.raw import Raw, mapping, mappings, text
from fettle.lint import Field, workload_kinds
from fettle.model import (
    HEALTH,
    HEALTH_OF,
    HEALTH_OF_NODE,
    STRICT_RISK,
    Degraded,
    Mode,
    Placement,
    PolicyAffinity,
    Tier,
    Unknown,
    units_label,
)
from webhook.mutate import pods
from webhook.mutate.injection import Injection
from webhook.patches import Editing, field_at, fields_matching

WEIGHT = 100
"""Of the preferred term: the highest that there is, since nothing makes up for a bad device."""
REQUIRED, PREFERRED = (
    f"{which}DuringSchedulingIgnoredDuringExecution" for which in ("required", "preferred")
)
_NAME = "schedulerName"
_UNSAID = (None, "", DEFAULT_SCHEDULER)


class HealthAffinity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is in the affinity of one pod spec, as it is recorded: expressions of every required
    term, or of one preferred term."""

    required: list[dict[str, Any]] = []
    preferred: list[dict[str, Any]] = []


NOTHING = HealthAffinity()


def wanted(
    spec: Field, placement: Placement, mode: Mode, by_class: Collection[str | None] = ()
) -> HealthAffinity:
    """What a policy asks for, for the pods of this spec. In mode `steer` nothing is required.

    `by_class`: extended resources that nodes may also provide by DRA devices, of which the labels
    about units do not know.
    """
    # What is bound already is beyond any scheduler: its kubelet would only refuse it.
    if placement.affinity is PolicyAffinity.NONE or spec.text("nodeName"):
        return NOTHING
    if placement.affinity is PolicyAffinity.REQUIRED and mode is not Mode.STEER:
        return HealthAffinity(required=_expressions(spec, placement, by_class))
    if placement.degraded is Degraded.ALLOW:  # it takes these last
        placement = msgspec.structs.replace(placement, degraded=Degraded.REFUSE)
    return HealthAffinity(preferred=_expressions(spec, placement, by_class))


def _expressions(
    spec: Field, placement: Placement, by_class: Collection[str | None]
) -> list[dict[str, Any]]:
    """By the labels about its units, and about the whole node if the pod uses anything else."""
    found, whole = [], pods.uses_claims(spec)
    for resource, number in sorted(pods.units_asked(spec).items()):
        label = None if resource in by_class else units_label(resource)
        if label is None:
            whole = True
        else:
            found.append(_is_none_of(label, _refused_units(placement, number)))
    if whole:
        found.append(_is_none_of(HEALTH_OF_NODE, _refused(placement)))
    return found


def _refused(placement: Placement) -> set[Tier]:
    """What a policy refuses, before any patience."""
    refused = {Tier.UNHEALTHY}
    if placement.degraded is Degraded.REFUSE:
        refused.add(Tier.DEGRADED)
    if placement.unknown is Unknown.REFUSE:
        refused.add(Tier.UNKNOWN)
    return refused


def _refused_units(placement: Placement, number: int) -> set[Tier]:
    """The same for a pod that asks for so many units. One unit is the least risk beside a bad one;
    nobody knows here how many there are."""
    refused, risk = _refused(placement), placement.risk_bound
    if risk <= STRICT_RISK or (number > 1 and risk < 1):
        refused.add(Tier.PARTLY_UNHEALTHY)
    return refused


def _is_none_of(label: str, refused: set[Tier]) -> dict[str, Any]:
    return {"key": label, "operator": "NotIn", "values": sorted(map(str, refused))}


def path_of(spec: Field) -> str:
    """Where the record says what is in the affinity of a pod spec."""
    return f"{spec.path}.affinity[{HEALTH}]"


def recorded(values: Mapping[str, Any], spec: Field) -> HealthAffinity:
    """What an earlier injection wrote; nothing if the record does not say, or cannot be read."""
    try:
        found = msgspec.convert(values.get(path_of(spec), {}), HealthAffinity)
    except msgspec.ValidationError:
        return NOTHING
    return found if all(map(_is_ours, (*found.required, *found.preferred))) else NOTHING


def inject_affinity(injection: Injection, spec: Field, ours: HealthAffinity) -> None:
    """Replace what an earlier injection wrote into a pod spec, unless its author says something of
    the same labels."""
    before = recorded(injection.before.values, spec)
    if replace(injection.editing, spec, before, ours):
        injection.note(path_of(spec), msgspec.to_builtins(ours))
    else:
        injection.forget(path_of(spec))


def replace(editing: Editing, spec: Field, before: HealthAffinity, ours: HealthAffinity) -> bool:
    """Edit the affinity of a pod spec: `ours` instead of `before`. Whether `ours` is in it."""
    affinity = spec.at("affinity")
    authors = without(affinity.value, before)
    made = None if ours == NOTHING or _mentioned(authors) else _with(authors, ours)
    _change(editing, affinity, authors if made is None else made)
    return made is not None


def without(affinity: Any, ours: HealthAffinity) -> Any:
    """An affinity as it would be without what we wrote; None if nothing is left."""
    node = mapping(affinity, "nodeAffinity")
    left = dict(node)
    terms = mapping(node, REQUIRED).get("nodeSelectorTerms")
    if ours.required and isinstance(terms, list):
        kept = [*_widened(terms, ours.required)]
        left[REQUIRED] = {**node[REQUIRED], "nodeSelectorTerms": kept} if kept else None
    preferred = node.get(PREFERRED)
    if ours.preferred and isinstance(preferred, list):
        left[PREFERRED] = [term for term in preferred if term != _preference(ours)] or None
    if left == node:
        return affinity
    left = {key: value for key, value in left.items() if value is not None}
    whole = {**affinity, "nodeAffinity": left or None}
    return {key: value for key, value in whole.items() if value is not None} or None


def _widened(terms: Sequence[Any], ours: Sequence[Raw]) -> Iterator[Any]:
    """The terms without our expressions, and without those that had no others."""
    for term in terms:
        expressions = mapping(term).get("matchExpressions")
        if not isinstance(expressions, list) or not any(one in ours for one in expressions):
            yield term
            continue
        left = [one for one in expressions if one not in ours]
        rest = {key: value for key, value in term.items() if key != "matchExpressions"}
        if left or rest:
            yield {"matchExpressions": left, **rest} if left else rest


def _with(affinity: Any, ours: HealthAffinity) -> Raw | None:
    """The affinity with ours; None if there is no place for it."""
    node = mapping(affinity).get("nodeAffinity")
    if not isinstance(affinity, dict | None) or not isinstance(node, dict | None):
        return None
    node = dict(node or {})
    if ours.required:
        terms = _narrowed(node.get(REQUIRED), ours.required)
        if terms is None:
            return None
        node[REQUIRED] = {**mapping(node.get(REQUIRED)), "nodeSelectorTerms": terms}
    else:
        if not isinstance(node.get(PREFERRED), list | None):
            return None
        node[PREFERRED] = [*(node.get(PREFERRED) or ()), _preference(ours)]
    return {**mapping(affinity), "nodeAffinity": node}


def _narrowed(required: Any, ours: Sequence[Raw]) -> list[Any] | None:
    """The terms of a node selector, each with ours; None if it selects nothing."""
    if required is None:
        return [{"matchExpressions": [*ours]}]
    terms = mapping(required).get("nodeSelectorTerms")
    if not isinstance(terms, list):
        return None
    narrowed = [_and(term, ours) for term in terms]
    return narrowed if narrowed != terms else None


def _and(term: Any, ours: Sequence[Raw]) -> Any:
    expressions = mapping(term).get("matchExpressions")
    if not isinstance(expressions, list | None):
        return term
    if not expressions and not mapping(term).get("matchFields"):
        return term  # An empty term matches nothing; with ours it would match.
    return {**term, "matchExpressions": [*(expressions or ()), *ours]}


def _preference(ours: HealthAffinity) -> Raw:
    return {"weight": WEIGHT, "preference": {"matchExpressions": ours.preferred}}


def _mentioned(affinity: Any) -> bool:
    """Whether any term says something of our labels."""
    node = mapping(affinity, "nodeAffinity")
    required = [*mappings(mapping(node, REQUIRED).get("nodeSelectorTerms"))]
    preferred = [(i, mapping(one, "preference")) for i, one in mappings(node.get(PREFERRED))]
    return any(
        _is_ours(expression)
        for _, term in (*required, *preferred)
        for _, expression in mappings(term.get("matchExpressions"))
    )


def _is_ours(expression: Raw) -> bool:
    key = text(expression.get("key"))
    return key == HEALTH or key.startswith(HEALTH_OF)


def _change(editing: Editing, field: Field, wanted: Any) -> None:
    """Make a field what is wanted by the smallest edits; None: it is absent."""
    if field.value == wanted:
        return
    if wanted is None:
        editing.remove(field.keys)
    elif isinstance(field.value, dict) and isinstance(wanted, dict):
        for key in {**field.value, **wanted}:
            _change(editing, field.at(key), wanted.get(key))
    else:
        editing.set(field.keys, wanted)


# --- changed templates


def keep_affinity(
    injection: Injection, new: Field, old: Field | None, values: Mapping[str, Any]
) -> bool:
    """Give a template whose author changes nothing else of it the affinity and the scheduler that
    it had; False if they do.

    A template that changed would replace all pods that were made of it. `values` are those recorded
    on the old object.
    """
    if old is None:
        return False
    spec, stored = new.at("spec"), old.at("spec")
    before = recorded(values, stored)
    if _bare(new, before, values) != _bare(old, before, values):
        return False
    _change(injection.editing, spec.at("affinity"), stored.at("affinity").value)
    keep_scheduler(injection, spec, stored, values)
    if is_in(stored, before):
        injection.note(path_of(spec), msgspec.to_builtins(before))
    else:
        injection.forget(path_of(spec))
    return True


def _bare(template: Field, ours: HealthAffinity, values: Mapping[str, Any]) -> Any:
    spec = mapping(template.value, "spec")
    affinity = without(spec.get("affinity"), ours)
    rest = {key: value for key, value in spec.items() if key != "affinity"}
    unscheduled = without_scheduler(rest, template.at("spec").path, values)
    return {**mapping(template.value), "spec": unscheduled, "affinity": affinity}


def is_in(spec: Field, ours: HealthAffinity) -> bool:
    """Whether a pod spec has what we wrote."""
    affinity = spec.at("affinity").value
    return bool(without(affinity, ours) != affinity)


def carry_affinity(
    editing: Editing, old: Raw, values: Mapping[str, Any], template: workload_kinds.Path
) -> None:
    """Put back what an object that may not change has had, by the record on it."""
    for spec in fields_matching(editing.document, (*template, "spec")):
        stored = field_at(old, spec.path)
        if stored is None or not is_in(stored, ours := recorded(values, spec)):
            continue
        new, before = spec.at("affinity"), stored.at("affinity").value
        if without(new.value, ours) == without(before, ours):
            _change(editing, new, before)
        else:
            replace(editing, spec, ours, ours)


def inject_scheduler(
    injection: Injection, spec: Field, wanted: str | None, asking: Collection[str] = ()
) -> None:
    """Name the scheduler that a policy wants, or take back what an earlier injection named; None:
    it wants none. `asking`: those that call Fettle."""
    field, before = spec.at(_NAME), injection.before.values
    ours = field.value not in _UNSAID and field.value == before.get(field.path)
    if spec.text("nodeName") or not (ours or field.value in _UNSAID):
        return
    if wanted is None and ours:
        injection.remove(field)
    elif wanted is not None and wanted not in (field.value, DEFAULT_SCHEDULER):
        injection.set(field, wanted)
        if wanted not in asking:
            injection.warn(
                f"scheduler {wanted} is not in the setting scheduler.names, so Fettle has no say "
                "in where it places pods"
            )


def keep_scheduler(
    injection: Injection, spec: Field, stored: Field, values: Mapping[str, Any]
) -> None:
    """Put back what a template had, by the record on the old object."""
    field, before = spec.at(_NAME), stored.at(_NAME)
    if field.value in _UNSAID and before.exists and before.value == values.get(before.path):
        injection.set(field, before.value)


def without_scheduler(spec: Raw, path: str, values: Mapping[str, Any]) -> Raw:
    """A pod spec without its scheduler, if that is the default one or what we wrote."""
    if spec.get(_NAME) not in (*_UNSAID, values.get(f"{path}.{_NAME}")):
        return spec
    return {key: value for key, value in spec.items() if key != _NAME}
