"""The policy's name on what a workload makes: its annotations, copied to its pod templates.

The scheduler's extender and the webhook see pods, so pods must say which policy is theirs. What a
template says itself stays. A stamp of ours follows the workload's annotation when that changes.
"""

from typing import Any

from fettle.api.raw import mapping, strings
from fettle.model import ANNOTATIONS
from webhook.injecting import Injecting
from webhook.places import FieldPath, places, value_at
from webhook.workloads import Workload


def stamp(injecting: Injecting, workload: Workload) -> None:
    """Bring the annotations of all templates in line with the workload's own."""
    own = strings(mapping(injecting.document, "metadata").get("annotations"))
    for path in workload.annotated:
        for metadata in places(injecting.document, path):
            for key in ANNOTATIONS:
                _stamp(injecting, metadata.at("annotations", key), own.get(key))


def _stamp(injecting: Injecting, place: FieldPath, wanted: str | None) -> None:
    theirs = value_at(injecting.document, place.path)
    ours = theirs is None or theirs == injecting.before.values.get(place.name)
    if not ours or theirs == wanted:
        return
    if wanted is None:
        injecting.remove(place)
    else:
        injecting.set(place, wanted)


def annotations_of(document: Any, workload: Workload) -> dict[str, str]:
    """The workload's annotations and, under them, those of its templates."""
    merged: dict[str, str] = {}
    for path in workload.annotated:
        for metadata in places(document, path):
            found = strings(mapping(value_at(document, metadata.path)).get("annotations"))
            merged = {**found, **merged}
    return {**merged, **strings(mapping(document, "metadata").get("annotations"))}
