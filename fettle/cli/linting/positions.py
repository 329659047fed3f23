"""The line on which a field of an object stands, found by going through the file's YAML events
once more; JSON is YAML too. Only asked where there is something to report.
"""

import re
from functools import lru_cache
from typing import NamedTuple

import yaml

from fettle.cli.linting.files import Document
from fettle.lint import below

try:
    from yaml import CSafeLoader as _Parser
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _Parser  # type: ignore[assignment]

_WHERE = re.compile(r"line (\d+)((?:, item \d+)*)")
_ITEM = re.compile(r"item (\d+)")


def line_of(document: Document, path: str) -> int:
    """The line of the field, or of what is nearest above it where the field is absent."""
    match = _WHERE.fullmatch(document.where)
    if match is None:
        return 1
    start = int(match[1])
    lines = _lines(document.text)
    root = lines.roots.get(start)
    if root is None:
        return start
    items = "".join(f".items[{int(item) - 1}]" for item in _ITEM.findall(match[2]))
    whole = f"{root}{items}.{path}"
    while whole != root and whole not in lines.of:
        whole = _above(whole)
    return lines.of.get(whole, start)


def _above(path: str) -> str:
    """`#0.a.b[x.y]` → `#0.a.b` → `#0.a` → `#0`."""
    return path[: path.rindex("[")] if path.endswith("]") else path.rpartition(".")[0]


class _Lines(NamedTuple):
    """`of`: lines by path, which begins with the number of the document (`#0.spec`). `roots`: the
    path of the first mapping that begins on a line."""

    of: dict[str, int]
    roots: dict[int, str]


@lru_cache(maxsize=2)
def _lines(text: bytes) -> _Lines:
    lines = _Lines({}, {})
    stack: list[_Level] = []
    documents = 0
    try:
        for event in yaml.parse(text, Loader=_Parser):
            if isinstance(event, yaml.DocumentStartEvent):
                stack = [_Level(f"#{documents}")]
                documents += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
            elif isinstance(event, yaml.NodeEvent):
                line = event.start_mark.line + 1 if event.start_mark else 0
                path = stack[-1].take(event, line, lines.of)
                if path is not None and isinstance(event, yaml.CollectionStartEvent):
                    is_list = isinstance(event, yaml.SequenceStartEvent)
                    stack.append(_Level(path, is_list=is_list))
                    if not is_list:
                        lines.roots.setdefault(line, path)
    except (yaml.YAMLError, RecursionError):
        pass  # it was read before; a line less is no reason to fail
    return lines


class _Level:
    """One document, mapping or sequence that is open."""

    def __init__(self, path: str, *, is_list: bool | None = None) -> None:
        self._path = path
        self._is_list = is_list
        self._index = 0
        self._key: str | None = None

    def take(self, event: yaml.NodeEvent, line: int, lines: dict[str, int]) -> str | None:
        """The path of a value, whose line is noted; None for a key."""
        if self._is_list is None:  # the document itself
            path = self._path
        elif self._is_list:
            path = f"{self._path}[{self._index}]"
            self._index += 1
        elif self._key is None:
            self._key = event.value if isinstance(event, yaml.ScalarEvent) else ""
            lines[below(self._path, self._key)] = line
            return None
        else:
            path, self._key = below(self._path, self._key), None
        lines.setdefault(path, line)
        return path
