"""Pods that say the same have the same ask, which is made once for each basis of a view.

Pods of one workload come one after another. What an ask is made from is looked up in many places,
and between two requests other processes have had the processor's caches, so that making it anew
would cost as much as looking up 500 names.
"""

from collections.abc import Callable

import msgspec

from fettle.asks.asks import Ask
from fettle.policy import ANNOTATIONS
from fettle.view import View
from fettle.wire import core

MOST = 1000


class AlikeAsks:
    """The asks of pods in the newest view. `make` has to go by the view, by what a pod says of its
    policy and by what its containers need, unless there are claims for the pod."""

    def __init__(self, make: Callable[[core.Pod], Ask | None]) -> None:
        self._make = make
        self._basis = -1
        self._asks: dict[bytes, Ask | None] = {}

    def of(self, pod: core.Pod, view: View) -> Ask | None:
        if view.basis != self._basis or len(self._asks) >= MOST:
            self.clear()
            self._basis = view.basis
        said = _said(pod, view)
        if said is None:
            return self._make(pod)
        try:
            return self._asks[said]
        except KeyError:
            ask = self._asks[said] = self._make(pod)
            return ask

    def clear(self) -> None:
        self._asks.clear()


def _said(pod: core.Pod, view: View) -> bytes | None:
    """All that an ask is made from; None where it is made from objects of the pod's own too."""
    spec, metadata = pod.spec, pod.metadata
    if spec is None or spec.resource_claims or metadata.uid in view.extended_claims:
        return None
    given = metadata.annotations or {}
    annotations = [given.get(name) for name in ANNOTATIONS]
    needs = (metadata.namespace, annotations, spec.containers, spec.init_containers)
    return msgspec.json.encode(needs)
