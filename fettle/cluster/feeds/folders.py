"""A folder of YAML and JSON files as one set of objects. Re-reads what changed; a file that cannot
be read, is empty, or holds something other than objects is a problem with its name, line and
reason, and its previous objects are kept. A deleted file takes its objects along, and so does one
with an empty list. Blocking: the snapshot's feed calls it in a thread. Knows kinds, but not what a
feed is.
"""

import hashlib
import os
import stat
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fettle.api import key_of, kinds
from fettle.api.kinds import Kind
from fettle.cluster.feeds.documents import LocatedObject, objects_of_json, objects_of_yaml
from fettle.model import SnapshotError

LARGEST_BYTES = 256 * 1024 * 1024
_SUFFIXES = (".yaml", ".yml", ".json")
_NAMESPACED = (kinds.POD, kinds.CLAIM, kinds.TEMPLATE, *kinds.ON_DEMAND)
_CLASHES = 20
_TOLD = 3  # problems of one file that its sentence spells out


class ObjectKey(NamedTuple):
    """Which object: the kind's name, and `namespace/name` or `name`."""

    kind: str
    key: str


class _Stamp(NamedTuple):
    """`changed_ns` also moves with the rights to a file."""

    modified_ns: int
    changed_ns: int
    size: int
    inode: int


class _Content(NamedTuple):
    """`twice` are objects that the file holds several times, not all alike."""

    digest: bytes
    objects: dict[ObjectKey, bytes]
    problem: str
    twice: frozenset[ObjectKey] = frozenset()


class Folder:
    """`objects` are JSON by key; where two files hold the same object, the later name wins,
    and within a file the last one. `problems` are sentences by file name, `clashes` about objects
    of which several were found, not all alike.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before: dict[str, _Stamp] | None = None  # as last looked
        self._read: dict[str, _Stamp] = {}  # as last read
        self._contents: dict[str, _Content] = {}
        self.objects: Mapping[ObjectKey, bytes] = {}
        self.problems: Mapping[str, str] = {}
        self.clashes: list[str] = []

    def look(self) -> bool:
        """Read what changed; whether anything is other than it was. Raises SnapshotError if there
        is no folder.

        A change counts when a second look finds it at rest, so that a file is not read while it
        is being written; the first look takes what is there, and the second makes sure. A file
        that cannot be read is tried again at each look.
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
            self._contents[name] = _content(name, text, held)
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
        twice = self._told_differently()
        self.clashes = [self._clash(key) for key in twice[:_CLASHES]]
        if len(twice) > _CLASHES:
            self.clashes.append(f"{len(twice) - _CLASHES} more objects are defined several times")

    def _told_differently(self) -> list[ObjectKey]:
        found = {key for content in self._contents.values() for key in content.twice}
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
        return _Stamp(0, 0, 0, 0)  # reading it will say what is wrong
    return _Stamp(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _text(path: Path, stamp: _Stamp) -> bytes:
    if stamp.size > LARGEST_BYTES:
        raise SnapshotError(f"it is larger than {LARGEST_BYTES} bytes; split it into several files")
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):  # opening a pipe would wait for somebody to write into it
            return path.read_bytes()
    except OSError as error:
        why = error.strerror
        if isinstance(error, FileNotFoundError) and path.is_symlink():
            why = "the file that it is a link to does not exist"
        raise SnapshotError(f"it cannot be read: {why}") from error
    kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
    raise SnapshotError(f"it cannot be read: it is {kind}")


def _content(name: str, text: bytes, held: _Content | None) -> _Content:
    if not text.strip():
        # As `kubectl get … > file` leaves it until the answer is there.
        raise SnapshotError("it is empty; delete it if its objects are gone")
    digest = hashlib.sha256(text).digest()
    if held is not None and held.digest == digest:
        return held
    found = objects_of_json(text) if name.endswith(".json") else objects_of_yaml(text)
    return _taken(name, digest, found)


def _taken(name: str, digest: bytes, found: list[LocatedObject]) -> _Content:
    """Raises SnapshotError if nothing of what was found is an object."""
    objects: dict[ObjectKey, bytes] = {}
    twice: set[ObjectKey] = set()
    problems: list[str] = []
    for each in found:
        if other := _other_version(each.value):
            problems.append(f"{each.where}: {other}")
        try:
            key, raw = _object(each)
        except SnapshotError as error:
            if not other:
                problems.append(f"{each.where}: {error}")
        else:
            if objects.get(key, raw) != raw:
                twice.add(key)
            objects[key] = raw
    said = _sentence(problems)
    if found and not objects and not any(_is_of_another_kind(each.value) for each in found):
        # As an error that was written in their place; in a list without items nothing is found.
        raise SnapshotError(said)
    return _Content(digest, objects, f"{name}: {said}" if said else "", frozenset(twice))


def _object(found: LocatedObject) -> tuple[ObjectKey, bytes]:
    """The object as JSON, and what it is, of whatever version; raises SnapshotError if it is none
    that Fettle reads."""
    value = found.value
    if not isinstance(value, dict):
        raise SnapshotError(f"this is not a Kubernetes object but {_shown(value)}")
    kind = _kind(value)
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not key_of(metadata):
        raise SnapshotError(f"this {kind.name} has no metadata.name")
    if kind in _NAMESPACED and not metadata.get("namespace"):
        metadata = metadata | {"namespace": "default"}
    try:
        raw = msgspec.json.encode(value | {"metadata": metadata})
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SnapshotError(f"this {kind.name} cannot be written as JSON: {error}") from error
    return ObjectKey(kind.name, key_of(metadata)), raw


def _kind(value: dict[str, Any]) -> Kind:
    name, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(name, str) or not isinstance(version, str):
        raise SnapshotError("this is not a Kubernetes object: it has no kind and apiVersion")
    kind = kinds.BY_NAME.get(name)
    if kind is not None:
        return kind
    if not _is_of_another_kind(value):
        if name == "Status":  # as the API server says that it has no answer
            said = f": {_shown(message)}" if (message := value.get("message")) else ""
            raise SnapshotError(f"this is not a Kubernetes object but a Status{said}")
        if name.endswith("List"):
            raise SnapshotError(f"this {_shown(name)} has no list of items")
    raise SnapshotError(
        f"{_shown(name)} is not a kind that Fettle reads ({', '.join(kinds.BY_NAME)})"
    )


def _is_of_another_kind(value: Any) -> bool:
    """Whether it is an object, and so has a name, but of a kind that Fettle does not read."""
    if not isinstance(value, dict):
        return False
    name, version, metadata = (value.get(each) for each in ("kind", "apiVersion", "metadata"))
    if not isinstance(name, str) or not isinstance(version, str) or name in kinds.BY_NAME:
        return False
    return isinstance(metadata, dict) and bool(key_of(metadata))


def _other_version(value: object) -> str:
    """Why an object cannot be read though its kind is known; "" if it can, or if it is not an
    object.
    """
    if not isinstance(value, dict):
        return ""
    name, version = value.get("kind"), value.get("apiVersion")
    kind = kinds.BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None or not isinstance(version, str) or version in kind.api_versions:
        return ""
    said = f"{name} is read as {kind.api_version}, but this is {_shown(version)}"
    taken = f"kubectl get {kind.plural}.{kind.version}.{kind.group} -o yaml"
    return f"{said}; get it with `{taken}`" if kind.group else said


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:60]}…"


def _sentence(problems: list[str]) -> str:
    more = f"; and {len(problems) - _TOLD} more like these" if len(problems) > _TOLD else ""
    return f"{'; '.join(problems[:_TOLD])}{more}"
