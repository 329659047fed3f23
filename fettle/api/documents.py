"""Reads the objects in YAML or JSON text, each with its line. Bounded in depth and in what aliases
add. Pure; knows nothing of kinds.

A scalar means what it means to kubectl, whose reader is sigs.k8s.io/yaml (goyaml.v2/resolve.go and
the keys in yaml.go): timestamps stay text, y is true, and every key of a map is text. Other readers
and writers have y as text: what they write without quotes the API server refuses where text is due.
"""

import json
import re
from base64 import b64decode
from contextlib import suppress
from functools import lru_cache
from math import isfinite, isnan
from struct import pack
from typing import Any, NamedTuple, NoReturn

import msgspec
import yaml

from fettle.api.decoding import decode_lenient, mend
from fettle.model import SnapshotError

try:
    from yaml import CSafeLoader as _Parser
except ImportError:  # PyYAML without libyaml does the same, ten times slower
    from yaml import SafeLoader as _Parser  # type: ignore[assignment]

DEEPEST = 100
"""Levels of nesting; Kubernetes' own objects have about twenty."""
ALIASED_BYTES = 4 * 1024 * 1024
"""How much text aliases may add: more than any object in a cluster has."""

_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_LONGEST_PLAIN = 64  # a longer text is no number; also keeps the cache small
_BYTE = re.compile(r"\(byte (\d+)\)")
_MOST_WHOLE = 1e21  # Go writes a larger float with an exponent
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE"), True),
    **dict.fromkeys(("on", "On", "ON", "y", "Y"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE"), False),
    **dict.fromkeys(("off", "Off", "OFF", "n", "N"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_BASES = {"0x": 16, "0o": 8, "0b": 2}
_DIGITS, _IN_FLOATS = frozenset("0123456789"), frozenset("0123456789.eE+-")
_COLLECTIONS = {"map": ("map", "set"), "seq": ("seq", "omap", "pairs")}
"""Standard tags of what is read as a map or list."""
_TYPES = {"null": (type(None),), "bool": (bool,), "int": (int,), "float": (int, float)}
_SINGLE_DIGITS = 9
"""That many tell any two numbers of 32 bits apart."""


class LocatedObject(NamedTuple):
    """A value that claims to be an object, and where it stands ("line 12", "item 3")."""

    where: str
    value: Any


def objects_of_json(text: bytes) -> list[LocatedObject]:
    """The objects of a JSON file; raises SnapshotError with line and reason."""
    try:
        value = decode_lenient(_ANY, text)
    except msgspec.ValidationError:
        value = _with_any_numbers(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SnapshotError(f"{_line_of(text, str(error))}invalid JSON: {error}") from error
    return _flattened(value, "line 1", [])


def _with_any_numbers(text: bytes) -> Any:
    """Read JSON with numbers that are too large, as text. Only the objects that have them shall be
    unreadable, and only where those numbers matter."""

    def number(digits: str) -> float | str:
        return value if isfinite(value := float(digits)) else digits

    def whole(digits: str) -> int | str:
        return int(digits) if len(digits) <= _LONGEST_PLAIN else digits

    return json.loads(mend(text), parse_float=number, parse_int=whole)


def objects_of_yaml(text: bytes) -> list[LocatedObject]:
    """The objects of all documents of a YAML file; raises SnapshotError with line and reason."""
    try:
        return _objects_of_yaml(text)
    except SnapshotError:
        if not text.lstrip().startswith((b"{", b"[")):
            raise
        # JSON is YAML but for its escapes of surrogate pairs, which are no YAML.
        with suppress(SnapshotError):
            return objects_of_json(text)
        raise


def _objects_of_yaml(text: bytes) -> list[LocatedObject]:
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_Parser):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise SnapshotError(f"{where}invalid YAML: {' '.join(reason.split())}") from error
    except yaml.YAMLError as error:
        raise SnapshotError(f"invalid YAML: {' '.join(str(error).split())}") from error
    if not builder.documents:
        raise SnapshotError("it contains no object")
    return builder.found


def _flattened(value: Any, where: str, lines: list[int]) -> list[LocatedObject]:
    """The object itself, or the items of a list, which may be lists again."""
    kind = value.get("kind") if isinstance(value, dict) else None
    items = value.get("items") if isinstance(value, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(items, list):
        return [LocatedObject(where, value)]
    found: list[LocatedObject] = []
    for i, item in enumerate(items):
        place = f"line {lines[i]}" if i < len(lines) else f"{where}, item {i + 1}"
        if isinstance(item, dict) and kind != "List":
            # A typed list, as the API server sends it: its items do not repeat their kind.
            item = {"kind": kind.removesuffix("List"), "apiVersion": value.get("apiVersion")} | item
        found += _flattened(item, place, [])
    return found


def _line_of(text: bytes, message: str) -> str:
    """The line where the problem was noticed; truncation is noticed at the end."""
    at = _BYTE.search(message)
    line = text.count(b"\n", 0, int(at[1]) if at else len(text.rstrip())) + 1
    return f"line {line}: "


class _Open:
    """A sequence or mapping under construction. `size` counts text, aliased text included."""

    __slots__ = ("anchor", "has_key", "key", "line", "merged", "merges", "size", "value")

    def __init__(self, value: list[Any] | dict[Any, Any], event: Any) -> None:
        self.value = value
        self.anchor: str | None = event.anchor
        self.line: int = _line(event)
        self.size = 1
        self.key: Any = None
        self.has_key = False
        self.merges = False
        self.merged: list[Any] = []


class _Builder:
    """Takes the parser's events one by one; `found` are the objects of the documents that ended."""

    # PyYAML's own builder recurses, so deep nesting would end the process; and it does not pause
    # within a document.

    def __init__(self) -> None:
        self.found: list[LocatedObject] = []
        self.documents = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._aliased = 0
        self._item_lines: list[int] = []

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            size, line = len(event.value) + 1, _line(event)
            self._add(scalar_of(event), size, event, line, event.anchor)
        elif isinstance(event, yaml.MappingStartEvent):
            self._start({}, "map", event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._start([], "seq", event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end(event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._anchors, self._item_lines = {}, []

    def _start(self, value: list[Any] | dict[Any, Any], name: str, event: Any) -> None:
        tags = (f"{_TAG}{tag}" for tag in _COLLECTIONS[name])
        if event.tag not in (None, "!", *tags):
            _refuse(event, f"the tag {event.tag} is not allowed in a manifest")
        self._open.append(_Open(value, event))
        if event.anchor:
            self._anchors.pop(event.anchor, None)  # no alias within itself may refer to it
        if len(self._open) > DEEPEST:
            _refuse(event, f"it is nested more than {DEEPEST} levels deep")

    def _end(self, event: Any) -> None:
        done = self._open.pop()
        value = done.value
        if isinstance(value, dict):
            for more in done.merged:  # own keys win
                value = more | value
        self._add(value, done.size, event, done.line, done.anchor)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            _refuse(event, f"the alias *{event.anchor} refers to nothing, or to what contains it")
        value, size = self._anchors[event.anchor]
        self._aliased += size
        if self._aliased > ALIASED_BYTES:
            _refuse(event, f"its aliases expand to more than {ALIASED_BYTES} bytes")
        self._add(value, size, event, _line(event), None)

    def _add(self, value: Any, size: int, event: Any, line: int, anchor: str | None) -> None:
        """Put a finished value where it belongs."""
        if anchor:
            self._anchors[anchor] = (value, size)
        if not self._open:
            self._document(value, line)
            return
        into = self._open[-1]
        into.size += size
        if isinstance(into.value, list):
            into.value.append(value)
            if len(self._open) == 2 and self._open[0].key == "items":
                self._item_lines.append(line)
        else:
            _put(into, into.value, value, event)

    def _document(self, value: Any, line: int) -> None:
        if value is not None:  # a trailing `---` makes an empty document
            self.documents += 1
            self.found += _flattened(value, f"line {line}", self._item_lines)


def _put(into: _Open, mapping: dict[Any, Any], value: Any, event: Any) -> None:
    """Take the next key of a mapping, or the value of the key before."""
    if not into.has_key:
        if isinstance(value, list | dict):
            _refuse(event, "a key must be a scalar")
        key = as_key(value)
        if key is None:
            _refuse(event, f"a key must be text, and is {'null' if value is None else 'too large'}")
        into.key, into.has_key, into.merges = key, True, _is_merge(event)
        return
    into.has_key = False
    if not into.merges:
        mapping[into.key] = value
        return
    merged = value if isinstance(value, list) else [value]
    if not all(isinstance(more, dict) for more in merged):
        _refuse(event, "only mappings can be merged with <<")
    into.merged += merged


def _is_merge(event: Any) -> bool:
    """Whether a key is `<<` without quotes; in quotes it is an ordinary key."""
    plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
    return bool(plain and event.value == _MERGE)


def scalar_of(event: Any) -> Any:  # noqa: RET503
    """The value that a scalar stands for; raises SnapshotError if it does not match its tag."""
    if event.tag in (None, "!"):
        return _plain(event.value) if event.implicit[0] else event.value
    name = event.tag.removeprefix(_TAG)
    if name in ("str", "timestamp"):
        return event.value
    if name == "binary":  # kubectl decodes it, also where base64 is due
        text = "".join(event.value.split())
        with suppress(ValueError):
            return b64decode(text, validate=True).decode(errors="replace")
    elif name not in _TYPES:
        _refuse(event, f"the tag {event.tag} is not allowed in a manifest")
    elif type(value := _plain(event.value)) in _TYPES[name]:
        return value
    _refuse(event, f"{event.value[:40]!r} does not match its tag")


def _plain(text: str) -> Any:
    return text if len(text) > _LONGEST_PLAIN else _resolved(text)


@lru_cache(maxsize=16384)
def _resolved(text: str) -> Any:
    """The value of text without quotes: null, a bool, a number, else itself."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == "." or text[0] in "+-" or text[0] in _DIGITS:
        number = _number(text.replace("_", "") if text[0] != "." else text)
        return text if number is None else number
    return text


def _number(text: str) -> int | float | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    base = _BASES.get(digits[:2].lower(), 0)
    if base:
        digits = digits[2:]
    else:
        base = 8 if digits.startswith("0") and len(digits) > 1 else 10
    if digits.isascii() and digits.isalnum():
        with suppress(ValueError):
            whole = int(digits, base)
            return -whole if text.startswith("-") else whole
    if not _IN_FLOATS.issuperset(text):
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    if not isfinite(number):
        return None
    # What is written with a point stays a float, so that it can be shown as it was written.
    is_whole = "." not in text and number.is_integer() and abs(number) < _MOST_WHOLE
    return int(number) if is_whole else number


def as_key(value: Any) -> str | None:
    """A scalar as a key, which is text in JSON; None if kubectl refuses it as a key."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if -(2**63) <= value < 2**63 else None
    return _single(value) if isinstance(value, float) else None


def _single(value: float) -> str:
    """As Go writes a float of 32 bits, with as few digits as tell it apart (format g)."""
    if isnan(value):
        return ".nan"
    try:
        wanted = pack("<f", value)
    except OverflowError:
        return ".inf" if value > 0 else "-.inf"
    if not isfinite(value):
        return ".inf" if value > 0 else "-.inf"
    shown = ""
    for places in range(_SINGLE_DIGITS):
        shown = f"{value:.{places}e}"
        if pack("<f", float(shown)) == wanted:
            break
    mantissa, _, exponent = shown.partition("e")
    if not -4 <= int(exponent) < 6:
        return shown
    places = len(mantissa.lstrip("-").replace(".", "")) - 1
    return f"{float(shown):.{max(places - int(exponent), 0)}f}"


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _refuse(event: Any, reason: str) -> NoReturn:
    raise SnapshotError(f"line {_line(event)}: {reason}")
