"""What Fettle changes in an object that is created or updated: which policy applies, which values
it injects, and which of those are put back.

Stands at the end of *watch → inventory → health → verdict → answer*. Only a policy that somebody
named is injected, never the cluster's default. What the author wrote stays. A second run on its own
result changes nothing. Pure; long work lets other requests go first.

The lists that hold injected entries are atomic, and most of these specs are immutable. So to apply
the original manifest again would be refused with "field is immutable". Only what an earlier
injection recorded is put back, and only where the author left it out.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from fettle.api.annotations import EXTENDED_RESOURCE_CLAIM
from fettle.api.core import DEFAULT_SCHEDULER
from fettle.api.raw import mapping, strings
from fettle.cluster import View
from fettle.lint import Field, workload_kinds
from fettle.model import ANNOTATION, INJECTED, JOB_EXIT_CODES, Policies, Resolved, RestartAction
from fettle.model import ANNOTATIONS as POLICY_ANNOTATIONS
from fettle.pacing import run_within
from webhook.cluster_features import ALL_PRESERVED, PreservedFields
from webhook.mutate import affinity, claims, jobs, pods
from webhook.mutate.affinity import carry_affinity
from webhook.mutate.annotations import (
    WORKLOADS,
    Workload,
    Workloads,
    annotation_warnings,
    carry_jobset_patch,
    hand_on_to_jobset,
    merged_annotations,
    stamp_templates,
    stamps_change,
    template_annotations,
    unknown_annotations,
)
from webhook.mutate.claims import CLAIM_SPECS, InjectedTolerations, inject_tolerations
from webhook.mutate.injection import Injection, record_of
from webhook.patches import Editing, Operation, field_at, fields_matching
from webhook.review import SCHEDULER, AdmissionRequest

DAEMON_SET = "DaemonSet"
"""It removes its running pods from a node that their template's affinity no longer matches."""
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


class MutationContext(NamedTuple):
    """What mutation needs, beside the object and the view.

    `preserved`: the injected fields that the cluster keeps; None: that is not known yet.
    `schedulers`: the names of those that call Fettle.
    """

    policies: Policies
    workloads: Workloads = WORKLOADS
    preserved: PreservedFields | None = ALL_PRESERVED
    schedulers: Collection[str] = (DEFAULT_SCHEDULER,)


class Mutation(NamedTuple):
    """The patch and the warnings.

    `undecided`: what could not be looked up, if anything. `unknown`: names that no policy has.
    """

    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    undecided: str = ""
    unknown: tuple[str, ...] = ()


async def mutate(request: AdmissionRequest, view: View, context: MutationContext) -> Mutation:
    """The patch for a new or changed object; an empty one if Fettle has nothing to change."""
    await asyncio.sleep(0)
    return await run_within(lambda: _mutation(request, view, context))


def _mutation(request: AdmissionRequest, view: View, context: MutationContext) -> Mutation:
    if request.object is None or request.sub_resource or request.username == SCHEDULER:
        return Mutation()
    new, kind = request.object, request.group_kind
    workload = context.workloads.get(kind)
    if request.operation == "UPDATE" and request.old_object is not None:
        if workload is not None and workload.restamped:
            return _workload(request, new, workload, view, context)
        return _update(new, request.old_object, kind, workload)
    if request.operation != "CREATE":
        return Mutation()
    if kind == ("", "Pod"):
        return _pod(request, new, view, context)
    if kind in claims.CLAIM_SPECS:
        return _claim(request, new, view, context)
    if workload is not None:
        return _workload(request, new, workload, view, context)
    return Mutation()


def resolve_for(request: AdmissionRequest, view: View, context: MutationContext) -> Resolved:
    """The policy and the mode that apply to an object, whether it uses devices or not."""
    workload = context.workloads.get(request.group_kind, Workload(()))
    annotations = merged_annotations(request.object, workload)
    if (owner := owner_pod(request)) is not None and owner in view.pods:
        annotations = {**(view.pods[owner].metadata.annotations or {}), **annotations}
    labels = view.namespaces.get(request.namespace)
    return context.policies.resolve(annotations, labels, view.policies, view.quarantined)


# --- new objects


def _pod(
    request: AdmissionRequest, pod: dict[str, Any], view: View, context: MutationContext
) -> Mutation:
    whole = Field("", pod)
    annotations, spec = whole.strings("metadata", "annotations"), whole.at("spec")
    if pods.MIRROR in annotations:
        return Mutation()
    uses = pods.uses_devices(spec)
    resolved, undecided = _resolve(request, annotations, uses, view, context)
    injection = Injection(pod, resolved.policy.name if resolved.named else None)
    if resolved.named:
        pods.add_node_tolerations(injection, resolved.policy.tolerations)
        failure = resolved.policy.failure
        codes = failure.restart_container_on_exit_codes
        if context.preserved is not None and context.preserved.restart_rules:
            heeded = context.preserved.restart_all
            action = failure.restart_action if heeded else RestartAction.RESTART
            pods.add_restart_rules(injection, codes, action)
        elif codes and context.preserved is None:
            undecided = undecided or "gates"
        if _controller(pod) != DAEMON_SET:
            _steer(injection, spec, resolved, view, context)
    spec = injection.read("spec")
    if (spec.text("schedulerName") or DEFAULT_SCHEDULER) not in context.schedulers:
        pods.remove_marker(injection)
    elif pods.needs_marker(spec):
        pods.add_marker(injection)
    return _finished(injection, resolved, undecided, unknown_annotations(pod))


def _claim(
    request: AdmissionRequest, claim: dict[str, Any], view: View, context: MutationContext
) -> Mutation:
    workload = context.workloads.get(request.group_kind, Workload(()))
    annotations = merged_annotations(claim, workload)
    if EXTENDED_RESOURCE_CLAIM in annotations:
        # The scheduler makes this claim when it has chosen its devices: too late for tolerations.
        return Mutation()
    if (owner := owner_pod(request)) is not None and owner in view.pods:
        annotations = {**(view.pods[owner].metadata.annotations or {}), **annotations}
    resolved, undecided = _resolve(request, annotations, True, view, context)
    injection = Injection(claim, resolved.policy.name if resolved.named else None)
    stamp_templates(injection, workload)
    if resolved.named:
        wanted = claims.InjectedTolerations.from_policy(resolved.policy.tolerations)
        if any(wanted) and context.preserved is None:
            undecided = undecided or "gates"
        elif context.preserved is not None and context.preserved.tolerations:
            kept = wanted._replace(fallback=wanted.fallback and context.preserved.alternatives)
            spec = claims.CLAIM_SPECS[request.group_kind]
            claims.inject_tolerations(injection, spec, lambda _: kept)
        elif any(wanted):
            injection.warn("this cluster drops device tolerations, so none are injected")
    kind = request.kind.kind
    warnings = (
        *_too_early(resolved, kind),
        *annotation_warnings(injection.document, kind, workload),
    )
    below = _template_policies(injection, workload, view, context)
    return _finished(injection, resolved, undecided, warnings, below)


def _workload(
    request: AdmissionRequest,
    object: dict[str, Any],
    workload: Workload,
    view: View,
    context: MutationContext,
) -> Mutation:
    """A new workload, or a changed one whose templates follow its annotations."""
    if _is_controlled(object) and not workload.stamped_if_controlled:
        return Mutation()
    annotations = merged_annotations(object, workload)
    uses = _uses_devices(object, workload)
    resolved, undecided = _resolve(request, annotations, uses, view, context)
    named = resolved.policy.name if resolved.named else None
    injection = Injection(object, named, request.old_object)
    if request.old_object is None or stamps_change(object, request.old_object, workload):
        stamp_templates(injection, workload)
    if (kind := request.kind.kind) == "TrainJob":
        hand_on_to_jobset(injection)
    if resolved.named:
        failure = resolved.policy.failure
        if kind == "Job":
            jobs.inject_job_failure_policy(injection, failure)
            if context.preserved is None or context.preserved.restart_rules:
                jobs.annotate_exit_codes(injection, failure)
        elif kind == "JobSet":
            served = context.preserved is not None and context.preserved.in_place_restart
            jobs.inject_jobset_failure_policy(injection, failure, in_place_served=served)
        for path in workload.jobs:
            jobs.warn_of_job_templates(injection, failure, path)
    if kind != DAEMON_SET:
        _steer_templates(injection, request, workload, view, context)
    early = () if workload.restamped else _too_early(resolved, kind)
    warnings = (*early, *annotation_warnings(injection.document, kind, workload))
    below = _template_policies(injection, workload, view, context)
    return _finished(injection, resolved, undecided, warnings, below)


def _steer(
    injection: Injection, spec: Field, resolved: Resolved, view: View, context: MutationContext
) -> None:
    """Node affinity and the scheduler, as the policy says."""
    by_class = {each.extended_resource_name for each in view.classes.values()}
    placement = resolved.policy.placement
    wanted = affinity.wanted(spec, placement, resolved.mode.mode, by_class)
    affinity.inject_affinity(injection, spec, wanted)
    affinity.inject_scheduler(injection, spec, placement.scheduler, context.schedulers)


def _steer_templates(
    injection: Injection,
    request: AdmissionRequest,
    workload: Workload,
    view: View,
    context: MutationContext,
) -> None:
    """Node affinity and the scheduler in templates, by the policy that their pods will have."""
    old = request.old_object or {}
    values = record_of(old).values
    for *path, _ in workload.annotated:
        for template in fields_matching(injection.document, path):
            before = field_at(old, template.path)
            if affinity.keep_affinity(injection, template, before, values):
                continue
            annotations = template.strings("metadata", "annotations")
            spec = template.at("spec")
            resolved, _ = _resolve(request, annotations, pods.uses_devices(spec), view, context)
            if resolved.named:
                _steer(injection, spec, resolved, view, context)
            else:
                affinity.inject_affinity(injection, spec, affinity.NOTHING)
                affinity.inject_scheduler(injection, spec, None)


def _too_early(resolved: Resolved, kind: str) -> tuple[str, ...]:
    """What to do about a policy that does not exist (yet: another file may create it)."""
    if not resolved.unknown:
        return ()
    return (
        f"fettle: a policy takes effect only when the {kind} is created: apply the DevicePolicy "
        f"first, then delete and recreate the {kind}",
    )


def _uses_devices(object: dict[str, Any], workload: Workload) -> bool:
    """Whether the workload's pods use devices."""
    return any(
        pods.uses_devices(spec)
        for *template, _ in workload.annotated
        for spec in fields_matching(object, (*template, "spec"))
    )


def owner_pod(request: AdmissionRequest) -> str | None:
    """`namespace/name` of the pod that a claim was made for, if any."""
    for owner in Field("", request.object).each("metadata", "ownerReferences"):
        if owner.text("kind") == "Pod" and owner.at("controller").value is True:
            return f"{request.namespace}/{owner.text('name')}"
    return None


# --- changed objects


def _update(
    new: dict[str, Any], old: dict[str, Any], kind: tuple[str, str], workload: Workload | None
) -> Mutation:
    """The patch that puts injected values back into an object that may not change."""
    if workload is None and kind not in claims.CLAIM_SPECS:
        return Mutation()
    workload = workload or Workload(())
    warnings = update_warnings(new, old, kind[1], workload)
    return Mutation(tuple(carried_over(new, old, kind, workload).operations), warnings)


# --- for all of them


def _resolve(
    request: AdmissionRequest,
    annotations: Mapping[str, str],
    uses: bool,
    view: View,
    context: MutationContext,
) -> tuple[Resolved, str]:
    """The policy, and what could not be looked up.

    An annotation counts for every object, a namespace's label only for those that use devices.
    """
    installed, quarantined = view.policies, view.quarantined
    if not uses:
        return context.policies.resolve(annotations, None, installed, quarantined), ""
    labels = view.namespaces.get(request.namespace) if view.synced else None
    resolved = context.policies.resolve(annotations, labels, installed, quarantined)
    by_annotation = resolved.named and annotations.get(ANNOTATION) == resolved.policy.name
    return resolved, "namespace" if labels is None and not by_annotation else ""


def _template_policies(
    injection: Injection, workload: Workload, view: View, context: MutationContext
) -> tuple[Resolved, ...]:
    """The policies that the annotations of its templates name.

    Once a controller makes objects of the templates, warnings about them reach nobody.
    """
    return tuple(
        context.policies.resolve(annotations, None, view.policies, view.quarantined)
        for annotations in template_annotations(injection.document, workload)
    )


def _finished(
    injection: Injection,
    resolved: Resolved,
    undecided: str,
    warnings: Iterable[str],
    below: Sequence[Resolved] = (),
) -> Mutation:
    injection.record()
    ignored = (warning for each in (resolved, *below) for warning in each.warnings)
    each_once = dict.fromkeys((*ignored, *warnings, *injection.warnings))
    others = dict.fromkeys(name for each in below for name in each.unknown)
    unknown = (*resolved.unknown, *(name for name in others if name not in resolved.unknown))
    return Mutation(tuple(injection.editing.operations), tuple(each_once), undecided, unknown)


def _is_controlled(object: dict[str, Any]) -> bool:
    return _controller(object) is not None


def _controller(object: dict[str, Any]) -> str | None:
    """The kind of the object's controller; None if it has none."""
    owners = Field("", object).each("metadata", "ownerReferences")
    kinds = (owner.text("kind") for owner in owners if owner.at("controller").value is True)
    return next(kinds, None)


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
