"""Changes what a YAML document says, and keeps each byte that need not change: comments, order,
quotes, line breaks.

PyYAML tells where each value stands. Text is inserted, replaced and cut out there, and the result
is read again: it must say exactly what was wanted.
"""

import json
from collections.abc import Iterator
from typing import Any

import yaml

from fettle.api import objects_of_json, objects_of_yaml
from fettle.model import SnapshotError

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

_WIDE = 10**9
_BYTE_ORDER_MARK = "\ufeff"


class Commented(dict[str, Any]):
    """A mapping that is written as this `text`, with its comments, where block style is used."""

    def __init__(self, text: str) -> None:
        super().__init__(value_of(text))
        self.text = text


def value_of(text: str) -> Any:
    """What the only document says; raises SnapshotError with line and reason."""
    content = text.encode()
    found = objects_of_yaml(content)
    if content.lstrip().startswith(b"{"):
        _check_json(content)
    if len(found) > 1:
        raise SnapshotError(
            f"it has {len(found)} documents, of which kube-scheduler reads only the first: put "
            "each into a file of its own"
        )
    if not found:
        raise SnapshotError("it contains no object")
    node = _node_of(text)
    if isinstance(node, yaml.ScalarNode) and isinstance(found[0].value, dict):
        raise SnapshotError("its first document is empty, and kube-scheduler reads no other")
    for line, key in _repeated(node):
        raise SnapshotError(f"line {line}: {key} is there twice: keep one of the two")
    return found[0].value


def _check_json(content: bytes) -> None:
    try:
        objects_of_json(content)
    except SnapshotError as error:
        raise SnapshotError(
            f"it begins with {{, so kube-scheduler reads it as JSON, and {error}"
        ) from error


def rewritten(text: str, wanted: Any) -> str:
    """The document with the fewest changes after which it says what is `wanted`; raises
    SnapshotError if it is written in a way that cannot be changed so."""
    said = text.removeprefix(_BYTE_ORDER_MARK)  # which PyYAML does not count
    edits = _Edits(said)
    try:
        edits.change(_node_of(said), value_of(said), wanted)
        result = text[: len(text) - len(said)] + edits.applied()
        if value_of(result) == wanted:
            return result
    except (SnapshotError, ValueError, IndexError):
        pass  # nothing stands where it was looked for
    raise SnapshotError(
        "it cannot be changed without changing other things too, such as where anchors (&) and "
        "aliases (*) are used: write these out"
    )


def _node_of(text: str) -> Any:
    try:
        return next(yaml.compose_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise SnapshotError(f"invalid YAML: {' '.join(str(error).split())}") from error


def _repeated(node: Any) -> Iterator[tuple[int, str]]:
    """The line and name of each key that its mapping has twice: kube-scheduler refuses those."""
    seen: set[int] = set()
    left = [node]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, yaml.ScalarNode):
            continue
        seen.add(id(one))
        if isinstance(one, yaml.SequenceNode):
            left += one.value
            continue
        keys: set[str] = set()
        for key, value in one.value:
            if key.value in keys:
                yield key.start_mark.line + 1, key.value
            keys.add(key.value)
            left.append(value)


class _Edits:
    """Places in a text, and what is to stand there instead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._break = "\r\n" if "\r\n" in text else "\n"
        self._made: list[tuple[int, int, str]] = []

    def applied(self) -> str:
        pieces: list[str] = []
        done = 0
        for start, end, instead in sorted(self._made, key=lambda edit: edit[0]):
            pieces += [self._text[done:start], instead]
            done = max(done, end)
        return "".join(pieces) + self._text[done:]

    def change(self, node: Any, old: Any, new: Any) -> None:
        """Have a node that says `old` say `new`, which is a mapping or list with content, too."""
        if isinstance(node, yaml.MappingNode):
            self._change_mapping(node, old, new)
        else:
            self._change_list(node, old, new)

    def _change_mapping(self, node: Any, old: dict[str, Any], new: dict[str, Any]) -> None:
        for key, value in node.value:
            name = key.value
            if name not in old or name not in new or old[name] == new[name]:
                continue  # `<<` and numbers are not in `old` as they are written
            if _has_content(old[name]) and isinstance(new[name], type(old[name])):
                self.change(value, old[name], new[name])
            else:
                self._put(node, key, value, new[name])
        gone = old.keys() - new.keys()
        self._cut(node, [i for i, (key, _) in enumerate(node.value) if key.value in gone])
        added = {name: value for name, value in new.items() if name not in old}
        if added and node.flow_style:
            content = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in added.items())
            self._insert(node.value[-1][1].end_mark.index, f", {content}")
        elif added:
            self._insert_lines(self._after(node), _lines(added), _column(node))

    def _change_list(self, node: Any, old: list[Any], new: list[Any]) -> None:
        if len(new) < len(old):
            left, gone = list(new), []
            for i, one in enumerate(old):
                if left and one == left[0]:
                    del left[0]
                else:
                    gone.append(i)
            self._cut(node, gone)
            return
        for item, before, after in zip(node.value, old, new, strict=False):
            if before != after:
                self.change(item, before, after)
        added = new[len(old) :]
        if added and node.flow_style:
            content = "".join(f", {json.dumps(one)}" for one in added)
            self._insert(node.value[-1].end_mark.index, content)
        elif added:
            self._insert_lines(self._after(node), _lines(added), _column(node))

    def _put(self, mapping: Any, key: Any, value: Any, new: Any) -> None:
        """Replace a scalar, or what is empty."""
        if mapping.flow_style or not _has_content(new):
            said = json.dumps(new) if mapping.flow_style else _scalar(new)
            space = " " if value.start_mark.index == value.end_mark.index else ""
            self._made.append((value.start_mark.index, value.end_mark.index, space + said))
            return
        colon = self._text.index(":", key.end_mark.index) + 1
        self._made.append((colon, value.end_mark.index, ""))
        line_end = self._line_end(value.end_mark.index)
        self._insert_lines(line_end, _lines(new), _column(mapping) + 2)

    def _cut(self, node: Any, places: list[int]) -> None:
        """Take pairs out of a mapping, or items out of a list; some are left."""
        parts = [one if isinstance(one, tuple) else (one, one) for one in node.value]
        for cut_before, i in enumerate(places):
            first, last = parts[i]
            start = int(first.start_mark.index)
            if isinstance(node, yaml.SequenceNode) and not node.flow_style:
                start = self._text.rindex("-", 0, start)
            if node.flow_style and cut_before < i:
                self._made.append((parts[i - 1][1].end_mark.index, last.end_mark.index, ""))
            elif node.flow_style or not self._begins_line(start):
                self._made.append((start, parts[i + 1][0].start_mark.index, ""))
            else:
                self._cut_lines(start, self._after(last, _column(node)))

    def _cut_lines(self, start: int, end: int) -> None:
        """The lines from the one of `start` to the one that ends at `end`."""
        before = self._text.rfind("\n", 0, start)
        if before < 0:
            self._made.append((0, end + len(self._break), ""))
        else:
            self._made.append((self._line_end(before), end, ""))

    def _insert(self, at: int, content: str) -> None:
        self._made.append((at, at, content))

    def _insert_lines(self, at: int, lines: list[str], column: int) -> None:
        self._insert(at, "".join(f"{self._break}{' ' * column}{line}" for line in lines))

    def _after(self, node: Any, column: int | None = None) -> int:
        """The end of the line in which a block ends, with the comments below that are indented
        deeper than it."""
        column = _column(node) if column is None else column
        end = self._line_end(self._end(node))
        while True:
            next_end = self._line_end(end + len(self._break))
            line = self._text[end:next_end].lstrip("\r\n")
            if not line.lstrip().startswith("#") or len(line) - len(line.lstrip()) <= column:
                return end
            end = next_end

    def _end(self, node: Any) -> int:
        """Where the last character of a node is over; a block's own mark is at what comes next."""
        if isinstance(node, yaml.MappingNode) and not node.flow_style:
            return self._end(node.value[-1][1])
        if isinstance(node, yaml.SequenceNode) and not node.flow_style:
            return self._end(node.value[-1])
        start = int(node.start_mark.index)
        return start + len(self._text[start : node.end_mark.index].rstrip("\r\n"))

    def _line_end(self, at: int) -> int:
        end = self._text.find("\n", at)
        end = len(self._text) if end < 0 else end
        return end - 1 if self._text[end - 1 : end] == "\r" else end

    def _begins_line(self, at: int) -> bool:
        return not self._text[self._text.rfind("\n", 0, at) + 1 : at].strip()


def _column(node: Any) -> int:
    return int(node.start_mark.column)


def _has_content(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _lines(value: Any) -> list[str]:
    """In block style, without indentation."""
    if isinstance(value, Commented):
        return value.text.splitlines()
    lines: list[str] = []
    if isinstance(value, dict):
        for key, one in value.items():
            if _has_content(one):
                lines += [f"{_scalar(key)}:", *(f"  {line}" for line in _lines(one))]
            else:
                lines.append(f"{_scalar(key)}: {_scalar(one)}")
        return lines
    if isinstance(value, list):
        for one in value:
            first, *others = _lines(one)
            lines += [f"- {first}", *(f"  {line}" for line in others)]
        return lines
    return [_scalar(value)]


def _scalar(value: Any) -> str:
    """Also of what is empty."""
    said = yaml.safe_dump(value, width=_WIDE, allow_unicode=True)
    return said.removesuffix("\n").removesuffix("\n...")
