"""What Fettle changes in an object: which policy applies, and which injections.

Pure, and done in slices between which other requests have their turn. Only a policy that somebody
named is injected, never the cluster's default; what the author wrote wins. Running it on its own
result changes nothing.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fettle.api.core import DEFAULT_SCHEDULER
from fettle.api.raw import Raw, mapping, mappings, strings, text
from fettle.cluster import View
from fettle.dra import EXTENDED_RESOURCE_CLAIM
from fettle.model import ANNOTATION, ANNOTATIONS, Policies, Resolved
from fettle.pacing import in_slices
from webhook import annotated, carrying, claims, jobs, jobsets, pods, stamping, trainjobs
from webhook.gates import EVERYTHING, Gates
from webhook.injecting import Injecting
from webhook.patches import Operation
from webhook.places import places, value_at
from webhook.review import SCHEDULER, AdmissionRequest
from webhook.workloads import WORKLOADS, Table, Workload


class Means(NamedTuple):
    """What mutation goes by. `gates` None: not known yet what the cluster keeps of claims.
    `schedulers` are those that ask Fettle, by name."""

    policies: Policies
    workloads: Table = WORKLOADS
    gates: Gates | None = EVERYTHING
    schedulers: Collection[str] = (DEFAULT_SCHEDULER,)


class Mutation(NamedTuple):
    """`unknown` are names that no policy has; `undecided` is what could not be looked up, if
    anything."""

    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    undecided: str = ""
    unknown: tuple[str, ...] = ()


async def mutate(request: AdmissionRequest, view: View, means: Means) -> Mutation:
    """The patch for a new or changed object; nothing for what is not ours to change."""
    await asyncio.sleep(0)
    return await in_slices(lambda: _mutation(request, view, means))


def _mutation(request: AdmissionRequest, view: View, means: Means) -> Mutation:
    if request.object is None or request.sub_resource or request.username == SCHEDULER:
        return Mutation()
    new, kind = request.object, request.group_kind
    workload = means.workloads.get(kind)
    if request.operation == "UPDATE" and request.old_object is not None:
        if workload is not None and workload.restamped:
            return _workload(request, new, workload, view, means)
        return _carried(new, request.old_object, kind, workload)
    if request.operation != "CREATE":
        return Mutation()
    if kind == ("", "Pod"):
        return _pod(request, new, view, means)
    if kind in claims.CLAIM_SPECS:
        return _claim(request, new, view, means)
    if workload is not None:
        return _workload(request, new, workload, view, means)
    return Mutation()


# --- new objects


def _pod(request: AdmissionRequest, pod: dict[str, Any], view: View, means: Means) -> Mutation:
    annotations, spec = _annotations(pod), mapping(pod, "spec")
    if pods.MIRROR in annotations:
        return Mutation()
    uses = pods.uses_devices(spec)
    resolved, undecided = _resolve(request, annotations, uses, view, means)
    injecting = Injecting(pod, resolved.policy.name if resolved.named else None)
    if resolved.named:
        pods.tolerate(injecting, resolved.policy.tolerations)
        codes = resolved.policy.failure.restart_container_on_exit_codes
        if means.gates is not None and means.gates.restart_rules:
            pods.restart(injecting, codes)
        elif codes and means.gates is None:
            undecided = undecided or "gates"
    if (text(spec.get("schedulerName")) or DEFAULT_SCHEDULER) not in means.schedulers:
        pods.unmark(injecting)
    elif pods.needs_marker(spec):
        pods.mark(injecting)
    return _finished(injecting, resolved, undecided, annotated.unknown(pod))


def _claim(request: AdmissionRequest, claim: dict[str, Any], view: View, means: Means) -> Mutation:
    workload = means.workloads.get(request.group_kind, Workload(()))
    annotations = stamping.annotations_of(claim, workload)
    if EXTENDED_RESOURCE_CLAIM in annotations:
        return Mutation()  # made when it has been allocated: too late for tolerations
    if (owner := owner_pod(request)) is not None and owner in view.pods:
        annotations = {**(view.pods[owner].metadata.annotations or {}), **annotations}
    resolved, undecided = _resolve(request, annotations, True, view, means)
    injecting = Injecting(claim, resolved.policy.name if resolved.named else None)
    stamping.stamp(injecting, workload)
    if resolved.named:
        wanted = claims.InjectedTolerations.by(resolved.policy.tolerations)
        if any(wanted) and means.gates is None:
            undecided = undecided or "gates"
        elif means.gates is not None and means.gates.tolerations:
            kept = wanted._replace(fallback=wanted.fallback and means.gates.alternatives)
            spec = claims.CLAIM_SPECS[request.group_kind]
            claims.inject(injecting, spec, lambda _: kept)
        elif any(wanted):
            injecting.warn("this cluster drops device tolerations, so none are injected")
    early = _too_early(resolved, request.kind.kind)
    in_vain = (*early, *annotated.in_vain(injecting.document, request.kind.kind, workload))
    below = _below(injecting, workload, view, means)
    return _finished(injecting, resolved, undecided, in_vain, below)


def _workload(
    request: AdmissionRequest, object: dict[str, Any], workload: Workload, view: View, means: Means
) -> Mutation:
    """New ones get all of it; of a changed one, the templates follow its annotations."""
    if _is_controlled(object) and not workload.also_made:
        return Mutation()
    annotations = stamping.annotations_of(object, workload)
    resolved, undecided = _resolve(
        request, annotations, _makes_devices(object, workload), view, means
    )
    named = resolved.policy.name if resolved.named else None
    injecting = Injecting(object, named, request.old_object)
    stamping.stamp(injecting, workload)
    if request.kind.kind == "TrainJob":
        trainjobs.hand_on(injecting)
    if resolved.named:
        failure = resolved.policy.failure
        if request.kind.kind == "Job":
            jobs.inject(injecting, failure)
            if means.gates is None or means.gates.restart_rules:
                jobs.keep_codes(injecting, failure)
        elif request.kind.kind == "JobSet":
            jobsets.inject(injecting, failure)
        for path in workload.jobs:
            jobs.warn(injecting, failure, path)
    early = () if workload.restamped else _too_early(resolved, request.kind.kind)
    in_vain = (*early, *annotated.in_vain(injecting.document, request.kind.kind, workload))
    below = _below(injecting, workload, view, means)
    return _finished(injecting, resolved, undecided, in_vain, below)


def _too_early(resolved: Resolved, kind: str) -> tuple[str, ...]:
    """What to do if its policy may be about to be created, such as from another file in a
    folder.
    """
    if not resolved.unknown:
        return ()
    return (
        f"fettle: a policy takes effect only when the {kind} is created: apply the DevicePolicy "
        f"first, then delete and recreate the {kind}",
    )


def _makes_devices(object: Raw, workload: Workload) -> bool:
    """Whether its pods use devices."""
    templates = (
        mapping(value_at(object, metadata.path[:-1]))
        for path in workload.annotated
        for metadata in places(object, path)
    )
    return any(pods.uses_devices(mapping(template, "spec")) for template in templates)


def owner_pod(request: AdmissionRequest) -> str | None:
    """`namespace/name` of the pod that a claim was made for; None where there is none."""
    metadata = mapping(request.object, "metadata")
    for _, owner in mappings(metadata.get("ownerReferences")):
        if owner.get("kind") == "Pod" and owner.get("controller") is True:
            return f"{request.namespace}/{text(owner.get('name'))}"
    return None


# --- changed objects


def _carried(
    new: dict[str, Any], old: dict[str, Any], kind: tuple[str, str], workload: Workload | None
) -> Mutation:
    """What may not change keeps what it had."""
    if workload is None and kind not in claims.CLAIM_SPECS:
        return Mutation()
    templates = workload or Workload(())
    stood = {*annotated.unknown(old, templates)}
    added = (said for said in annotated.unknown(new, templates) if said not in stood)
    warnings = (*_too_late(new, old, kind[1]), *added)
    if mapping(new, "spec") == mapping(old, "spec"):
        return Mutation(warnings=warnings)
    if kind in claims.CLAIM_SPECS:
        editing = carrying.carry_claim(new, old, claims.CLAIM_SPECS[kind])
    else:
        editing = carrying.carry(new, old)
    return Mutation(tuple(editing.operations), warnings)


def _too_late(new: dict[str, Any], old: dict[str, Any], kind: str) -> tuple[str, ...]:
    """A warning about policy annotations that changed on an object that keeps what it was given."""
    before, after = _annotations(old), _annotations(new)
    changed = [key for key in ANNOTATIONS if before.get(key) != after.get(key)]
    if not changed:
        return ()
    return (
        f"fettle: {' and '.join(changed)} changed, but this {kind} keeps what it was created "
        "with: delete and recreate it",
    )


# --- what they share


def _resolve(
    request: AdmissionRequest, annotations: Mapping[str, str], uses: bool, view: View, means: Means
) -> tuple[Resolved, str]:
    """A namespace's label speaks for what uses devices, an annotation for anything."""
    installed, quarantined = view.policies, view.quarantined
    if not uses:
        return means.policies.resolve(annotations, None, installed, quarantined), ""
    labels = view.namespaces.get(request.namespace) if view.synced else None
    resolved = means.policies.resolve(annotations, labels, installed, quarantined)
    by_annotation = resolved.named and annotations.get(ANNOTATION) == resolved.policy.name
    return resolved, "namespace" if labels is None and not by_annotation else ""


def _below(
    injecting: Injecting, workload: Workload, view: View, means: Means
) -> tuple[Resolved, ...]:
    """What the annotations of its templates come to, whose warnings reach nobody once a controller
    makes objects of them."""
    return tuple(
        means.policies.resolve(said, None, view.policies, view.quarantined)
        for said in annotated.of_templates(injecting.document, workload)
    )


def _finished(
    injecting: Injecting,
    resolved: Resolved,
    undecided: str,
    in_vain: Iterable[str],
    below: Sequence[Resolved] = (),
) -> Mutation:
    injecting.record()
    ignored = (warning for each in (resolved, *below) for warning in each.warnings)
    warnings = dict.fromkeys((*ignored, *in_vain, *injecting.warnings))
    others = dict.fromkeys(name for each in below for name in each.unknown)
    unknown = (*resolved.unknown, *(name for name in others if name not in resolved.unknown))
    return Mutation(tuple(injecting.editing.operations), tuple(warnings), undecided, unknown)


def _annotations(object: Raw) -> dict[str, str]:
    return strings(mapping(object, "metadata").get("annotations"))


def _is_controlled(object: Raw) -> bool:
    owners = mapping(object, "metadata").get("ownerReferences")
    return any(owner.get("controller") is True for _, owner in mappings(owners))
