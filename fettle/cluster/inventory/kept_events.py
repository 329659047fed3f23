"""What is kept of Events: so much of one namespace and in all, whoever writes them.

Anybody who may write Events in a namespace can write any number of them, about Nodes and pods that
do not exist, too.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from cachetools import LRUCache

from fettle.api import core
from fettle.model import Subject, UnitId

MOST_OF_ONE_NODE = 32
"""Events of one namespace about one Node. The oldest gives way."""
MOST_ABOUT_NODES = 10_000
"""Events of one namespace about Nodes."""
MOST_UNITS = 64
"""Units of one Node that Events name."""
FORGOTTEN_AFTER_S = 86_400.0
EARLY_BYTES = 2 * 1024 * 1024
"""What is kept of pods that nobody has seen yet."""
EARLY_BYTES_OF_ONE = 128 * 1024
"""The same of one namespace."""
_OVERHEAD = 800
"""Bytes of an entry besides its text, and its key."""
LONGEST_KEY = 2 * 253 + 1
"""A namespace, a slash, a name."""


class NodeEvents:
    """Which Events about Nodes count, the latest of each Node last."""

    def __init__(self) -> None:
        self._of_node: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self._of_namespace: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """By namespace: the Node of each Event."""

    def add(self, event: core.WatchedEvent) -> list[str]:
        """It counts. Returns the keys of those that give way to it."""
        key, namespace = event.metadata.key, event.metadata.namespace
        self.gone(key)
        about, all_ = event.involved_object.name, self._of_namespace[namespace]
        same = self._of_node[namespace, about]
        same[key], all_[key] = None, about
        over = [next(iter(same))] if len(same) > MOST_OF_ONE_NODE else []
        if not over and len(all_) > MOST_ABOUT_NODES:
            over = [next(iter(all_))]
        for each in over:
            self.gone(each)
        return over

    def gone(self, key: str) -> None:
        """It is deleted, or says nothing any more."""
        namespace = key.partition("/")[0]
        about = self._of_namespace[namespace].pop(key, None)
        if about is not None:
            same = self._of_node[namespace, about]
            del same[key]
            if not same:
                del self._of_node[namespace, about]
        if not self._of_namespace[namespace]:
            del self._of_namespace[namespace]


class EventUnits:
    """Which units Events name, of each Node. An Event may name a GPU that does not exist, and what
    was said of it fades slowly."""

    def __init__(self) -> None:
        self._of: LRUCache[str, dict[UnitId, float]] = LRUCache(MOST_ABOUT_NODES)
        """By Node: its units, and when each was named last, the latest last."""

    def named(self, node: str, units: Iterable[UnitId], now: float) -> frozenset[UnitId]:
        """Those of these units that count: the known ones, and others as long as there is room."""
        known = self._of.setdefault(node, {})
        counted = set()
        for unit in units:
            if unit not in known and len(known) >= MOST_UNITS:
                oldest = next(iter(known))
                if now - known[oldest] < FORGOTTEN_AFTER_S:
                    continue
                del known[oldest]
            known.pop(unit, None)
            known[unit] = now
            counted.add(unit)
        return frozenset(counted)

    def forget(self, subjects: Iterable[Subject]) -> None:
        """What was said of these is gone without a trace."""
        for unit in subjects:
            if isinstance(unit, UnitId) and unit.node in self._of:
                self._of[unit.node].pop(unit, None)


class Said(NamedTuple):
    """The text of an Event about a pod with this UID; "" if it names none."""

    uid: str
    message: str


class PodEvents:
    """What kubelets said last of each pod, by its key."""

    def __init__(self) -> None:
        self._known: dict[str, Said] = {}
        """Of pods that are there."""
        self._early: LRUCache[str, LRUCache[str, Said]] = LRUCache(
            EARLY_BYTES // EARLY_BYTES_OF_ONE
        )
        """Of pods that nobody has seen, by namespace."""

    def add(self, event: core.WatchedEvent, is_there: Callable[[str], bool]) -> str:
        """Returns the key of the pod that it is about; "" if it may not speak of that: an Event
        speaks of its own namespace."""
        about, namespace = event.involved_object, event.metadata.namespace
        if about.namespace != namespace:
            return ""
        key, said = f"{namespace}/{about.name}", Said(about.uid, event.message)
        if len(key) > LONGEST_KEY:
            return ""  # no pod has such a name
        if is_there(key):
            self._known[key] = said
            return key
        early = self._early.get(namespace)
        if early is None:
            early = LRUCache(EARLY_BYTES_OF_ONE, getsizeof=_size)
            self._early[namespace] = early
        early[key] = said
        return key

    def of(self, key: str, uid: str) -> str:
        """What was said of a pod that is there; "" if nothing."""
        early = self._early.get(key.partition("/")[0])
        if early is not None and (said := early.pop(key, None)) is not None:
            self._known[key] = said
        said = self._known.get(key)
        return said.message if said is not None and said.uid in ("", uid) else ""

    def gone(self, key: str) -> None:
        """The pod is deleted."""
        self._known.pop(key, None)

    def keep(self, pods: Container[str]) -> None:
        """All pods that are there."""
        self._known = {key: said for key, said in self._known.items() if key in pods}


def _size(said: Said) -> int:
    return len(said.uid) + len(said.message) + _OVERHEAD
