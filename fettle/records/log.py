"""The decisions in memory: the newest ones, bounded in number and bytes. Pure. What goes over all
of them pauses."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator

import msgspec

from fettle.pacing import pause
from fettle.records.decisions import ENDED, PLACING, Decision

_BYTES_UNWRITTEN = 600
"""What a decision counts for before it is encoded."""


class DecisionLog:
    """Holds up to `most` decisions, of `max_bytes` as JSON. The oldest ones go first."""

    def __init__(self, most: int, max_bytes: int) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._bytes = 0
        self._by_id: OrderedDict[str, Decision] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._newest: dict[Hashable, Decision] = {}
        self._of_pod: dict[str, Decision] = {}
        self._changed: dict[str, Decision] = {}

    def note(self, decision: Decision) -> Decision:
        """Add a decision, or count it in the last one about its object if it says the same."""
        last = self._newest.get(decision.subject)
        if last is not None and last.said == decision.said:
            last.repeat(decision)
            self.touch(last)
            return last
        self._add(decision)
        self._changed[decision.id] = decision
        return decision

    def touch(self, decision: Decision) -> None:
        """The decision changed, so it is to be written again."""
        self._changed[decision.id] = decision

    def restore(self, decision: Decision) -> None:
        """Add a decision as it was written by an earlier process; a later line replaces it."""
        if (before := self._by_id.get(decision.id)) is not None:
            self._forget(before)
        self._add(decision)

    def _add(self, decision: Decision) -> None:
        self._by_id[decision.id] = decision
        self._newest[decision.subject] = decision
        if decision.uid and decision.verb in PLACING:
            self._of_pod[decision.uid] = decision
        self._resize(decision.id, _BYTES_UNWRITTEN)
        while len(self._by_id) > self._most or (
            self._bytes > self._max_bytes and len(self._by_id) > 1
        ):
            self._forget(next(iter(self._by_id.values())))

    def _forget(self, decision: Decision) -> None:
        del self._by_id[decision.id]
        self._changed.pop(decision.id, None)
        self._bytes -= self._sizes.pop(decision.id)
        if self._newest.get(decision.subject) is decision:
            del self._newest[decision.subject]
        if self._of_pod.get(decision.uid) is decision:
            del self._of_pod[decision.uid]

    def _resize(self, id_: str, size: int) -> None:
        self._bytes += size - self._sizes.get(id_, 0)
        self._sizes[id_] = size

    def of_pod(self, uid: str) -> Decision | None:
        """The last decision on where this pod goes."""
        return self._of_pod.get(uid)

    def open(self) -> list[Decision]:
        """The last decision on each pod that has not ended."""
        return [one for one in self._of_pod.values() if one.became not in ENDED]

    def changed(self) -> list[tuple[Decision, bytes]]:
        """The decisions that changed since the last call, each as a line of JSON."""
        changed, self._changed = self._changed, {}
        lines = []
        for decision in changed.values():
            line = msgspec.json.encode(decision)
            if decision.id in self._by_id:  # it may be forgotten during a pause
                self._resize(decision.id, len(line))
            lines.append((decision, line))
            pause()
        return lines

    def lines(self) -> list[bytes]:
        """All of them as JSON, the oldest first."""
        lines = []
        for one in self:
            lines.append(msgspec.json.encode(one))
            pause()
        return lines

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Decision]:
        """The oldest first."""
        return iter([*self._by_id.values()])

    def select(
        self, since: float, *, pod: str = "", node: str = "", policy: str = ""
    ) -> list[Decision]:
        """Those that were said after `since`, the newest first; what is "" is not asked for."""
        found = []
        for one in self:
            if (
                one.last >= since
                and (not pod or one.key == pod)
                and (not policy or one.policy == policy)
                and (not node or node in self._nodes_of(one))
            ):
                found.append(one)
            pause()
        return sorted(found, key=lambda one: one.last, reverse=True)

    def with_fate(self, decision: Decision) -> Decision:
        """The decision with what became of its pod, which is kept in the last one."""
        last = self._of_pod.get(decision.uid)
        if last is None or last is decision:
            return decision
        return msgspec.structs.replace(
            decision,
            placed=last.placed,
            became=last.became,
            became_at=last.became_at,
            end=last.end,
        )

    def _nodes_of(self, decision: Decision) -> set[str]:
        last = self._of_pod.get(decision.uid)
        placed = {last.placed.node} if last is not None and last.placed is not None else set()
        return {*decision.refused_nodes, *decision.preferred} | placed
