"""Policy annotations on workloads: copied to what the workload makes, and checked.

The extender and the webhook see pods, so a pod must name its policy itself. A workload's
annotations are copied to its pod templates; what a template says itself stays. A TrainJob has no
template of its own, so it hands its annotations on to the JobSet that is made for it. Warnings tell
authors of annotations that have no effect.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fettle.api.raw import Raw, mapping, mappings
from fettle.config import WorkloadSettings
from fettle.lint import ANNOTATION_IGNORED, Field, listed, suggest_annotation, workload_kinds
from fettle.model import ANNOTATION, ANNOTATIONS, is_unknown, shown
from fettle.pacing import pause
from webhook.mutate.injection import Injection, record_of
from webhook.patches import Editing, fields_matching

# --- the kinds that make pods


class Workload(NamedTuple):
    """A kind that makes pods. Paths are as `fields_matching` reads them.

    `annotated`: paths of metadata whose annotations reach the pods. `jobs`: paths of Job specs.
    `restamped`: its templates may change after it is created. `stamped_if_controlled`: it is
    stamped even if a controller made it. A maker that compares what it made with its own template
    would make it anew: a Deployment one ReplicaSet after another.
    """

    annotated: tuple[workload_kinds.Path, ...]
    jobs: tuple[workload_kinds.Path, ...] = ()
    restamped: bool = False
    stamped_if_controlled: bool = False


Workloads = Mapping[tuple[str, str], Workload]
"""By API group and kind."""

_RESTAMPED = {
    ("", "ReplicationController"),
    *(("apps", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    ("batch", "CronJob"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
}
_STAMPED_IF_CONTROLLED = {("batch", "Job"), ("jobset.x-k8s.io", "JobSet")}
_NEVER_ANNOTATED = {("", "PodTemplate")}
"""No pod is made of them, so the API server never sends them; `fettle lint` judges them."""


def _of_templates(kind: tuple[str, str], paths: Iterable[workload_kinds.Path]) -> Workload:
    return Workload(
        annotated=tuple((*path, "metadata") for path in paths),
        jobs=tuple((*path, "spec") for path in workload_kinds.JOB_TEMPLATES.get(kind, ())),
        restamped=kind in _RESTAMPED,
        stamped_if_controlled=kind in _STAMPED_IF_CONTROLLED,
    )


WORKLOADS: Workloads = {
    **{
        kind: _of_templates(kind, paths)
        for kind, paths in workload_kinds.POD_TEMPLATES.items()
        if kind not in _NEVER_ANNOTATED
    },
    ("trainer.kubeflow.org", "TrainJob"): Workload(()),
    ("resource.k8s.io", "ResourceClaimTemplate"): Workload((("spec", "metadata"),)),
}


def with_configured(rows: Sequence[WorkloadSettings]) -> Workloads:
    """WORKLOADS with the rows of the settings, which replace those of the same kind."""
    kinds = [(row.group, row.kind) for row in rows]
    templates = workload_kinds.with_settings(rows)
    return {**WORKLOADS, **{kind: _of_templates(kind, templates[kind]) for kind in kinds}}


# --- copied to what the workload makes


def stamp_templates(injection: Injection, workload: Workload) -> None:
    """Copy the workload's policy annotations to its templates, or remove what was copied before."""
    own = injection.read("metadata").strings("annotations")
    for path in workload.annotated:
        for metadata in fields_matching(injection.document, path):
            for key in ANNOTATIONS:
                _stamp(injection, metadata.at("annotations", key), own.get(key))


def stamps_change(new: Raw, old: Raw, workload: Workload) -> bool:
    """Whether the author changes a template, or what is copied to it. Else nothing is copied, not
    even what an earlier change lacks: a template that changed would replace all running pods."""
    return any(
        [field.value for field in fields_matching(new, template)]
        != [field.value for field in fields_matching(old, template)]
        for *template, _ in workload.annotated
    ) or any(
        _own_annotations(new).get(key) != _own_annotations(old).get(key) for key in ANNOTATIONS
    )


def _stamp(injection: Injection, field: Field, wanted: str | None) -> None:
    ours = not field.exists or field.value == injection.before.values.get(field.path)
    if not ours or field.value == wanted:
        return
    if wanted is None:
        injection.remove(field)
    else:
        injection.set(field, wanted)


def merged_annotations(document: Any, workload: Workload) -> dict[str, str]:
    """Those of the workload, and of its templates where the workload says nothing."""
    merged: dict[str, str] = {}
    for path in workload.annotated:
        for metadata in fields_matching(document, path):
            merged = {**metadata.strings("annotations"), **merged}
    return {**merged, **_own_annotations(document)}


_MANAGER = "fettle.dev/webhook"
_JOBSET_PATCHES = ("spec", "runtimePatches")
_JOBSET_PATCH = f"spec.runtimePatches[{_MANAGER}]"


def hand_on_to_jobset(injection: Injection) -> None:
    """Give a TrainJob's annotations to its JobSet, as a patch under our name.

    The TrainJob's pods come from a runtime's template, which other TrainJobs share (Kubeflow
    Trainer 2.2 and later).
    """
    own = _own_annotations(injection.document)
    annotations = {key: own[key] for key in ANNOTATIONS if key in own}
    if not annotations or _jobset_patch(injection.document) is not None:
        return
    patch = {
        "manager": _MANAGER,
        "trainingRuntimeSpec": {"template": {"metadata": {"annotations": annotations}}},
    }
    patches = injection.read(*_JOBSET_PATCHES)
    injection.append(patches, patch, path=_JOBSET_PATCH, recorded=annotations)


def carry_jobset_patch(editing: Editing, old: Raw) -> None:
    """Put our patch back if the author applied the TrainJob without it."""
    ours = _jobset_patch(old)
    if (
        ours is not None
        and _JOBSET_PATCH in record_of(old).values
        and _jobset_patch(editing.document) is None
    ):
        editing.append(_JOBSET_PATCHES, ours)


def _jobset_patch(document: Raw) -> Raw | None:
    patches = mappings(mapping(document, "spec").get("runtimePatches"))
    return next((patch for _, patch in patches if patch.get("manager") == _MANAGER), None)


# --- annotations without effect

_NO_TEMPLATES = Workload(())
_MAX_UNKNOWN = 5
_MAX_KEY_LENGTH = 100
_OF_JOBS = "(podFailurePolicy, backoffLimit)"
_ITSELF = {
    "Job": f"the Job itself {_OF_JOBS}",
    "JobSet": "the JobSet itself (failurePolicy)",
    "ResourceClaimTemplate": "the ResourceClaimTemplate itself (device tolerations)",
}
"""Kinds that follow a policy themselves, and what of them does."""


def annotation_warnings(document: Any, kind: str, workload: Workload) -> Iterator[str]:
    """A sentence for each annotation without effect on an object, as it will be stored."""
    yield from overruled_annotations(document, kind, workload)
    yield from unknown_annotations(document, workload)


def unknown_annotations(document: Any, workload: Workload = _NO_TEMPLATES) -> Iterator[str]:
    """A sentence for each annotation that Fettle does not have."""
    found: dict[str, list[str]] = {}
    for metadata in (Field("", document).at("metadata"), *_templates(document, workload)):
        for key in filter(is_unknown, metadata.strings("annotations")):
            found.setdefault(key, []).append(metadata.path)
    for key in sorted(found)[:_MAX_UNKNOWN]:
        where = "" if "metadata" in found[key] else f" in {listed(found[key])}"
        why = f"{ANNOTATION_IGNORED}; {suggest_annotation(key)}"
        yield f"fettle: annotation {key[:_MAX_KEY_LENGTH]}{where}: {why}"
    if (more := len(found) - _MAX_UNKNOWN) > 0:
        yield f"fettle: {more} more annotations that Fettle does not have are ignored"


def overruled_annotations(document: Any, kind: str, workload: Workload) -> Iterator[str]:
    """A sentence for each annotation whose templates say something else, after stamping."""
    for owner in _owners(document, kind, workload):
        others: dict[tuple[str, str], list[str]] = {}
        for template in owner.templates:
            pause()
            given = template.strings("annotations")
            for key in ANNOTATIONS:
                own, theirs = owner.annotations.get(key), given.get(key)
                if own is not None and theirs is not None and theirs != own:
                    others.setdefault((key, theirs), []).append(template.path)
        for (key, theirs), where in others.items():
            yield _overruled(key, kind, owner, theirs, where)


def template_annotations(document: Any, workload: Workload) -> Iterator[dict[str, str]]:
    """The policy annotations of the pod templates, each combination once."""
    found: dict[tuple[tuple[str, str], ...], None] = {}
    for path in workload.annotated:
        for metadata in fields_matching(document, path):
            given = metadata.strings("annotations")
            found[tuple((key, given[key]) for key in ANNOTATIONS if key in given)] = None
    yield from (dict(items) for items in found if items)


class _TemplateOwner(NamedTuple):
    """An object or template whose annotations are for the pod templates below it.

    `on` names it. `itself` says what of it follows its annotations too, if anything. `templates`
    are the metadata of the templates.
    """

    on: str
    annotations: Mapping[str, str]
    itself: str
    templates: Sequence[Field]


def _owners(document: Any, kind: str, workload: Workload) -> Iterator[_TemplateOwner]:
    found = (
        metadata for path in workload.annotated for metadata in fields_matching(document, path)
    )
    templates = {metadata.keys: metadata for metadata in found}
    own = _own_annotations(document)
    itself = f"{_ITSELF[kind]} follows" if kind in _ITSELF else ""
    yield _TemplateOwner(f"on this {kind}", own, itself, tuple(templates.values()))
    for job in _job_templates(document, workload):
        (*above, _) = job.keys
        pods = templates.get((*above, "spec", "template", "metadata"))
        given = job.strings("annotations")
        if pods is not None:
            yield _TemplateOwner(f"in {job.path}", given, f"its Jobs {_OF_JOBS} follow", (pods,))


def _overruled(
    key: str, kind: str, owner: _TemplateOwner, theirs: str, where: Sequence[str]
) -> str:
    own, other = shown(owner.annotations[key]), shown(theirs)
    made = "claims" if kind == "ResourceClaimTemplate" else "pods"
    if owner.itself and key == ANNOTATION:
        outcome = f"{owner.itself} {own}, and its {made} follow {other}"
    else:
        outcome = f"its {made} follow {other}, and {own} has no effect on them"
    again = f" and recreate the {kind}" if kind in _ITSELF else ""
    return (
        f"fettle: {key} is {own} {owner.on} but {other} in {listed(where)}: {outcome}; unless that "
        f"is meant, remove one of them{again}"
    )


def _templates(document: Any, workload: Workload) -> Iterator[Field]:
    """The metadata of all templates, of pods, claims and Jobs."""
    for path in workload.annotated:
        yield from fields_matching(document, path)
    yield from _job_templates(document, workload)


def _job_templates(document: Any, workload: Workload) -> Iterator[Field]:
    for *above, _ in workload.jobs:
        yield from fields_matching(document, (*above, "metadata"))


def _own_annotations(document: Any) -> Mapping[str, str]:
    return Field("", document).strings("metadata", "annotations")
