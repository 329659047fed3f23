"""Reads manifests from files, folders and standard input, finds the line of each field, and says
what is wrong with the files, not with one object as it was read: keys that stand twice, and one
object in two places.

A file that is too large or cannot be read is skipped with a sentence. `fettle.cluster.feeds` bounds
nesting and aliases. Kustomizations make objects of several files, so less is said beside them.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from errno import ENOENT
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from fettle.api import (
    MAX_JSON_DEPTH,
    LocatedObject,
    as_key,
    objects_of_json,
    objects_of_yaml,
    scalar_of,
    shallow,
)
from fettle.lint import (
    COMPLETENESS,
    REPEATED_KEY,
    SAME_OBJECT,
    Field,
    Finding,
    Manifest,
    Severity,
    below,
    looks_like_object,
)
from fettle.model import SnapshotError

_DIRECTIVE = ".$"
"""A `$` begins the names of fields that tell kustomize how to merge."""


try:
    from yaml import CSafeLoader as _Parser
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _Parser  # type: ignore[assignment]

LARGEST_BYTES = 16 * 1024 * 1024
STDIN = "-"
_STDIN_NAME = "<stdin>"
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_DIRECTIVES = (
    *(b"$%s%s" % (name, end) for name in (b"patch", b"retainKeys") for end in (b":", b'":', b"':")),
    *(b"$deleteFromPrimitiveList/", b"$setElementOrder/"),
)
"""All of apimachinery's util/strategicpatch."""
_SHOWN = 60
_SUFFIXES = (".yaml", ".yml", ".json")


class Document(NamedTuple):
    """One object: `where` is the place as `LocatedObject` has it, `text` the whole file. Of what is
    in a cluster, `file` is its path there, and `text` is empty."""

    file: str
    where: str
    text: bytes
    object: dict[str, Any]

    @property
    def content(self) -> str:
        return self.text.decode(errors="replace")

    @property
    def may_be_patch(self) -> bool:
        """Whether kustomize may merge it into another object, or complete it: it says how, or a
        kustomization is beside it or one folder above, or one further up names the file."""
        if any(directive in self.text for directive in _DIRECTIVES):
            return True
        if self.file == _STDIN_NAME or not self.text:
            return False
        path = Path(self.file).absolute()
        near = (path.parent, path.parent.parent)
        return any(
            folder in near or path.relative_to(folder).as_posix() in said
            for folder in path.parents
            if (said := _kustomization(folder)) is not None
        )


class ReadManifests(NamedTuple):
    """`rules` are files for `health.rulesFile`. `problems` are sentences about files that cannot be
    read, `notes` about skipped ones."""

    documents: list[Document]
    rules: list[Document]
    problems: list[str]
    notes: list[str]


def read(names: Iterable[str], *, skip_others: bool = False) -> ReadManifests:
    """All Kubernetes objects in these files.

    Of a folder, all YAML and JSON files in it are read; `-` is standard input. A file that is named
    twice is read once. A document without a kind may be a rules file. Else it is a problem in a
    file that is named, unless `skip_others`; in a folder it is skipped, such as a Helm chart's
    values. So are the chart's
    templates, which only Helm can read. That nothing is found is a problem, too, unless
    `skip_others`: who checks nothing should not think that all is well.
    """
    into = ReadManifests([], [], [], [])
    templates: Counter[str] = Counter()
    seen: set[str] = set()
    names = tuple(names)
    checked = () if skip_others else names
    for name in _files(names):
        path = name if name == STDIN else os.path.realpath(name)
        if path in seen:
            continue
        seen.add(path)
        if name != STDIN and (chart := _chart(name)):
            templates[chart] += 1
            continue
        try:
            _read_file(name, into, named=name in checked)
        except SnapshotError as error:
            into.problems.append(str(error))
    for chart, count in templates.items():
        into.notes.append(
            f"{chart}: {count} Helm chart templates are skipped; to lint their output: "
            f"helm template {chart} | fettle lint -"
        )
    if not skip_others and (nothing := _why_nothing(names, into, templates)):
        into.problems.append(nothing)
    return into


def _why_nothing(names: Sequence[str], read: ReadManifests, charts: Collection[str]) -> str:
    """Why nothing was found in these files, and what to do; "" if something was."""
    if not names or read.documents or read.rules or read.problems:
        return ""
    if charts:
        return "nothing else was found, so nothing was checked: lint what Helm makes of the chart"
    folders = [name for name in names if name != STDIN and Path(name).is_dir()]
    if len(folders) == len(names) and not any(True for _ in _files(names)):
        return (
            f"{', '.join(folders)}: no file in it ends in {', '.join(_SUFFIXES)}, so nothing was "
            "checked: name the folder or the files of your manifests"
        )
    return (
        f"{', '.join(_STDIN_NAME if name == STDIN else name for name in names)}: no Kubernetes "
        "object in it, so nothing was checked: name files that hold objects, with apiVersion and "
        "kind, or look at what wrote them"
    )


def _kustomization(folder: Path) -> str | None:
    """What the kustomization in a folder says; None if there is none."""
    found = next((folder / name for name in _KUSTOMIZATIONS if (folder / name).is_file()), None)
    try:
        return found.read_text(errors="replace") if found else None
    except OSError:
        return ""  # it is there; what it names is not known


def _chart(name: str) -> str:
    """The Helm chart whose template a file is; "" if it is none."""
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


def _read_file(name: str, into: ReadManifests, *, named: bool) -> None:
    """Raises SnapshotError with file, line and reason. `named`: it must hold objects only."""
    file = _STDIN_NAME if name == STDIN else name
    try:
        text = _text(name)
        found = _objects(text)
    except SnapshotError as error:
        raise SnapshotError(f"{file}: {error}") from error
    except OSError as error:
        there = ": name a file or folder that is there" if error.errno == ENOENT else ""
        raise SnapshotError(f"{file}: {error.strerror}{there}") from error
    for each in found:
        if not_object := _why_no_object(each.value):
            place = f"{file}: {each.where}: {not_object}"
            into.notes.append(f"skipped, since it is not a Kubernetes object: {place}")
        elif isinstance(each.value.get("kind"), str) or looks_like_object(each.value):
            into.documents.append(Document(file, each.where, text, each.value))
        elif Path(file).name in _KUSTOMIZATIONS:
            if named:
                into.notes.append(
                    f"{file}: skipped, since it only says what kustomize makes; to lint that: "
                    f"kubectl kustomize {Path(file).parent} | fettle lint -"
                )
        elif _is_rules_file(each.value, certainly=not named):
            into.rules.append(Document(file, each.where, text, each.value))
        elif named:
            into.problems.append(
                f"{file}: {each.where}: it has no kind, so it is not checked: write apiVersion and "
                "kind, as every Kubernetes object has them"
            )


def _is_rules_file(value: Any, *, certainly: bool) -> bool:
    from fettle.health import is_rules_file  # late: few inputs hold such a file

    return is_rules_file(value, certainly=certainly)


def _why_no_object(value: Any) -> str:
    """What a value is that cannot be an object; "" if it can."""
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
    if all(_is_empty(line) for line in text.splitlines()):
        return []
    try:
        return _parsed(text)
    except SnapshotError as error:
        if b"{{" in text:
            template = "it looks like a template: lint its rendered output instead"
            raise SnapshotError(f"{error}; {template}") from error
        raise


def _is_empty(line: bytes) -> bool:
    """Whether it is blank, a comment, or a document separator."""
    said = line.partition(b"#")[0].strip()
    return said in (b"", b"---", b"...")


def _parsed(text: bytes) -> list[LocatedObject]:
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            found = objects_of_json(text)
        except SnapshotError:
            return objects_of_yaml(text)  # YAML in flow style begins like JSON
        if shallow(text) != text:
            raise SnapshotError(f"it is nested more than {MAX_JSON_DEPTH} levels deep")
        return found
    return objects_of_yaml(text)


# --- the line of a field, from the YAML events of its file; JSON is YAML too

_WHERE = re.compile(r"line (\d+)((?:, item \d+)*)")
_ITEM = re.compile(r"item (\d+)")
_MERGE = "<<"


def line_of(document: Document, path: str) -> int:
    """The line of the field; if it is absent, that of the nearest field above it. 0 if there is no
    file."""
    if not document.text:
        return 0
    lines = _lines(document.text)
    root = _root(document, lines)
    if not root:
        return _first_line(document)
    whole = f"{root}.{path}"
    while whole != root and whole not in lines.of:
        whole = _above(whole)
    return lines.of.get(whole, _first_line(document))


def repeated_keys(document: Document) -> list[tuple[str, int]]:
    """The path of each key that its object has already, and the line where it stands again."""
    lines = _lines(document.text)
    root = _root(document, lines)
    return [
        (path.removeprefix(f"{root}."), line)
        for path, line in lines.repeated
        if root and path.startswith(f"{root}.")
    ]


def _first_line(document: Document) -> int:
    match = _WHERE.fullmatch(document.where)
    return int(match[1]) if match else 1


def _root(document: Document, lines: "_Lines") -> str:
    """The path of the object in its file; "" if it is not found."""
    root = lines.roots.get(_first_line(document), "")
    items = "".join(f".items[{int(item) - 1}]" for item in _ITEM.findall(document.where))
    return f"{root}{items}" if root else ""


def _above(path: str) -> str:
    """`#0.a.b[x.y]` → `#0.a.b` → `#0.a` → `#0`."""
    return path[: path.rindex("[")] if path.endswith("]") else path.rpartition(".")[0]


class _Lines(NamedTuple):
    """`of`: line by path, which begins with the number of the document (`#0.spec`).

    `roots`: by line, the path of the first mapping that begins on it. `repeated`: the path and line
    of each key that its mapping has already.
    """

    of: dict[str, int]
    roots: dict[int, str]
    repeated: list[tuple[str, int]]


@lru_cache(maxsize=2)
def _lines(text: bytes) -> _Lines:
    lines = _Lines({}, {}, [])
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
                path = stack[-1].take(event, line, lines)
                if path is not None and isinstance(event, yaml.CollectionStartEvent):
                    is_list = isinstance(event, yaml.SequenceStartEvent)
                    stack.append(_Level(path, is_list=is_list))
                    if not is_list:
                        lines.roots.setdefault(line, path)
    except (yaml.YAMLError, SnapshotError, RecursionError):
        pass  # the file was read before; a finding without its line is still useful
    return lines


class _Level:
    """A document, mapping or sequence whose end has not come yet."""

    def __init__(self, path: str, *, is_list: bool | None = None) -> None:
        self._path = path
        self._is_list = is_list
        self._index = 0
        self._key: str | None = None
        self._keys: set[str] = set()

    def take(self, event: yaml.NodeEvent, line: int, lines: _Lines) -> str | None:
        """Note the line of a key or value; returns the path of a value, None for a key."""
        if self._is_list is None:  # the document itself
            path = self._path
        elif self._is_list:
            path = f"{self._path}[{self._index}]"
            self._index += 1
        elif self._key is None:
            is_scalar = isinstance(event, yaml.ScalarEvent)
            self._key = (as_key(scalar_of(event)) if is_scalar else "") or ""
            key = below(self._path, self._key)
            if self._key in self._keys and self._key != _MERGE:
                lines.repeated.append((key, line))
            self._keys.add(self._key)
            lines.of[key] = line
            return None
        else:
            path, self._key = below(self._path, self._key), None
        lines.of.setdefault(path, line)
        return path


def mistakes_in_files(
    documents: Sequence[Document], manifests: Sequence[Manifest]
) -> list[list[Finding]]:
    """What is found for each document."""
    found = [
        [_repeated(path, line) for path, line in repeated_keys(document)] for document in documents
    ]
    seen: dict[tuple[str, str, str, str], int] = {}
    for index, (document, manifest) in enumerate(zip(documents, manifests, strict=True)):
        if not manifest.root.text("metadata", "name") or not manifest.kind:
            continue
        namespace = manifest.namespace if manifest.namespaced else ""
        key = (manifest.group, manifest.kind, namespace, manifest.name)
        first = seen.setdefault(key, index)
        if first != index and not _are_variants(document, documents[first]):
            found[index].append(_again(document, documents[first], manifest))
    return found


def _repeated(path: str, line: int) -> Finding:
    field = Field(path, None)
    return REPEATED_KEY.finding(field, f"stands again on line {line}", "leave one of the two out")


def _are_variants(one: Document, other: Document) -> bool:
    """Whether nobody applies both, or it does no harm: of several folders one is chosen, a
    kustomization merges files, and the same Namespace may stand in many."""
    if one.object.get("kind") == "Namespace" and one.object == other.object:
        return True
    return one.may_be_patch or Path(one.file).parent != Path(other.file).parent


def _again(document: Document, first: Document, manifest: Manifest) -> Finding:
    same_file = document.file == first.file
    return SAME_OBJECT.finding(
        manifest.root.at("metadata", "name"),
        f"{first.file}, {first.where}, has the same {manifest.kind}",
        "give one of the two another name, or leave it out",
        severity=None if same_file else Severity.WARN,
    )


def for_patches(found: Sequence[Finding]) -> Iterator[Finding]:
    """The findings for what may be a patch: what is missing may be in what it is merged into."""
    for finding in found:
        if _DIRECTIVE in f".{finding.field}".replace("[", "."):
            continue
        if finding.rule in COMPLETENESS and finding.severity is Severity.DENY:
            message = f"{finding.message}, unless a kustomization adds it"
            yield msgspec.structs.replace(finding, severity=Severity.WARN, message=message)
        else:
            yield finding
