"""Reads the settings from one YAML file: unknown keys are refused, at any depth."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fettle.api import choices
from fettle.config import own_yaml
from fettle.config.settings import Settings
from fettle.model import RuleSeverity, SettingsError

_LONGEST = 500


def load(path: Path | None) -> Settings:
    """The settings in a YAML file, or the defaults; raises SettingsError with file and field."""
    if path is None:
        return Settings()
    try:
        data: Any = own_yaml.value_of(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"settings file {path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"settings file {path}: invalid YAML: {error}") from error
    try:
        settings = msgspec.convert(_with_off(data) if data is not None else {}, Settings)
    except msgspec.ValidationError as error:
        said = choices.describe_error(error, Settings)
        raise SettingsError(f"settings file {path}: {_one_line(said)}") from error
    for field in _passed_over(data, msgspec.to_builtins(settings), "$"):
        said = f"Object contains unknown field {field}"
        raise SettingsError(f"settings file {path}: {_one_line(said)}")
    return settings


def _one_line(text: str) -> str:
    """A file may name its fields with line breaks, and at any length."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _with_off(data: Any) -> Any:
    """The data with `Off` for the severity of rules where YAML read false: unquoted, `Off` is one
    of its words for that."""
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


def _passed_over(given: Any, read: Any, path: str) -> Iterator[str]:
    """Fields that reading left out: a policy in the cluster may have newer ones, here it is a
    mistake."""
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            if key not in read:
                yield f"{path}.{key}"
            else:
                yield from _passed_over(value, read[key], f"{path}.{key}")
    elif isinstance(given, list) and isinstance(read, list | tuple):
        for index, (value, kept) in enumerate(zip(given, read, strict=False)):
            yield from _passed_over(value, kept, f"{path}[{index}]")
