"""A folder of YAML and JSON manifests, served as if it were a cluster: a changed file is a change
in the cluster. First step of *watch → inventory → health → verdict → answer*; differs from the
cluster's feed in nothing but the source.

A file that cannot be read, is empty, or holds something other than objects is a problem with its
name, line and reason; its previous objects are kept. A file that is deleted, or that has an empty
list now, takes its objects along.
"""

import asyncio
import ctypes
import hashlib
import os
import stat
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fettle.api import (
    Bad,
    Batches,
    Contact,
    Gone,
    ListEnded,
    ListStarted,
    LocatedObject,
    Lost,
    Put,
    Sink,
    bad_object,
    key_of,
    kinds,
    objects_of_json,
    objects_of_yaml,
    read_in_slices,
    read_object,
)
from fettle.api.annotations import KEPT
from fettle.api.kinds import BY_NAME, KINDS, NODE, Kind, any_kind
from fettle.health import ObjectKind
from fettle.logs import Logger
from fettle.model import SnapshotError
from fettle.pacing import keep

LARGEST_BYTES = 256 * 1024 * 1024
_CONTACT_EVERY_S = 5.0
_SUFFIXES = (".yaml", ".yml", ".json")
_NAMESPACED = (kinds.POD, kinds.CLAIM, kinds.TEMPLATE, kinds.EVENT, *kinds.ON_DEMAND)
_MOST_CLASHES = 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MOST_PROBLEMS = 3
"""Problems of one file that are described one by one."""

log = Logger(__name__)


class ObjectKey(NamedTuple):
    """Which object: the kind's name, and `namespace/name` or `name`."""

    kind: str
    key: str


class SnapshotFeed:
    """`problems` has a sentence for each file that cannot be read, or not in full; `clashes` has
    one for each object that is defined in several ways."""

    def __init__(
        self,
        folder: Path,
        poll_s: float = 0.2,
        kinds: Sequence[Kind] = KINDS,
    ) -> None:
        self._folder = SnapshotFolder(folder)
        self._poll_s = poll_s
        self._kinds = kinds
        self._sent: Mapping[ObjectKey, bytes] = {}
        self._unreadable: set[ObjectKey] = set()
        self._contact_due_s = 0.0
        self._note = ""
        self.problems: dict[str, str] = {}
        self.clashes: list[str] = []

    @property
    def unknown(self) -> frozenset[str]:
        """Kinds of which the folder has no object, or one that cannot be read: the cluster may have
        others."""
        return self.absent | {key.kind for key in self._unreadable}

    @property
    def absent(self) -> frozenset[str]:
        """Kinds of which the folder neither has an object nor says that there is none."""
        held = self._folder.empty.union(key.kind for key in self._sent)
        return frozenset(kind.name for kind in BY_NAME.values() if kind.name not in held)

    async def run(self, sink: Sink) -> None:
        """Never returns; raises SnapshotError if the folder is not there to begin with."""
        await self.read_once(sink)
        if NODE in self._kinds and all(key.kind != NODE.name for key in self._sent):
            log.warning(
                "the snapshot holds no Node, so no pod is kept off anything: is it the right "
                "folder? Only files directly in it are read that end in .yaml, .yml or .json",
                files=len(self._folder.files),
            )
        await keep("the snapshot", partial(self._poll, sink), when=self._pause)

    async def read_once(self, sink: Sink) -> None:
        """Send the folder's objects as they are now. Raises SnapshotError if it is not there."""
        await asyncio.to_thread(self._read_folder)
        self._log_problems()
        await self._list(sink)

    async def _pause(self) -> None:
        await asyncio.sleep(self._poll_s)

    async def _poll(self, sink: Sink) -> None:
        before = set(self._folder.files)
        try:
            changed = await asyncio.to_thread(self._read_folder)
        except SnapshotError as error:
            await self._lost(sink, str(error))
            return
        if changed:
            self._log_problems()
            for name in sorted(before - self._folder.files):
                log.warning("snapshot file is gone, and its objects with it", file=name)
            await self._send_changes(sink)
        if changed or self._note or _now_s() >= self._contact_due_s:
            self._note = ""
            await self._contact(sink)

    def _read_folder(self) -> bool:
        """Each thread that reads a large file would keep the memory that it took. Afterwards, what
        answers keeps its own: else each call about 5000 nodes would fetch its pages anew."""
        _keep_free_memory(mapped=2**17, trimmed=2**20)
        try:
            return self._folder.poll()
        finally:
            _keep_free_memory(mapped=2**22, trimmed=2**24)

    async def _list(self, sink: Sink) -> None:
        batches = Batches(sink)
        objects = self._objects()
        for kind in self._kinds:
            await batches.add(ListStarted(kind))
            for key, raw in objects.items():
                if key.kind == kind.name:
                    await batches.add(await self._read(key, raw), len(raw))
            await batches.add(ListEnded(kind))
        await batches.flush()
        self._sent = objects
        await self._contact(sink)

    def _objects(self) -> Mapping[ObjectKey, bytes]:
        names = {kind.name for kind in self._kinds}
        return {key: raw for key, raw in self._folder.objects.items() if key.kind in names}

    async def _send_changes(self, sink: Sink) -> None:
        """Send only the objects that differ from what was sent before."""
        batches = Batches(sink)
        objects = self._objects()
        for key in self._sent.keys() - objects.keys():
            self._unreadable.discard(key)
            await batches.add(Gone(BY_NAME[key.kind], key.key))
        for key, raw in objects.items():
            if self._sent.get(key) != raw:
                await batches.add(await self._read(key, raw), len(raw))
        await batches.flush()
        self._sent = objects

    async def _read(self, key: ObjectKey, raw: bytes) -> Put | Bad:
        kind, version = BY_NAME[key.kind], _VERSION.decode(raw).api_version
        if version in kind.api_versions:
            change = await read_in_slices(kind, raw)
        else:
            change = bad_object(kind, raw, f"its apiVersion is {version}, not {kind.api_version}")
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

    def _log_problems(self) -> None:
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


def _keep_free_memory(*, mapped: int, trimmed: int) -> None:
    """From how many bytes on a piece has a mapping of its own, and how much is kept at the end of a
    heap."""
    with suppress(OSError, AttributeError):  # only glibc has it
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, mapped)
        libc.mallopt(_M_TRIM_THRESHOLD, trimmed)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class _Stamp(NamedTuple):
    """What changes with a file; `changed_ns` also changes with its permissions."""

    modified_ns: int
    changed_ns: int
    size: int
    inode: int


class OtherObject(NamedTuple):
    """An object of a kind that rules are about, or why it cannot be read. `of` may have another
    version than they read."""

    of: ObjectKind
    read: Put | Bad


class _Content(NamedTuple):
    """`clashing` are objects that the file defines several times, with differences. `others` are
    those that rules are about, whole."""

    digest: bytes
    objects: dict[ObjectKey, bytes]
    problem: str
    clashing: frozenset[ObjectKey] = frozenset()
    others: tuple[OtherObject, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it is a list without items."""
        return not (self.objects or self.others or self.problem)


class SnapshotFolder:
    """The files as one set of objects. Blocking: call it in a thread.

    `objects` are JSON by key. Where two files hold the same object, the later file name wins, and
    within a file the last one. `problems` are sentences by file name, `clashes` are sentences about
    objects that are defined several times, with differences. `others` are those of the kinds that
    were asked for by `others`.
    """

    def __init__(self, path: Path, others: Collection[ObjectKind] = ()) -> None:
        self._path = path
        self._wanted = frozenset(others)
        self._before: dict[str, _Stamp] | None = None  # as last polled
        self._read: dict[str, _Stamp] = {}  # as last read
        self._contents: dict[str, _Content] = {}
        self.objects: Mapping[ObjectKey, bytes] = {}
        self.problems: Mapping[str, str] = {}
        self.clashes: list[str] = []

    def poll(self) -> bool:
        """Read the files that changed; whether any object or problem did. Raises SnapshotError if
        there is no folder.

        A changed file is read once a second poll finds it unchanged, so that no file is read while
        it is being written. The first poll reads all files, and the second reads them again. A
        file that cannot be read is tried again at each poll.
        """
        now = self._stamps()
        before, self._before = self._before, now
        due = [
            name
            for name in sorted(now.keys() | self._contents.keys())
            if name not in now or now[name] != self._read.get(name)
            if before is None or now.get(name) == before.get(name)
        ]
        contents = dict(self._contents)
        for name in due:
            self._take(name, now.get(name), settled=before is not None)
        changed = self._contents != contents
        if changed:
            self._merge()
        return changed

    @property
    def files(self) -> Set[str]:
        """Names of the files that were read, or tried."""
        return self._contents.keys()

    @property
    def others(self) -> list[OtherObject]:
        return [one for _, content in sorted(self._contents.items()) for one in content.others]

    @property
    def empty(self) -> frozenset[str]:
        """The kinds that a file is called after and that it has an empty list of: there are none.
        `kubectl get resourceclaims -A -o yaml` names no kind then."""
        called = {Path(name).stem for name, one in self._contents.items() if one.is_empty}
        return frozenset(kind.name for kind in BY_NAME.values() if kind.plural in called)

    def file_of(self, key: ObjectKey) -> str:
        """The name of the file that an object was taken from; "" if there is none."""
        files = (name for name, content in self._contents.items() if key in content.objects)
        return max(files, default="")

    def _stamps(self) -> dict[str, _Stamp]:
        stamps = {}
        try:
            with os.scandir(self._path) as entries:
                for entry in entries:
                    if entry.name.startswith(".") or not entry.name.endswith(_SUFFIXES):
                        continue
                    stamps[entry.name] = _stamp(entry)
        except OSError as error:
            raise SnapshotError(
                f"snapshot folder {self._path}: {error.strerror}; "
                "pass --snapshot a folder of YAML or JSON files"
            ) from error
        return stamps

    def _take(self, name: str, stamp: _Stamp | None, *, settled: bool) -> None:
        self._read.pop(name, None)
        if stamp is None:
            self._contents.pop(name, None)
            return
        held = self._contents.get(name)
        try:
            text = _text(self._path / name, stamp)
            if settled:
                self._read[name] = stamp
            self._contents[name] = _content(name, text, held, self._wanted)
        except SnapshotError as error:
            kept = "; its previous objects are kept" if held and held.objects else ""
            problem = f"{name}: {error}{kept}"
            self._contents[name] = _Content(b"", held.objects if held else {}, problem)

    def _merge(self) -> None:
        self.objects = {
            key: raw
            for name in sorted(self._contents)
            for key, raw in self._contents[name].objects.items()
        }
        self.problems = {n: c.problem for n, c in sorted(self._contents.items()) if c.problem}
        clashing = self._clashing()
        self.clashes = [self._clash(key) for key in clashing[:_MOST_CLASHES]]
        if (more := len(clashing) - _MOST_CLASHES) > 0:
            self.clashes.append(f"{more} more objects are defined several times")

    def _clashing(self) -> list[ObjectKey]:
        """Objects that are defined several times, with differences."""
        found = {key for content in self._contents.values() for key in content.clashing}
        for content in self._contents.values():
            found |= {k for k, raw in content.objects.items() if raw != self.objects[k]}
        return sorted(found)

    def _clash(self, key: ObjectKey) -> str:
        files = sorted(name for name, content in self._contents.items() if key in content.objects)
        where = f"in {' and '.join(files)}" if len(files) > 1 else f"several times in {files[0]}"
        return f"{key.kind} {key.key} is defined {where}, with differences; the last one counts"


def _stamp(entry: os.DirEntry[str]) -> _Stamp:
    try:
        found = entry.stat()
    except OSError:
        return _Stamp(0, 0, 0, 0)  # to read it will give the reason
    return _Stamp(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _text(path: Path, stamp: _Stamp) -> bytes:
    if stamp.size > LARGEST_BYTES:
        raise SnapshotError(f"it is larger than {LARGEST_BYTES} bytes; split it into several files")
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):  # to open a pipe would wait for a writer
            return path.read_bytes()
    except OSError as error:
        why = error.strerror
        if isinstance(error, FileNotFoundError) and path.is_symlink():
            why = "the file that it is a link to does not exist"
        raise SnapshotError(f"it cannot be read: {why}") from error
    kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
    raise SnapshotError(f"it cannot be read: it is {kind}")


def _content(
    name: str, text: bytes, held: _Content | None, wanted: Collection[ObjectKind]
) -> _Content:
    if not text.strip():
        # `kubectl get … > file` leaves an empty file until the response is there.
        raise SnapshotError("it is empty; delete it if its objects are gone")
    digest = hashlib.sha256(text).digest()
    if held is not None and held.digest == digest:
        return held
    found = objects_of_json(text) if name.endswith(".json") else objects_of_yaml(text)
    return _taken(name, digest, found, wanted)


def _taken(
    name: str, digest: bytes, found: list[LocatedObject], wanted: Collection[ObjectKind]
) -> _Content:
    """Raises SnapshotError if nothing of what was found is an object."""
    objects: dict[ObjectKey, bytes] = {}
    others: list[OtherObject] = []
    clashing: set[ObjectKey] = set()
    problems: list[str] = []
    for each in found:
        if (whole := _wanted(each.value, wanted)) is not None:
            others.append(whole)
            if whole.of.kind not in BY_NAME:
                continue
        if other := _other_version(each.value):
            problems.append(f"{each.where}: {other}")
        try:
            key, raw = _object(each)
        except SnapshotError as error:
            if not other:
                problems.append(f"{each.where}: {error}")
        else:
            if objects.get(key, raw) != raw:
                clashing.add(key)
            objects[key] = raw
    problem = _sentence(problems)
    if found and not objects and not any(_is_of_another_kind(each.value) for each in found):
        # Perhaps an error was written in place of the objects; a list without items finds nothing.
        raise SnapshotError(problem)
    said = f"{name}: {problem}" if problem else ""
    return _Content(digest, objects, said, frozenset(clashing), tuple(others))


def _wanted(value: Any, wanted: Collection[ObjectKind]) -> OtherObject | None:
    """The object, if it is of one of these kinds, in whatever version."""
    if not wanted or not _names_itself(value):
        return None
    of = ObjectKind(value["apiVersion"], value["kind"])
    same = [one for one in wanted if (one.group, one.kind) == (of.group, of.kind)]
    if not same:
        return None
    kind = any_kind(of.group, of.version, of.kind, "")
    if of not in same:
        why = f"{of.kind} is read as {same[0].api_version}, but this is {_shown(of.api_version)}"
        return OtherObject(of, Bad(kind, key_of(value["metadata"]), why))
    try:
        return OtherObject(of, read_object(kind, msgspec.json.encode(value)))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return OtherObject(of, Bad(kind, key_of(value["metadata"]), str(error)))


def _object(found: LocatedObject) -> tuple[ObjectKey, bytes]:
    """The object as JSON, and its key; raises SnapshotError if it is of no kind that Fettle reads.
    Its version is not checked here."""
    value = found.value
    if not isinstance(value, dict):
        raise SnapshotError(f"this is not a Kubernetes object but {_shown(value)}")
    kind = _kind(value)
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not key_of(metadata):
        raise SnapshotError(f"this {kind.name} has no metadata.name")
    if kind in _NAMESPACED and not metadata.get("namespace"):
        metadata = metadata | {"namespace": "default"}
    if isinstance(given := metadata.get("annotations"), dict):
        metadata = metadata | {"annotations": _read_of(kind, given)}
    try:
        raw = msgspec.json.encode(value | {"metadata": metadata})
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SnapshotError(f"this {kind.name} cannot be written as JSON: {error}") from error
    return ObjectKey(kind.name, key_of(metadata)), raw


def _read_of(kind: Kind, annotations: dict[Any, Any]) -> dict[Any, Any]:
    """Those that are read. The others may be long, and objects are kept here to see changes."""
    if (kept := KEPT.get(kind.struct.__name__)) is None:
        return annotations
    return {
        key: text
        for key, text in annotations.items()
        if kept.has(str(key)) or not isinstance(text, str)  # the reader will say what is wrong
    }


def _kind(value: dict[str, Any]) -> Kind:
    name, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(name, str) or not isinstance(version, str):
        raise SnapshotError("this is not a Kubernetes object: it has no kind and apiVersion")
    kind = kinds.BY_NAME.get(name)
    if kind is not None:
        return kind
    if not _is_of_another_kind(value):
        if name == "Status":  # an error of the API server
            message = f": {_shown(text)}" if (text := value.get("message")) else ""
            raise SnapshotError(f"this is not a Kubernetes object but a Status{message}")
        if name.endswith("List"):
            raise SnapshotError(f"this {_shown(name)} has no list of items")
    raise SnapshotError(
        f"{_shown(name)} is not a kind that Fettle reads ({', '.join(kinds.BY_NAME)})"
    )


def _is_of_another_kind(value: Any) -> bool:
    """Whether it is an object, with a name, of a kind that Fettle does not read."""
    return _names_itself(value) and value["kind"] not in kinds.BY_NAME


def _names_itself(value: Any) -> bool:
    """Whether it has a kind, a version and a name, as every object does."""
    if not isinstance(value, dict):
        return False
    name, version, metadata = (value.get(each) for each in ("kind", "apiVersion", "metadata"))
    if not isinstance(name, str) or not isinstance(version, str):
        return False
    return isinstance(metadata, dict) and bool(key_of(metadata))


def _other_version(value: object) -> str:
    """Why an object's version cannot be read; "" if it can, or if this is no object."""
    if not isinstance(value, dict):
        return ""
    name, version = value.get("kind"), value.get("apiVersion")
    kind = kinds.BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None or not isinstance(version, str) or version in kind.api_versions:
        return ""
    problem = f"{name} is read as {kind.api_version}, but this is {_shown(version)}"
    command = f"kubectl get {kind.plural}.{kind.version}.{kind.group} -o yaml"
    return f"{problem}; get it with `{command}`" if kind.group else problem


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:60]}…"


def _sentence(problems: list[str]) -> str:
    more = len(problems) - _MOST_PROBLEMS
    rest = f"; and {more} more like these" if more > 0 else ""
    return f"{'; '.join(problems[:_MOST_PROBLEMS])}{rest}"
