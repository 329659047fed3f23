"""Reads YAML files of Fettle's own: the settings here, the rule tables in `fettle/health`.

Unknown keys are refused, at any depth, and errors say where the file is wrong.
`fettle/api/documents.py` reads manifests and snapshots.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml
from yaml.constructor import ConstructorError

from fettle.api import describe_error, suggest_field
from fettle.config.settings import Settings
from fettle.model import RuleSeverity, SettingsError

_LONGEST = 500
_REMOVED = {
    ("webhook", "mode"): "`mode: audit` is now `mode: observe` at the top of the file, with "
    "`webhook: {events: true}` for its Events; instead of `enforce` write nothing",
}
"""What to write instead of settings that there were until the last version."""

_RENAMED = {("health", "restlessSeconds"): "recurringSeconds"}
"""Settings that had another name until the last version. The next version knows it no more."""


def load_settings(path: Path | None) -> Settings:
    """The settings in a YAML file, or the defaults without one. Raises SettingsError with file and
    field."""
    if path is None:
        return Settings()
    try:
        data: Any = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"settings file {path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"settings file {path}: invalid YAML: {error}") from error
    if removed := _removed_setting(data):
        raise SettingsError(f"settings file {path}: {removed}")
    _rename_settings(data)
    try:
        settings = msgspec.convert(_with_off(data) if data is not None else {}, Settings)
    except msgspec.ValidationError as error:
        problem = describe_error(error, Settings)
        raise SettingsError(f"settings file {path}: {_one_line(problem)}") from error
    for at, field in _ignored_fields(data, msgspec.to_builtins(settings), ""):
        meant = suggest_field(Settings, at, field)
        problem = f"Object contains unknown field ${at}.{field}{meant}"
        raise SettingsError(f"settings file {path}: {_one_line(problem)}")
    return settings


def _removed_setting(data: Any) -> str:
    """Which setting there is no more, and what to write instead; "" if there is none."""
    for (section, setting), instead in _REMOVED.items():
        given = data.get(section) if isinstance(data, dict) else None
        if isinstance(given, dict) and setting in given:
            return f"there is no {section}.{setting} any more: {instead}"
    return ""


def _rename_settings(data: Any) -> None:
    for (section, former), name in _RENAMED.items():
        given = data.get(section) if isinstance(data, dict) else None
        if isinstance(given, dict) and former in given and name not in given:
            given[name] = given.pop(former)


def _one_line(text: str) -> str:
    """Keys in a file may contain line breaks and have any length."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _with_off(data: Any) -> Any:
    """Restores `Off` as the severity of rules: unquoted, YAML reads `Off` as false."""
    if not isinstance(data, dict):
        return data
    policies = data.get("policies")
    listed = policies if isinstance(policies, list) else []
    sections = [data.get("lint"), *(p.get("validation") for p in listed if isinstance(p, dict))]
    for section in sections:
        rules: Any = section.get("rules") if isinstance(section, dict) else None
        if isinstance(rules, dict):
            rules.update({rule: RuleSeverity.OFF.value for rule in rules if rules[rule] is False})
    return data


def _ignored_fields(given: Any, read: Any, path: str) -> Iterator[tuple[str, str]]:
    """Fields that decoding ignored, each with the path of its object. A policy in the cluster may
    have newer fields, but in this file an unknown field is a mistake."""
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            if key not in read:
                yield path, str(key)
            else:
                yield from _ignored_fields(value, read[key], f"{path}.{key}")
    elif isinstance(given, list) and isinstance(read, list | tuple):
        for index, (value, kept) in enumerate(zip(given, read, strict=False)):
            yield from _ignored_fields(value, kept, f"{path}[{index}]")


_MAX_QUOTED = 40


def parse_yaml(text: str) -> Any:
    """The value of a YAML document, None if it is empty. Raises ValueError with one sentence."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (it is a SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise ValueError(f"{where}{_joined_lines(problem)}") from error
    except yaml.YAMLError as error:
        problem = str(error).replace('in "<unicode string>", ', "")
        raise ValueError(_joined_lines(problem)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuses repeated keys, of which YAML would silently keep the last."""
        made: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in made.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    problem = f"{key.value[:_MAX_QUOTED]!r} is given twice"
                    raise ConstructorError(None, None, problem, key.start_mark)
                seen.add((key.tag, key.value))
        return made

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Reports invalid scalars as errors in the file, such as a date that does not exist."""
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, str):
                value.encode()
        except UnicodeEncodeError as error:
            raise ConstructorError(
                None, None, f"{value!r} contains an invalid character", node.start_mark
            ) from error
        except (ValueError, KeyError, IndexError) as error:
            short = str(node.value)[:_MAX_QUOTED]
            raise ConstructorError(
                None, None, f"{short!r} is not what it looks like; quote it", node.start_mark
            ) from error
        return value


def _joined_lines(text: str) -> str:
    return " ".join(text.split())
