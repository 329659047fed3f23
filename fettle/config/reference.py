"""Writes docs/settings.md: `python -m fettle.config.reference > docs/settings.md`.

Python keeps no docstrings of fields, so they are read from the source.
"""

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from fettle.config import acting, sections, settings, sources
from fettle.config.settings import Settings

_HEAD = """\
# Settings

<!-- Made by `python -m fettle.config.reference > docs/settings.md`; a test checks it. -->

`--settings FILE` names a YAML file with settings, which Fettle reads when it starts and \
[when it changes](upgrading.md#changing-settings). Every setting has a default. A setting \
that does not exist is an error.

```yaml
defaultPolicy: training
health:
  degradedBelow: 0.7
lint:
  rules:
    FTL010: Off
```
"""
_TABLE = "| setting | default | |\n|-|-|-|"

_Section = type[msgspec.Struct]


def reference() -> str:
    """The whole file."""
    docs = _docs_of_fields()
    fields = msgspec.structs.fields(Settings)
    top = [_row(Settings, field, "", docs) for field in fields if not _sections(field.type)]
    parts = [_HEAD, _TABLE, *top, ""]
    for field in fields:
        for section in _sections(field.type):
            about = " ".join((section.__doc__ or "").split())
            rows = _rows(section, f"{field.encode_name}.", docs)
            parts += [f"## {field.encode_name}\n", f"{about}\n", _TABLE, *rows, ""]
    return "\n".join(parts).rstrip() + "\n"


def _rows(section: _Section, prefix: str, docs: dict[str, str]) -> Iterator[str]:
    """A row for each setting of a section, and of the sections in it."""
    for field in msgspec.structs.fields(section):
        yield _row(section, field, prefix, docs)
        for inner in _sections(field.type):
            entry = "" if inner is field.type else "[]"
            yield from _rows(inner, f"{prefix}{field.encode_name}{entry}.", docs)


def _row(
    section: _Section, field: msgspec.structs.FieldInfo, prefix: str, docs: dict[str, str]
) -> str:
    names = (f"{each.__name__}.{field.name}" for each in section.__mro__)  # it may be inherited
    about = next(docs[name] for name in names if name in docs).replace("|", "\\|")
    return f"| `{prefix}{field.encode_name}` | {_default(field)} | {about} |"


def _sections(hint: Any) -> list[_Section]:
    """The section that a setting is, or that each of its entries is."""
    hints = (hint, *get_args(hint))
    return [t for t in hints if isinstance(t, type) and issubclass(t, sections.SettingsSection)]


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if field.required:
        return "required"
    if value is msgspec.NODEFAULT or isinstance(value, msgspec.Struct) or value in (None, "", ()):
        return ""
    if isinstance(value, str):
        return f"`{value}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{json.dumps(value)}`"


def _docs_of_fields() -> dict[str, str]:
    """By class and field (`HealthSettings.rules_file`), the docstring below the field."""
    docs: dict[str, str] = {}
    parts = (sections, sources, acting, settings)
    for node in (n for part in parts for n in ast.parse(inspect.getsource(part)).body):
        if isinstance(node, ast.ClassDef):
            for field, doc in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
                    name = f"{node.name}.{ast.unparse(field.target)}"
                    docs[name] = " ".join(str(ast.literal_eval(doc.value)).split())
    return docs


if __name__ == "__main__":
    sys.stdout.write(reference())
