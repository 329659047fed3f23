"""Manifests from files, folders and standard input, each with where it stands.

Refuses what is too large before reading it, and goes on with the next file; nesting and aliases
are bounded by `fettle.cluster.feeds.documents`.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fettle.cluster.feeds import LocatedObject, objects_of_json, objects_of_yaml
from fettle.model import SnapshotError

LARGEST_BYTES = 16 * 1024 * 1024
STDIN = "-"
_SHOWN = 60
_SUFFIXES = (".yaml", ".yml", ".json")


class Document(NamedTuple):
    """One object: `where` as `documents.Found` has it, `text` the whole file it stands in."""

    file: str
    where: str
    text: bytes
    object: dict[str, Any]


class ReadManifests(NamedTuple):
    """`problems` are sentences about files that cannot be read, `notes` about what was skipped."""

    documents: list[Document]
    problems: list[str]
    notes: list[str]


def read(names: Iterable[str]) -> ReadManifests:
    """All Kubernetes objects in these files.

    Of a folder, all YAML and JSON files in it; `-` is standard input. A file that is named twice is
    read once. What has no kind is not an object and is skipped, such as a Helm chart's values; so
    are the chart's templates, which only Helm can read.
    """
    done = ReadManifests([], [], [])
    templates: Counter[str] = Counter()
    seen: set[str] = set()
    for name in _files(names):
        path = name if name == STDIN else os.path.realpath(name)
        if path in seen:
            continue
        seen.add(path)
        if name != STDIN and (chart := _chart(name)):
            templates[chart] += 1
            continue
        try:
            _read_file(name, done)
        except SnapshotError as error:
            done.problems.append(str(error))
    for chart, count in templates.items():
        done.notes.append(
            f"{chart}: {count} Helm chart templates are skipped; to lint their output: "
            f"helm template {chart} | fettle lint -"
        )
    return done


def _chart(name: str) -> str:
    """The Helm chart of which a file is a template; "" if it is none."""
    for folder in Path(name).absolute().parents:
        if folder.name == "templates" and (folder.parent / "Chart.yaml").is_file():
            chart = str(folder.parent)
            return chart if Path(name).is_absolute() else os.path.relpath(chart)
    return ""


def _files(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if name != STDIN and Path(name).is_dir():
            found = (p for p in sorted(Path(name).rglob("*")) if p.suffix in _SUFFIXES)
            yield from (str(path) for path in found if path.is_file())
        else:
            yield name


def _read_file(name: str, into: ReadManifests) -> None:
    """Raises SnapshotError with file, line and reason."""
    file = "<stdin>" if name == STDIN else name
    try:
        text = _text(name)
        found = _objects(text)
    except SnapshotError as error:
        raise SnapshotError(f"{file}: {error}") from error
    except OSError as error:
        raise SnapshotError(f"{file}: {error.strerror}") from error
    for each in found:
        if strange := _strange(each.value):
            said = f"{file}: {each.where}: {strange}"
            into.notes.append(f"skipped, since it is not a Kubernetes object: {said}")
        elif isinstance(each.value.get("kind"), str):
            into.documents.append(Document(file, each.where, text, each.value))


def _strange(value: Any) -> str:
    """What a value is that cannot be an object, in words; "" for one that can."""
    if isinstance(value, list):
        return "a list"
    if not isinstance(value, dict):
        return repr(value)[:_SHOWN]
    kind = value.get("kind")
    is_list = isinstance(kind, str) and kind.endswith("List") and "items" in value
    return f"a {kind} whose items are not a list" if is_list else ""


def _text(name: str) -> bytes:
    if name == STDIN:
        text = sys.stdin.buffer.read(LARGEST_BYTES + 1)
    else:
        with Path(name).open("rb") as file:
            text = file.read(LARGEST_BYTES + 1)
    if len(text) > LARGEST_BYTES:
        raise SnapshotError(f"it is larger than {LARGEST_BYTES} bytes; split it into several files")
    return text


def _objects(text: bytes) -> list[LocatedObject]:
    if all(_says_nothing(line) for line in text.splitlines()):
        return []
    try:
        return _parsed(text)
    except SnapshotError as error:
        if b"{{" in text:
            template = "it looks like a template: lint its rendered output instead"
            raise SnapshotError(f"{error}; {template}") from error
        raise


def _says_nothing(line: bytes) -> bool:
    """Whether it is blank, a comment, or a mark between documents."""
    said = line.partition(b"#")[0].strip()
    return said in (b"", b"---", b"...")


def _parsed(text: bytes) -> list[LocatedObject]:
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            return objects_of_json(text)
        except SnapshotError:
            return objects_of_yaml(text)  # flow style looks alike
    return objects_of_yaml(text)
