"""A sink that keeps what was sent, folded as the writer folds it, and lets a test wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fettle.api import Bad, Change, Gone, ListEnded, ListStarted, Lost, Put, Unserved
from fettle.api.kinds import WireObject

PATIENCE_S = 20.0


class Recorder:
    """`objects[kind][key]`, `bad[kind][key]`, and every change in order."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.objects: dict[str, dict[str, WireObject]] = {}
        self.bad: dict[str, dict[str, Bad]] = {}
        self.synced: set[str] = set()
        self.largest = 0
        self._listed: dict[str, set[str]] = {}
        self._turned = asyncio.Event()

    async def send(self, changes: list[Change]) -> None:
        self.largest = max(self.largest, len(changes))
        self.changes += changes
        for change in changes:
            self._fold(change)
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def _fold(self, change: Change) -> None:
        name = change.kind.name
        objects, bad = self.objects.setdefault(name, {}), self.bad.setdefault(name, {})
        match change:
            case Put():
                key = change.object.metadata.key
                objects[key] = change.object
                bad.pop(key, None)
                self._listed.setdefault(name, set()).add(key)
            case Bad():
                objects.pop(change.key, None)
                bad[change.key] = change
                self._listed.setdefault(name, set()).add(change.key)
            case Gone():
                objects.pop(change.key, None)
                bad.pop(change.key, None)
            case ListStarted():
                self._listed[name] = set()
            case ListEnded():
                for key in (objects.keys() | bad.keys()) - self._listed.get(name, set()):
                    objects.pop(key, None)
                    bad.pop(key, None)
                self.synced.add(name)
            case _:
                pass

    async def until(self, true: Callable[[Recorder], bool]) -> None:
        """Return once it is true; fail the test if it never is."""
        async with asyncio.timeout(PATIENCE_S):
            while not true(self):
                await self._turned.wait()

    def names(self, kind: str) -> set[str]:
        return set(self.objects.get(kind, {}))

    def notes(self, kind: str) -> list[str]:
        """The notes that were sent about a source that cannot be read."""
        told = [c for c in self.changes if isinstance(c, Lost | Unserved)]
        return [change.note for change in told if change.kind.name == kind]

    def count(self, type_: type[Change], kind: str) -> int:
        return sum(isinstance(c, type_) and c.kind.name == kind for c in self.changes)
