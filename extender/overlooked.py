"""Pods that a scheduler placed without asking: their resource is missing in its configuration.

A scheduler asks only about pods that request one of `managedResources` of its `extenders` entry,
and does not say what is listed there. What is missing shows by pods that get a node: a scheduler
that has asked lately would have asked about such a pod too. Another replica, or the one before this
process, may be asked in our place; so nothing is concluded from pods that were not seen to wait
while this one was being asked.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from math import inf

import structlog

from extender.asked import MOST
from fettle.api import core
from fettle.api.kinds import WireObject
from fettle.dra import IMPLICIT_CLASS_PREFIX, MARKER, device_units

LATELY_S = 300.0
"""A scheduler that has not asked for so long may ask another replica since."""
MOST_WAITING = 2000
"""Pods without a node that are kept in mind."""
LEFT_ALONE = ("kube-system", "fettle-system")
"""Namespaces in which the webhook, as shipped, puts the marker on no pod."""
_UNLISTED = (
    "a scheduler that asks about other pods never asks about this resource, so Fettle does not "
    "steer the pods that request it: list it under managedResources of the extenders entry in its "
    "KubeSchedulerConfiguration, as in deploy/scheduler/kube-scheduler-config.yaml"
)
_UNMARKED = (
    f"a scheduler does not ask about pods with resource claims, since they have no {MARKER}: apply "
    "deploy/webhook, and see that the API server reaches the webhook"
)

_LOG = structlog.get_logger(__name__)


class _Asking:
    """One scheduler: when it asked last, and what all the pods that it asked about request."""

    def __init__(self) -> None:
        self.at = -inf
        self.resources: set[str] = set()


class UnaskedPods:
    """`schedulers` are those that are to ask, by name; `clock` is in seconds."""

    def __init__(
        self, schedulers: Collection[str], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock = clock
        self._asking = {name: _Asking() for name in schedulers}
        self._waiting: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._found: dict[tuple[str, str], str] = {}
        """By scheduler and resource, a pod that it placed."""

    def asked(self, pod: core.Pod) -> None:
        """A scheduler asked about this pod."""
        scheduler = pod.scheduler_name
        if (asking := self._asking.get(scheduler)) is None:
            return
        asking.at = self._clock()
        for resource in _asked_by(pod):
            asking.resources.add(resource)
            self._found.pop((scheduler, resource), None)

    def put(self, new: WireObject) -> None:
        """An object as it is now."""
        if not isinstance(new, core.Pod):
            return
        asking = self._asking.get(new.scheduler_name)
        if asking is None:
            return
        pod = (new.metadata.key, new.metadata.uid)
        lately = self._clock() - asking.at < LATELY_S
        if not new.node_name:
            if lately and _asked_by(new):
                self._waiting[pod] = None
                if len(self._waiting) > MOST_WAITING:
                    self._waiting.popitem(last=False)
        elif pod in self._waiting:
            del self._waiting[pod]
            if lately:
                self._placed(new, asking)

    def _placed(self, pod: core.Pod, asking: _Asking) -> None:
        resources, scheduler = _asked_by(pod), pod.scheduler_name
        if not asking.resources.isdisjoint(resources):
            return
        for resource in sorted(resources):
            if (scheduler, resource) in self._found or len(self._found) >= MOST:
                continue
            if resource == MARKER and pod.metadata.namespace in LEFT_ALONE:
                continue
            self._found[scheduler, resource] = pod.metadata.key
            _LOG.warning(
                _UNMARKED if resource == MARKER else _UNLISTED,
                resource=resource,
                pod=pod.metadata.key,
                scheduler=scheduler,
            )

    def found(self) -> list[tuple[str, str]]:
        """Each scheduler with a resource that it does not ask about."""
        return list(self._found)

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        return [
            f"extender: {resource}: {_UNMARKED if resource == MARKER else _UNLISTED} "
            f"(scheduler {scheduler} placed pod {pod})"
            for (scheduler, resource), pod in self._found.items()
        ]


def _asked_by(pod: core.Pod) -> set[str]:
    """Resources of which one under `managedResources` makes a scheduler ask about the pod. For what
    cannot be listed there, claims and resources by a class's name, the marker stands."""
    resources = {name for name, _ in device_units(pod)}
    by_class = {name for name in resources if name.startswith(IMPLICIT_CLASS_PREFIX)}
    return (resources - by_class) | ({MARKER} if pod.resource_claims or by_class else set())
