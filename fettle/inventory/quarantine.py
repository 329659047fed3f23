"""Objects that cannot be read: what is wrong with each, and the node that it speaks for. Pure."""

from typing import NamedTuple

from fettle.evidence.reports import Report, short
from fettle.model import Evidence, Family, Kind, NodeId
from fettle.wire import kinds


class _Entry(NamedTuple):
    text: str
    node: str


class Quarantine:
    """Add and release by kind and key; each answers with what it says about a node."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def add(self, kind: kinds.Kind, key: str, reason: str, node: str, now: float) -> Report:
        """Evidence that makes `node` Unknown; none where no node is named."""
        text = short(f"{kind.name} {key}: {reason}")
        self._entries[f"{kind.name} {key}"] = _Entry(text, node)
        reporter = _reporter(kind, key)
        evidence = (_unreadable(reporter, text, node, now),) if node else ()
        return Report(reporter, evidence, absent_is_clear=True)

    def release(self, kind: kinds.Kind, key: str) -> tuple[Report, str] | None:
        """The all-clear and the node it concerns ("" if none); None if nothing was wrong."""
        if not self._entries:
            return None
        entry = self._entries.pop(f"{kind.name} {key}", None)
        if entry is None:
            return None
        return Report(_reporter(kind, key), (), absent_is_clear=True), entry.node

    def holds(self, kind: kinds.Kind, key: str) -> bool:
        return f"{kind.name} {key}" in self._entries

    def keys(self, kind: kinds.Kind) -> set[str]:
        prefix = f"{kind.name} "
        return {key.removeprefix(prefix) for key in self._entries if key.startswith(prefix)}

    def texts(self) -> dict[str, str]:
        """A sentence each, by kind and key ("Node n1")."""
        return {key: entry.text for key, entry in self._entries.items()}

    def of_node(self, node: str) -> tuple[str, ...]:
        return tuple(entry.text for entry in self._entries.values() if entry.node == node)


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
