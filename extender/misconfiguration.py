"""What shows that schedulers are not configured to ask Fettle about all that they should.

As shipped, the entry in a KubeSchedulerConfiguration is `ignorable`: a verb that is mistyped there
changes nothing that the scheduler reports, and pods are placed as if Fettle were not there. Nor
does the scheduler say which `managedResources` the entry lists. So all this is found here, from
what is asked and from pods as they are placed. A warning is logged once for each path, scheduler or
resource, and for MOST of each.
"""

import time
from collections.abc import Callable, Collection
from math import inf

from cachetools import FIFOCache

from fettle.api import core
from fettle.api.kinds import WireObject
from fettle.dra import IMPLICIT_CLASS_PREFIX, MARKER, device_units
from fettle.logs import Logger
from fettle.observing import ExtenderMetrics, LastRequests

VERBS = ("filter", "prioritize", "preempt")
SERVED = "/filter, /prioritize and /preempt"
MOST = 20
LATELY_S = 300.0
"""A scheduler that has not asked for so long may ask another replica now."""
MOST_WAITING = 2000
"""How many pods without a node are remembered."""
LEFT_ALONE = ("kube-system", "fettle-system")
"""Namespaces in which the shipped webhook marks no pod."""
_UNLISTED = (
    "a scheduler that asks about other pods never asks about this resource, so Fettle does not "
    "steer the pods that request it: list it under managedResources of the extenders entry in its "
    "KubeSchedulerConfiguration, as in deploy/scheduler/kube-scheduler-config.yaml"
)
_UNMARKED = (
    f"a scheduler does not ask about pods with resource claims, since they have no {MARKER}: apply "
    "deploy/webhook, and see that the API server reaches the webhook"
)

_LOG = Logger(__name__)


class Misconfiguration:
    """`schedulers` are those that the setting `scheduler.names` lists; `last` is when each verb was
    last asked. `observed` says of a pod whether Fettle only observes it."""

    def __init__(
        self,
        metrics: ExtenderMetrics,
        schedulers: Collection[str],
        observed: Callable[[core.Pod], bool] = lambda _: False,
    ) -> None:
        self._metrics = metrics
        self._schedulers = frozenset(schedulers)
        self._unserved_paths: list[str] = []
        self._unlisted_schedulers: set[str] = set()
        self.last = LastRequests("extender", VERBS, "no scheduler has asked this process yet")
        self.unasked = UnaskedPods(schedulers, observed=observed)

    def not_served(self, path: str) -> None:
        """Somebody POSTed to a path that is not served."""
        self._metrics.decided("unknown", "not_found")
        if path in self._unserved_paths or len(self._unserved_paths) >= MOST:
            return
        self._unserved_paths.append(path)
        _LOG.warning(
            "asked for a path that is not served, so Fettle steers nothing there: in the extenders "
            "entry of the KubeSchedulerConfiguration, correct urlPrefix, filterVerb, "
            "prioritizeVerb and preemptVerb, and leave bindVerb out; only "
            f"{SERVED} are served",
            path=path,
        )

    def note_request(self, pod: core.Pod) -> None:
        """A scheduler asked about this pod, which uses devices."""
        self.unasked.note_request(pod)
        name = pod.scheduler_name
        unlisted = self._unlisted_schedulers
        if name in self._schedulers or name in unlisted or len(unlisted) >= MOST:
            return
        unlisted.add(name)
        _LOG.warning(
            "the scheduler is missing from scheduler.names, so it never asks about its pods with "
            "claims; add it there",
            scheduler=name,
        )

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        paths = self._unserved_paths
        in_vain = [f"extender: since its start asked in vain for {', '.join(paths)}"]
        return [*(in_vain if paths else []), *self.unasked.notes()]


class _LastAsked:
    """One scheduler: when it last asked, and what all the pods that it asked about request."""

    def __init__(self) -> None:
        self.at = -inf
        self.resources: set[str] = set()


class UnaskedPods:
    """Pods that a scheduler placed without asking: a resource of theirs is not among its
    `managedResources`. `schedulers` are those that should ask; `clock` is in seconds.

    A scheduler that has asked lately would have asked about such a pod too. But another replica, or
    the process before this one, may be asked in its place. So only pods count that were seen to
    wait while this process was being asked. A pod that is `observed` gets no marker.
    """

    def __init__(
        self,
        schedulers: Collection[str],
        clock: Callable[[], float] = time.perf_counter,
        observed: Callable[[core.Pod], bool] = lambda _: False,
    ) -> None:
        self._observed = observed
        self._clock = clock
        self._last = {name: _LastAsked() for name in schedulers}
        self._waiting: FIFOCache[tuple[str, str], bool] = FIFOCache(MOST_WAITING)
        """Keys and UIDs of pods without a node."""
        self._found: dict[tuple[str, str], str] = {}
        """A pod that was placed without asking, by scheduler and resource."""

    def note_request(self, pod: core.Pod) -> None:
        """A scheduler asked about this pod."""
        scheduler = pod.scheduler_name
        if (last := self._last.get(scheduler)) is None:
            return
        last.at = self._clock()
        for resource in _managed_resources(pod):
            last.resources.add(resource)
            self._found.pop((scheduler, resource), None)

    def observe(self, new: WireObject) -> None:
        """An object as it is now."""
        if not isinstance(new, core.Pod):
            return
        last = self._last.get(new.scheduler_name)
        if last is None:
            return
        pod = (new.metadata.key, new.metadata.uid)
        lately = self._clock() - last.at < LATELY_S
        if not new.node_name:
            if lately and _managed_resources(new):
                self._waiting[pod] = True
        elif self._waiting.pop(pod, False) and lately:
            self._placed(new, last)

    def _placed(self, pod: core.Pod, last: _LastAsked) -> None:
        resources, scheduler = _managed_resources(pod), pod.scheduler_name
        if not last.resources.isdisjoint(resources):
            return
        for resource in sorted(resources):
            if (scheduler, resource) in self._found or len(self._found) >= MOST:
                continue
            left_alone = pod.metadata.namespace in LEFT_ALONE or self._observed(pod)
            if resource == MARKER and left_alone:
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


def _managed_resources(pod: core.Pod) -> set[str]:
    """Resources that make a scheduler ask about the pod if `managedResources` lists one of them.
    The marker stands for what cannot be listed there: claims, and resources named by a class."""
    resources = {name for name, _ in device_units(pod)}
    by_class = {name for name in resources if name.startswith(IMPLICIT_CLASS_PREFIX)}
    return (resources - by_class) | ({MARKER} if pod.resource_claims or by_class else set())
