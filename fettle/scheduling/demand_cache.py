"""Pods that say the same have the same ask, which is made once as long as nothing changes that all
asks rest on.

Pods of one workload come one after another. What an ask is made from is looked up in many places,
and between two requests other processes have had the processor's caches, so that making it anew
would cost as much as looking up 500 names.
"""

from collections.abc import Callable
from operator import is_

import msgspec

from fettle.api import core, kinds, resource
from fettle.cluster import EMPTY, View
from fettle.dra import can_be_allocated, claim_name, entries_with_claims
from fettle.model import ANNOTATIONS
from fettle.scheduling.demand import Demand

MOST = 1000


class DemandCache:
    """The asks of pods in the newest view. `make` has to go by the view, by what a pod says of its
    policy and by what its containers and its claims need."""

    def __init__(self, make: Callable[[core.Pod], Demand | None]) -> None:
        self._make = make
        self._shared = _shared(EMPTY)
        self._demands: dict[bytes, Demand | None] = {}

    def of(self, pod: core.Pod, view: View) -> Demand | None:
        shared = _shared(view)
        if len(self._demands) >= MOST or not all(map(is_, shared, self._shared)):
            self.clear()
            self._shared = shared
        said = _said(pod, view)
        if said is None:
            return self._make(pod)
        try:
            return self._demands[said]
        except KeyError:
            demand = self._demands[said] = self._make(pod)
            return demand

    def clear(self) -> None:
        self._demands.clear()


def _shared(view: View) -> tuple[object, ...]:
    """What of a view any ask may be made from; a view has the very objects of the one before it
    where nothing changed."""
    return view.classes, view.templates, view.namespaces, view.policies, view.quarantined


def _said(pod: core.Pod, view: View) -> bytes | None:
    """All that an ask is made from, beside what asks share; None where there is more to it."""
    spec, metadata = pod.spec, pod.metadata
    if spec is None or metadata.uid in view.extended_claims:
        return None
    claims = _claims(pod, view) if spec.resource_claims else ()
    if claims is None:
        return None
    given = metadata.annotations or {}
    annotations = [given.get(name) for name in ANNOTATIONS]
    units = spec.containers, spec.init_containers, spec.overhead
    return msgspec.json.encode((metadata.namespace, annotations, *units, claims))


_Wanted = tuple[str, str | resource.ResourceClaimSpec | None]


def _claims(pod: core.Pod, view: View) -> list[_Wanted] | None:
    """What the pod calls each of its claims, and the template or the claim's spec; None where not
    all of them are yet to be made or can be allocated."""
    wanted: dict[str, _Wanted] = {}
    for entry in entries_with_claims(pod):
        name = claim_name(pod, entry)
        if name is None:
            wanted[f"/{entry.name}"] = (entry.name, entry.resource_claim_template_name)
            continue
        key = f"{pod.metadata.namespace}/{name}"
        claim = view.claims.get(key)
        if (
            claim is None
            or key in wanted
            or f"{kinds.CLAIM.name} {key}" in view.quarantined
            or not can_be_allocated(entry, claim, pod)
        ):
            return None
        wanted[key] = (entry.name, claim.spec)
    return [*wanted.values()]
