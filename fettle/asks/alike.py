"""Pods that say the same have the same ask, which is made once for each view.

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
    """The asks of one view's pods. `make` has to go by what a pod says of its policy and by what
    its containers need, unless there are claims for the pod."""

    def __init__(self, make: Callable[[core.Pod], Ask | None]) -> None:
        self._make = make
        self._view: View | None = None
        self._asks: dict[bytes, Ask | None] = {}

    def of(self, pod: core.Pod, view: View) -> Ask | None:
        if view is not self._view or len(self._asks) >= MOST:
            self.clear()
            self._view = view
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
