"""Edits to raw objects: the fields that are edited, and minimal JSON patches (RFC 6902).

The API server refuses an object whose patch does not fit as an internal error, even with
failurePolicy Ignore. So each edit is applied the moment it is made, and the finished patch once
more to the object as it came. That object never changes: only the containers on the path to an edit
are copied, each once.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from fettle.lint import Field, values_at
from fettle.model import BadInput
from fettle.pacing import pause

Path = Sequence[str | int]
_PART = re.compile(r"\[([^\[\]]*+)\]|([^.\[\]]+)")


# --- fields


def fields_matching(document: Any, path: Sequence[str]) -> Iterator[Field]:
    """The fields that a path leads to; `*` in it is every member or entry, called by its `name`.

    The last field of the path may be absent, those above it may not.

    >>> pod = {"containers": [{"name": "main"}]}
    >>> [one.path for one in fields_matching(pod, ("containers", "*", "image"))]
    ['containers[main].image']
    """
    *above, last = path
    for field in values_at(Field("", document), tuple(above), named=True):
        if isinstance(field.value, dict):
            yield field.at(last)


def field_at(document: Any, path: str) -> Field | None:
    """The field with this path; None if a list entry on the way to it does not exist.

    >>> field_at({"spec": {"containers": [{"name": "main"}]}}, "spec.containers[main].name").value
    'main'
    """
    field = Field("", document)
    for part in (bracketed or plain for bracketed, plain in _PART.findall(path)):
        if isinstance(field.value, list):
            index = _entry_index(field.value, part)
            if index is None:
                return None
            field = field.entry(index, part)
        elif isinstance(field.value, dict | None):
            field = field.at(part)
        else:
            return None
    return field


def _entry_index(entries: list[Any], name: str) -> int | None:
    for index, entry in enumerate(entries):
        if isinstance(entry, dict) and entry.get("name") == name:
            return index
    is_index = name.isdecimal() and name.isascii() and len(name) < 10 and int(name) < len(entries)
    return int(name) if is_index else None


# --- patches


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a patch; `path` is a JSON pointer. A removal has no value."""

    op: Literal["add", "replace", "remove", "test"]
    path: str
    value: Any = msgspec.UNSET

    def __str__(self) -> str:
        return f"{self.op} {self.path}"


def pointer(path: Path) -> str:
    """A JSON pointer (RFC 6901) of keys and list positions."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def parts(text: str) -> list[str]:
    """The parts of a JSON pointer; the whole document has none."""
    if text and not text.startswith("/"):
        raise BadInput(f"{text!r} is not a JSON pointer: it must begin with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def apply(document: Any, operations: Iterable[Operation]) -> Any:
    """The document after all operations; raises BadInput that names one that does not fit."""
    copy = _Copy(document)
    for operation in operations:
        copy.do(operation)
    return copy.document


class _Copy:
    """A document to edit, which shares with the original whatever no edit has touched."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self._own: dict[int, Any] = {}

    def do(self, operation: Operation) -> None:
        """Raises BadInput, and changes nothing, if the operation does not fit."""
        pause()
        try:
            self.document = self._done(self.document, parts(operation.path), operation)
        except BadInput as error:
            raise BadInput(f"patch does not fit, {operation}: {error}") from error

    def _done(self, value: Any, path: list[str], operation: Operation) -> Any:
        if not path:
            return _whole(value, operation)
        key, rest = path[0], path[1:]
        if isinstance(value, dict):
            return self._in_object(value, key, rest, operation)
        if isinstance(value, list):
            return self._in_list(value, key, rest, operation)
        raise BadInput(f"there is no {key!r} in a {type(value).__name__}")

    def _in_object(
        self, value: dict[str, Any], key: str, rest: list[str], operation: Operation
    ) -> Any:
        if key not in value and (rest or operation.op != "add"):
            raise BadInput(f"there is no member {key!r}")
        removing = not rest and operation.op == "remove"
        adding = not rest and operation.op == "add"
        member = operation.value if removing or adding else self._done(value[key], rest, operation)
        own = self._owned(value)
        if removing:
            del own[key]
        else:
            own[key] = member
        return own

    def _in_list(self, value: list[Any], key: str, rest: list[str], operation: Operation) -> Any:
        adding = not rest and operation.op == "add"
        index = len(value) if key == "-" and adding else _index(key)
        if index > len(value) or (index == len(value) and not adding):
            raise BadInput(f"there is no entry {key} in a list of {len(value)}")
        removing = not rest and operation.op == "remove"
        entry = operation.value
        if not adding and not removing:
            entry = self._done(value[index], rest, operation)
        own = self._owned(value)
        if adding:
            own.insert(index, entry)
        elif removing:
            del own[index]
        else:
            own[index] = entry
        return own

    def _owned(self, value: Any) -> Any:
        """The container itself if it is a copy already, else a copy of it."""
        if id(value) in self._own:
            return value
        copy = value.copy()
        self._own[id(copy)] = copy
        return copy


class Editing:
    """Collects the patch of one object; `document` shows it with all edits so far."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._copy = _Copy(document)
        self.operations: list[Operation] = []

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = self._copy.document
        return document

    def set(self, path: Path, value: Any) -> None:
        """Set or replace a field, and create the objects above it."""
        at: Any = self.document
        for depth, key in enumerate(path[:-1]):
            at = _member(at, key)
            if at is None:
                self._do(path[: depth + 1], _nested(path[depth + 1 :], value))
                return
        self._do(path, value)

    def append(self, path: Path, value: Any) -> None:
        """Add to the end of a list, which is created if it is absent."""
        at: Any = self.document
        for key in path:
            at = _member(at, key)
        if at is None:
            self.set(path, [value])
        elif isinstance(at, list):
            self._record("add", [*path, len(at)], value)
        else:
            raise BadInput(f"{pointer(path)} is a {type(at).__name__}, not a list")

    def remove(self, path: Path) -> None:
        """Remove a field, which must exist."""
        self._record("remove", path, msgspec.UNSET)

    def _do(self, path: Path, value: Any) -> None:
        above: Any = self.document
        for key in path[:-1]:
            above = _member(above, key)
        exists = isinstance(above, list) or (isinstance(above, dict) and path[-1] in above)
        self._record("replace" if exists else "add", path, value)

    def _record(self, op: Literal["add", "replace", "remove"], path: Path, value: Any) -> None:
        operation = Operation(op=op, path=pointer(path), value=value)
        self._copy.do(operation)
        self.operations.append(operation)


def _nested(path: Path, value: Any) -> Any:
    for key in reversed(path):
        if isinstance(key, int):
            raise BadInput(f"there is no entry {key}")
        value = {key: value}
    return value


def _member(value: Any, key: str | int) -> Any:
    """A member of an object, None if it is absent; or an entry of a list, which must exist."""
    if isinstance(value, dict) and isinstance(key, str):
        return value.get(key)
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        if value[key] is None:
            raise BadInput(f"entry {key} is null")
        return value[key]
    raise BadInput(f"there is no {key!r} in a {type(value).__name__}")


def _whole(value: Any, operation: Operation) -> Any:
    if operation.op == "remove":
        raise BadInput("the whole document cannot be removed")
    if operation.op == "test" and not _equal(value, operation.value):
        raise BadInput("the value is different")
    return operation.value


def _index(key: str) -> int:
    if not (key.isascii() and key.isdigit()) or (len(key) > 1 and key[0] == "0") or len(key) > 9:
        raise BadInput(f"{key[:100]!r} is not a list index")
    return int(key)


def _equal(one: Any, other: Any) -> bool:
    """Equal as JSON: to Python, true equals 1."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
