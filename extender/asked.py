"""Whether schedulers ask at all: when each verb was last asked, what was asked for in vain, and by
whom.

As shipped, the entry in a KubeSchedulerConfiguration is `ignorable`: a verb that is mistyped there
changes nothing that the scheduler tells of, and pods are placed as if Fettle were not there. So it
is told here. A line is logged once for each path or name, and for so many of them.
"""

from collections.abc import Collection

import structlog

from fettle.api import core
from fettle.observing import ExtenderMetrics, LastRequests

VERBS = ("filter", "prioritize", "preempt")
SERVED = "/filter, /prioritize and /preempt"
MOST = 20
"""Paths and schedulers that are told of."""

_LOG = structlog.get_logger(__name__)


class Misconfiguration:
    """`schedulers` are those that the settings name; `last` is when each verb was asked."""

    def __init__(self, metrics: ExtenderMetrics, schedulers: Collection[str]) -> None:
        self._metrics = metrics
        self._schedulers = frozenset(schedulers)
        self._paths: list[str] = []
        self._others: set[str] = set()
        self.last = LastRequests("extender", VERBS, "no scheduler has asked yet")

    def in_vain(self, path: str) -> None:
        """Somebody POSTed to a path that is not served."""
        self._metrics.decided("unknown", "not_found")
        if path in self._paths or len(self._paths) >= MOST:
            return
        self._paths.append(path)
        _LOG.warning(
            "asked for a path that is not served, so Fettle steers nothing there: in the extenders "
            "entry of the KubeSchedulerConfiguration, correct urlPrefix, filterVerb, "
            "prioritizeVerb and preemptVerb, and leave bindVerb out; only "
            f"{SERVED} are served",
            path=path,
        )

    def about(self, pod: core.Pod) -> None:
        """A scheduler asked about this pod, which uses devices."""
        name = pod.scheduler_name
        if name in self._schedulers or name in self._others or len(self._others) >= MOST:
            return
        self._others.add(name)
        _LOG.warning(
            "a scheduler asks that the setting scheduler.names does not list: its pods with claims "
            "get no marker, so that it does not ask about them; add it there",
            scheduler=name,
        )

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        found = [self.last.note()]
        if self._paths:
            found.append(f"extender: since its start asked in vain for {', '.join(self._paths)}")
        return found
