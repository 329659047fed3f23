"""Objects that cannot be read: what is wrong with each, the node that it speaks for, and the pools
that it leaves in doubt. Pure.
"""

from collections.abc import Container
from typing import NamedTuple

from fettle.evidence.reports import Report, short
from fettle.inventory.pools import Gathered, PoolId
from fettle.model import Evidence, Family, Kind, NodeId
from fettle.view import SOME_DRIVER
from fettle.wire import kinds
from fettle.wire.changes import Bad, Pools


class Entry(NamedTuple):
    """`doubt` is what is said of its pools."""

    kind: kinds.Kind
    text: str
    node: str
    pools: tuple[Pools, ...]
    doubt: str

    def touches(self, pool: Gathered) -> bool:
        """Whether a pool that a node sees may be other than it seems there."""
        is_open = pool.rests_elsewhere if self.kind is kinds.SLICE else bool(pool.devices)
        return any(
            (is_open or pools.anywhere) and pools.include(pool.id.driver, pool.id.pool)
            for pools in self.pools
        )


class Unseen(NamedTuple):
    """A pool that any node may have besides those it is known to have, and why.

    Where only part of its `id` is known, that is for people; whatever it is, it does not come
    before `earliest`.
    """

    id: PoolId
    earliest: PoolId
    why: str


class Quarantine:
    """Add and release by kind and key; each answers with what it says about a node."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._doubts: dict[str, Entry] = {}
        """Those of the entries that leave pools in doubt."""
        self._in_order: tuple[tuple[str, Entry], ...] | None = None
        """The same by name, so that it does not matter which came first."""

    def add(self, bad: Bad, now: float) -> tuple[Report, Entry]:
        """Evidence that makes its node Unknown; none where no node is named."""
        name = f"{bad.kind.name} {bad.key}"
        text = short(f"{name.rstrip()}: {bad.reason}")
        doubt = f"{name.rstrip()} cannot be read, and {_MAY[bad.kind.name]}" if bad.pools else ""
        entry = self._entries[name] = Entry(bad.kind, text, bad.node, bad.pools, doubt)
        self._in_order = None
        self._doubts.pop(name, None)
        if bad.pools:
            self._doubts[name] = entry
        reporter = _reporter(bad.kind, bad.key)
        evidence = (_unreadable(reporter, text, bad.node, now),) if bad.node else ()
        return Report(reporter, evidence, absent_is_clear=True), entry

    def release(self, kind: kinds.Kind, key: str) -> tuple[Report, Entry] | None:
        """The all-clear and what it concerns; None if nothing was wrong."""
        if not self._entries:
            return None
        self._in_order = None
        self._doubts.pop(f"{kind.name} {key}", None)
        entry = self._entries.pop(f"{kind.name} {key}", None)
        if entry is None:
            return None
        return Report(_reporter(kind, key), (), absent_is_clear=True), entry

    @property
    def doubts_pools(self) -> bool:
        return bool(self._doubts)

    def doubt(self, pool: Gathered) -> str:
        """Why a pool that a node sees may be other than it seems there; "" if it may not."""
        return next((e.doubt for _, e in self._by_name() if e.touches(pool)), "")

    def unseen(self, known: Container[PoolId]) -> list[Unseen]:
        """Pools that any node may have besides those that are `known`, each once."""
        found: dict[PoolId, Unseen] = {}
        for name, entry in self._by_name():
            for driver, pool, anywhere in entry.pools:
                id_ = PoolId(driver or SOME_DRIVER, pool or name)
                if anywhere and id_ not in known:
                    earliest = PoolId(driver or "", (pool or "") if driver else "")
                    found.setdefault(id_, Unseen(id_, earliest, entry.doubt))
        return list(found.values())

    def _by_name(self) -> tuple[tuple[str, Entry], ...]:
        if self._in_order is None:
            self._in_order = tuple(sorted(self._doubts.items()))
        return self._in_order

    def keys(self, kind: kinds.Kind) -> set[str]:
        prefix = f"{kind.name} "
        return {key.removeprefix(prefix) for key in self._entries if key.startswith(prefix)}

    def texts(self) -> dict[str, str]:
        """A sentence each, by kind and key ("Node n1"), in that order."""
        return {key: entry.text for key, entry in sorted(self._entries.items())}

    def of_node(self, node: str) -> tuple[str, ...]:
        return tuple(sorted(entry.text for entry in self._entries.values() if entry.node == node))


_MAY = {
    kinds.SLICE.name: "may publish devices of this pool",
    kinds.CLAIM.name: "may hold devices of this pool",
    kinds.TAINT_RULE.name: "may taint devices of this pool",
}


def _reporter(kind: kinds.Kind, key: str) -> str:
    return f"quarantine of {kind.name} {key}"


def _unreadable(reporter: str, text: str, node: str, now: float) -> Evidence:
    return Evidence(
        subject=NodeId(node),
        family=Family.NODE,
        kind=Kind.UNKNOWN,
        weight=0.0,
        source="quarantine",
        reporter=reporter,
        text=f"cannot be read: {text}",
        observed_at=now,
    )
