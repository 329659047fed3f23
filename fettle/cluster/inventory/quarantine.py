"""Objects that cannot be read: what is wrong with each, the node it is about, and the pools that
are unclear because of it."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Container, Iterator
from itertools import product
from operator import itemgetter
from typing import NamedTuple

from fettle.api import Bad, Pools, kinds
from fettle.cluster.inventory.gathered_pools import Gathered, PoolId
from fettle.health import SignalReport, one_line
from fettle.model import (
    SOME_DRIVER,
    SOME_POOL,
    Evidence,
    EvidenceKind,
    Family,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
)

MOST_TOLD = 16
"""Objects of one node."""


class QuarantinedObject(NamedTuple):
    """`name` is by kind and key ("Node n1"). `doubt` is the sentence about its pools, `since` when
    it could not be read first."""

    name: str
    kind: kinds.Kind
    text: str
    node: str
    pools: tuple[Pools, ...]
    doubt: str
    since: float


class Released(NamedTuple):
    """What is left to say of the object's node (None if it names none), the object, and the pools
    that were unclear first of all because of it."""

    report: SignalReport | None
    entry: QuarantinedObject
    pools: tuple[Pools, ...]


class Added(NamedTuple):
    """Evidence that makes the node Unknown (None if no node is named), the object, and the pools
    that are now unclear first of all because of it."""

    report: SignalReport | None
    entry: QuarantinedObject
    pools: tuple[Pools, ...]


class HiddenPool(NamedTuple):
    """A pool that any node may have besides those it is known to have, and why.

    If part of its `id` is unknown, that part is a placeholder for people. Whatever the pool is, it
    does not come before `earliest` in the allocator's order.
    """

    id: PoolId
    earliest: PoolId
    why: str


class _Doubted(NamedTuple):
    """Pools, and whether the unreadable objects are slices. Those also matter to other pools."""

    pools: Pools
    by_slices: bool


class Quarantine:
    """Add and release unreadable objects by kind and key.

    If several leave the same pools unclear, or are about the same node, only the first by name is
    mentioned. So neither their number nor their order of arrival changes a node's record.
    """

    def __init__(self) -> None:
        self._entries: dict[str, QuarantinedObject] = {}
        self._of_node: dict[str, list[str]] = defaultdict(list)
        """Names, in order."""
        self._doubting: dict[_Doubted, list[str]] = defaultdict(list)
        """Names, in order."""

    def add(self, bad: Bad, since: float) -> Added:
        """Add an object that is not in quarantine yet."""
        name = f"{bad.kind.name} {bad.key}"
        text = one_line(f"{name.rstrip()}: {bad.reason}")
        doubt = f"{name.rstrip()} cannot be read, and {_MAY[bad.kind.name]}" if bad.pools else ""
        entry = self._entries[name] = QuarantinedObject(
            name, bad.kind, text, bad.node, bad.pools, doubt, since
        )
        if bad.node:
            insort(self._of_node[bad.node], name)
        for doubted in _doubted(entry):
            insort(self._doubting[doubted], name)
        return Added(self._report(entry), entry, self._pools_first_blamed(entry))

    def release(self, kind: kinds.Kind, key: str) -> Released | None:
        """Remove an object; None if it was not in quarantine."""
        entry = self._entries.get(f"{kind.name} {key}")
        if entry is None:
            return None
        blamed = self._pools_first_blamed(entry)
        del self._entries[entry.name]
        if entry.node:
            _remove(self._of_node[entry.node], entry.name)
            if not self._of_node[entry.node]:
                del self._of_node[entry.node]
        for doubted in _doubted(entry):
            _remove(self._doubting[doubted], entry.name)
            if not self._doubting[doubted]:
                del self._doubting[doubted]
        return Released(self._report(entry), entry, blamed)

    def _report(self, entry: QuarantinedObject) -> SignalReport | None:
        """What is to say of the object's node now."""
        if not (node := entry.node):
            return None
        reporter = ReporterId("quarantine of objects of Node", node)
        evidence: tuple[Evidence, ...] = ()
        if names := self._of_node.get(node):
            more = f"; and {len(names) - 1} more of this node" if len(names) > 1 else ""
            first = self._entries[names[0]]
            evidence = (_unreadable(reporter, first.text + more, node, first.since),)
        return SignalReport(reporter, evidence, absent_is_clear=True)

    def _pools_first_blamed(self, entry: QuarantinedObject) -> tuple[Pools, ...]:
        """Those of the object's pools for which it is the one that is mentioned."""
        return tuple(d.pools for d in _doubted(entry) if self._doubting[d][0] == entry.name)

    @property
    def has_unclear_pools(self) -> bool:
        return bool(self._doubting)

    def why_unclear(self, pool: Gathered) -> str:
        """Why this node's view of a pool may be incomplete; "" if it is complete."""
        found = []
        for by_slices in (True, False):
            is_open = pool.depends_on_other_nodes if by_slices else bool(pool.devices)
            for anywhere in (True, False) if is_open else (True,):
                for driver, name in product((pool.id.driver, None), (pool.id.pool, None)):
                    doubted = _Doubted(Pools(driver, name, anywhere), by_slices)
                    if names := self._doubting.get(doubted):
                        found.append(names[0])
        return self._entries[min(found)].doubt if found else ""

    def hidden_pools(self, known: Container[PoolId]) -> list[HiddenPool]:
        """Pools that any node may have besides the `known` ones, each once."""
        found: dict[PoolId, HiddenPool] = {}
        anywhere = ((names[0], d.pools) for d, names in self._doubting.items() if d.pools.anywhere)
        for name, (driver, pool, _) in sorted(anywhere, key=itemgetter(0)):
            id_ = PoolId(driver or SOME_DRIVER, pool or SOME_POOL)
            if id_ not in known:
                earliest = PoolId(driver or "", (pool or "") if driver else "")
                found.setdefault(id_, HiddenPool(id_, earliest, self._entries[name].doubt))
        return list(found.values())

    def keys(self, kind: kinds.Kind) -> set[str]:
        prefix = f"{kind.name} "
        return {key.removeprefix(prefix) for key in self._entries if key.startswith(prefix)}

    def texts(self) -> dict[str, str]:
        """One sentence for each object, sorted by name."""
        return {name: entry.text for name, entry in sorted(self._entries.items())}

    def of_node(self, node: str) -> tuple[str, ...]:
        """The first of them, a sentence each."""
        names = self._of_node.get(node, [])
        told = [self._entries[name].text for name in names[:MOST_TOLD]]
        return (*told, f"and {len(names) - MOST_TOLD} more") if len(names) > MOST_TOLD else (*told,)


def _remove(names: list[str], name: str) -> None:
    del names[bisect_left(names, name)]


def _doubted(entry: QuarantinedObject) -> Iterator[_Doubted]:
    for pools in entry.pools:
        yield _Doubted(pools, entry.kind is kinds.SLICE)


_MAY = {
    kinds.SLICE.name: "may publish devices of this pool",
    kinds.CLAIM.name: "may hold devices of this pool",
    kinds.TAINT_RULE.name: "may taint devices of this pool",
}


def _unreadable(reporter: ReporterId, text: str, node: str, now: float) -> Evidence:
    return Evidence(
        subject=NodeId(node),
        family=Family.NODE,
        kind=EvidenceKind.UNKNOWN,
        weight=0.0,
        source=Source(SourceKind.QUARANTINE),
        reporter=reporter,
        said=f"cannot be read: {text}",
        observed_at=now,
    )
