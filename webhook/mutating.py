"""What Fettle changes in an object when it is created: which policy applies, and which injections.

Pure, apart from yielding to other requests between steps. Only a policy that somebody named is
injected, never the cluster's default; what the author wrote wins. Running it on its own result
changes nothing.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from fettle.lint.raw import Raw, mapping, strings
from fettle.policy import ANNOTATION, Policies, Resolved
from fettle.view import View
from webhook import jobs, pods
from webhook.injecting import Injecting
from webhook.patches import Operation
from webhook.review import Request


class Mutation(NamedTuple):
    """`undecided` names what could not be looked up, if anything."""

    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    undecided: str = ""


async def mutate(request: Request, view: View, policies: Policies) -> Mutation:
    """The patch for a new Pod or Job; nothing for anything else."""
    await asyncio.sleep(0)
    if request.object is None or request.operation != "CREATE" or request.sub_resource:
        return Mutation()
    match (request.kind.group, request.kind.kind):
        case ("", "Pod"):
            return _pod(request, request.object, view, policies)
        case ("batch", "Job"):
            return _job(request, request.object, view, policies)
    return Mutation()


def _pod(request: Request, pod: dict[str, object], view: View, policies: Policies) -> Mutation:
    annotations, spec = strings(mapping(pod, "metadata").get("annotations")), mapping(pod, "spec")
    if pods.MIRROR in annotations:
        return Mutation()
    resolved, undecided = _resolve(request, annotations, spec, view, policies)
    injecting = Injecting(pod, resolved.policy.name if resolved.named else None)
    if resolved.named:
        pods.tolerate(injecting, resolved.policy.tolerations)
    if pods.needs_marker(spec):
        pods.mark(injecting)
    return _finished(injecting, resolved, undecided)


def _job(request: Request, job: dict[str, object], view: View, policies: Policies) -> Mutation:
    template = mapping(job, "spec", "template")
    annotations = {
        **strings(mapping(template, "metadata").get("annotations")),
        **strings(mapping(job, "metadata").get("annotations")),
    }
    resolved, undecided = _resolve(request, annotations, mapping(template, "spec"), view, policies)
    injecting = Injecting(job, resolved.policy.name if resolved.named else None)
    jobs.stamp(injecting)
    if resolved.named and resolved.policy.failure.ignore_disruptions:
        jobs.ignore_disruptions(injecting, resolved.policy.name)
    return _finished(injecting, resolved, undecided)


def _resolve(
    request: Request, annotations: Mapping[str, str], spec: Raw, view: View, policies: Policies
) -> tuple[Resolved, str]:
    """A namespace's label speaks for the pods that use devices, an annotation for any pod."""
    if not pods.uses_devices(spec):
        return policies.resolve(annotations, None), ""
    labels = view.namespaces.get(request.namespace) if view.synced else None
    resolved = policies.resolve(annotations, labels)
    by_annotation = resolved.named and annotations.get(ANNOTATION) == resolved.policy.name
    return resolved, "namespace" if labels is None and not by_annotation else ""


def _finished(injecting: Injecting, resolved: Resolved, undecided: str) -> Mutation:
    injecting.record()
    warnings = (*resolved.warnings, *injecting.warnings)
    return Mutation(tuple(injecting.editing.operations), warnings, undecided)
