"""What annotations say in vain: names that Fettle does not have, and values that those of a pod
template overrule. Sentences for the author, of an object and the templates in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fettle.api.raw import mapping, strings
from fettle.lint import UNKNOWN, correction, listed
from fettle.model import ANNOTATION, ANNOTATIONS, is_unknown, shown
from fettle.pacing import pause
from webhook.places import FieldPath, places, value_at
from webhook.workloads import Workload

_NO_TEMPLATES = Workload(())
_MOST = 5
_LONGEST_KEY = 100
_OF_JOBS = "(podFailurePolicy, backoffLimit)"
_ITSELF = {
    "Job": f"the Job itself {_OF_JOBS}",
    "JobSet": "the JobSet itself (failurePolicy)",
    "ResourceClaimTemplate": "the ResourceClaimTemplate itself (device tolerations)",
}
"""Kinds that do more with a policy's name than to pass it on."""


def in_vain(document: Any, kind: str, workload: Workload) -> Iterator[str]:
    """Both, of an object that is as it will be stored."""
    yield from overruled(document, kind, workload)
    yield from unknown(document, workload)


def unknown(document: Any, workload: Workload = _NO_TEMPLATES) -> Iterator[str]:
    """A sentence for each annotation that Fettle does not have."""
    found: dict[str, list[str]] = {}
    for metadata in (FieldPath().at("metadata"), *_templates(document, workload)):
        for key in filter(is_unknown, _annotations(document, metadata)):
            found.setdefault(key, []).append(metadata.name)
    for key in sorted(found)[:_MOST]:
        where = "" if "metadata" in found[key] else f" in {listed(found[key])}"
        yield (f"fettle: annotation {key[:_LONGEST_KEY]}{where}: {UNKNOWN}; {correction(key)}")
    if (more := len(found) - _MOST) > 0:
        yield f"fettle: {more} more annotations that Fettle does not have are ignored"


def overruled(document: Any, kind: str, workload: Workload) -> Iterator[str]:
    """A sentence for each value from which templates differ; of the object once it is stamped."""
    for upper in _uppers(document, kind, workload):
        others: dict[tuple[str, str], list[str]] = {}
        for template in upper.templates:
            pause()
            given = _annotations(document, template)
            for key in ANNOTATIONS:
                own, theirs = upper.annotations.get(key), given.get(key)
                if own is not None and theirs is not None and theirs != own:
                    others.setdefault((key, theirs), []).append(template.name)
        for (key, theirs), where in others.items():
            yield _overruled(key, kind, upper, theirs, where)


def of_templates(document: Any, workload: Workload) -> Iterator[dict[str, str]]:
    """What the pod templates say about policies, each once."""
    told: dict[tuple[tuple[str, str], ...], None] = {}
    for path in workload.annotated:
        for metadata in places(document, path):
            given = _annotations(document, metadata)
            told[tuple((key, given[key]) for key in ANNOTATIONS if key in given)] = None
    yield from (dict(said) for said in told if said)


class _Upper(NamedTuple):
    """What stands above pod templates: the annotations, and what goes by them itself, if
    anything. `templates` are places of metadata."""

    on: str
    annotations: Mapping[str, str]
    itself: str
    templates: Sequence[FieldPath]


def _uppers(document: Any, kind: str, workload: Workload) -> Iterator[_Upper]:
    found = (metadata for path in workload.annotated for metadata in places(document, path))
    templates = {metadata.path: metadata for metadata in found}
    own = _annotations(document, FieldPath().at("metadata"))
    itself = f"{_ITSELF[kind]} follows" if kind in _ITSELF else ""
    yield _Upper(f"on this {kind}", own, itself, tuple(templates.values()))
    for job in _job_templates(document, workload):
        (*above, _) = job.path
        pods = templates.get((*above, "spec", "template", "metadata"))
        given = _annotations(document, job)
        if pods is not None:
            yield _Upper(f"in {job.name}", given, f"its Jobs {_OF_JOBS} follow", (pods,))


def _overruled(key: str, kind: str, upper: _Upper, theirs: str, where: Sequence[str]) -> str:
    own, other = shown(upper.annotations[key]), shown(theirs)
    made = "claims" if kind == "ResourceClaimTemplate" else "pods"
    if upper.itself and key == ANNOTATION:
        outcome = f"{upper.itself} {own}, and its {made} follow {other}"
    else:
        outcome = f"its {made} follow {other}, and {own} has no effect on them"
    again = f" and recreate the {kind}" if kind in _ITSELF else ""
    return (
        f"fettle: {key} is {own} {upper.on} but {other} in {listed(where)}: {outcome}; unless that "
        f"is meant, remove one of them{again}"
    )


def _templates(document: Any, workload: Workload) -> Iterator[FieldPath]:
    """The metadata of all templates of pods, claims and Jobs."""
    for path in workload.annotated:
        yield from places(document, path)
    yield from _job_templates(document, workload)


def _job_templates(document: Any, workload: Workload) -> Iterator[FieldPath]:
    for path in workload.jobs:
        yield from places(document, f"{path.removesuffix('spec')}metadata")


def _annotations(document: Any, metadata: FieldPath) -> dict[str, str]:
    return strings(mapping(value_at(document, metadata.path)).get("annotations"))
