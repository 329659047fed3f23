"""Manifests from files, folders and standard input, each with where it stands.

Refuses what is too large before reading it; nesting and aliases are bounded by
`fettle.feeds.documents`.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fettle.errors import SnapshotError
from fettle.feeds.documents import Found, objects_of_json, objects_of_yaml

LARGEST_BYTES = 16 * 1024 * 1024
STDIN = "-"
_SUFFIXES = (".yaml", ".yml", ".json")


class Document(NamedTuple):
    """One object: `where` as `documents.Found` has it, `text` the whole file it stands in."""

    file: str
    where: str
    text: bytes
    object: dict[str, Any]


def read(names: Iterable[str]) -> list[Document]:
    """All Kubernetes objects in these files; raises SnapshotError with file, line and reason.

    Of a folder, all YAML and JSON files in it; `-` is standard input. What has no kind is no
    object and passed over, as a Helm chart's values are.
    """
    return [document for file in _files(names) for document in _documents(file)]


def _files(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if name != STDIN and Path(name).is_dir():
            found = (p for p in sorted(Path(name).rglob("*")) if p.suffix in _SUFFIXES)
            yield from (str(path) for path in found if path.is_file())
        else:
            yield name


def _documents(name: str) -> Iterator[Document]:
    file = "<stdin>" if name == STDIN else name
    try:
        text = _text(name)
        for found in _objects(text):
            if isinstance(found.value, dict) and isinstance(found.value.get("kind"), str):
                yield Document(file, found.where, text, found.value)
    except SnapshotError as error:
        raise SnapshotError(f"{file}: {error}") from error
    except OSError as error:
        raise SnapshotError(f"{file}: {error.strerror}") from error


def _text(name: str) -> bytes:
    if name == STDIN:
        text = sys.stdin.buffer.read(LARGEST_BYTES + 1)
    else:
        with Path(name).open("rb") as file:
            text = file.read(LARGEST_BYTES + 1)
    if len(text) > LARGEST_BYTES:
        raise SnapshotError(f"it is larger than {LARGEST_BYTES} bytes; split it into several files")
    return text


def _objects(text: bytes) -> list[Found]:
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            return objects_of_json(text)
        except SnapshotError:
            return objects_of_yaml(text)  # flow style looks alike
    return objects_of_yaml(text) if text.strip() else []
