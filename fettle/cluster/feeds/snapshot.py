"""A folder of manifests served as if it were a cluster: what a changed file says differently is a
change in the cluster. First step of *watch → inventory → health → verdict → answer*; differs from
the cluster's feed in nothing but the source.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from fettle.api import (
    Bad,
    Batches,
    Contact,
    Gone,
    ListEnded,
    ListStarted,
    Lost,
    Put,
    Sink,
    bad,
    read,
)
from fettle.api.kinds import BY_NAME, KINDS, NODE, Kind
from fettle.cluster.feeds.folders import Folder, ObjectKey
from fettle.model import SnapshotError

_CONTACT_EVERY_S = 5.0

log = structlog.get_logger(__name__)


class SnapshotFeed:
    """`problems` holds a sentence for each file that cannot be read, or not in full; `clashes` one
    for each object that is told in several ways."""

    def __init__(
        self,
        folder: Path,
        poll_s: float = 0.2,
        kinds: Sequence[Kind] = KINDS,
    ) -> None:
        self._folder = Folder(folder)
        self._poll_s = poll_s
        self._kinds = kinds
        self._told: Mapping[ObjectKey, bytes] = {}
        self._unreadable: set[ObjectKey] = set()
        self._contact_due_s = 0.0
        self._note = ""
        self.problems: dict[str, str] = {}
        self.clashes: list[str] = []

    @property
    def unknown(self) -> frozenset[str]:
        """Kinds of which the folder holds nothing, or something that cannot be read: there may be
        objects of them that it does not show."""
        held = {key.kind for key in self._told}
        absent = {kind.name for kind in BY_NAME.values() if kind.name not in held}
        return frozenset(absent | {key.kind for key in self._unreadable})

    async def run(self, sink: Sink) -> None:
        """Never returns; raises SnapshotError if the folder is not there to begin with."""
        await asyncio.to_thread(self._folder.look)
        self._tell_problems()
        await self._list(sink)
        if NODE in self._kinds and all(key.kind != NODE.name for key in self._told):
            log.warning(
                "the snapshot holds no Node, so no pod is kept off anything: is it the right "
                "folder? Files directly in it are read that end in .yaml, .yml or .json",
                files=len(self._folder.files),
            )
        while True:
            await asyncio.sleep(self._poll_s)
            await self._look(sink)

    async def _look(self, sink: Sink) -> None:
        before = set(self._folder.files)
        try:
            changed = await asyncio.to_thread(self._folder.look)
        except SnapshotError as error:
            await self._lost(sink, str(error))
            return
        if changed:
            self._tell_problems()
            for name in sorted(before - self._folder.files):
                log.warning("snapshot file is gone, and its objects with it", file=name)
            await self._tell_changes(sink)
        if changed or self._note or _now_s() >= self._contact_due_s:
            self._note = ""
            await self._contact(sink)

    async def _list(self, sink: Sink) -> None:
        batches = Batches(sink)
        objects = self._objects()
        for kind in self._kinds:
            await batches.add(ListStarted(kind))
            for key, raw in objects.items():
                if key.kind == kind.name:
                    await batches.add(self._read(key, raw), len(raw))
            await batches.add(ListEnded(kind))
        await batches.flush()
        self._told = objects
        await self._contact(sink)

    def _objects(self) -> Mapping[ObjectKey, bytes]:
        names = {kind.name for kind in self._kinds}
        return {key: raw for key, raw in self._folder.objects.items() if key.kind in names}

    async def _tell_changes(self, sink: Sink) -> None:
        """Only objects that differ from what was told before."""
        batches = Batches(sink)
        objects = self._objects()
        for key in self._told.keys() - objects.keys():
            self._unreadable.discard(key)
            await batches.add(Gone(BY_NAME[key.kind], key.key))
        for key, raw in objects.items():
            if self._told.get(key) != raw:
                await batches.add(self._read(key, raw), len(raw))
        await batches.flush()
        self._told = objects

    def _read(self, key: ObjectKey, raw: bytes) -> Put | Bad:
        kind, version = BY_NAME[key.kind], _VERSION.decode(raw).api_version
        if version in kind.api_versions:
            change = read(kind, raw)
        else:
            change = bad(kind, raw, f"its apiVersion is {version}, not {kind.api_version}")
        self._unreadable.discard(key)
        if isinstance(change, Bad):
            self._unreadable.add(key)
        return change

    async def _contact(self, sink: Sink) -> None:
        self._contact_due_s = _now_s() + _CONTACT_EVERY_S
        await sink.send([Contact(kind) for kind in self._kinds])

    async def _lost(self, sink: Sink, note: str) -> None:
        if note != self._note:
            self._note = note
            await sink.send([Lost(kind, note) for kind in self._kinds])

    def _tell_problems(self) -> None:
        problems = dict(self._folder.problems)
        for name, problem in problems.items():
            if self.problems.get(name) != problem:
                log.warning("snapshot file cannot be read in full", reason=problem)
        for name in self.problems.keys() - problems.keys():
            log.info("snapshot file is readable again or gone", file=name)
        self.problems = problems
        for clash in self._folder.clashes:
            if clash not in self.clashes:
                log.warning("snapshot contradicts itself", reason=clash)
        self.clashes = list(self._folder.clashes)


class _Version(msgspec.Struct, rename="camel"):
    api_version: str


_VERSION = msgspec.json.Decoder(_Version)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
