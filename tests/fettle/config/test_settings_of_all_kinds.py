"""Whatever stands in a settings file: settings, or one sentence with the file and the field."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.config.files import load_settings
from fettle.config.settings import Settings
from fettle.model import SettingsError

POLICY = {
    "name": "own",
    "placement": {"minScore": 0.5, "degraded": "Allow", "requires": [{"expression": "true"}]},
    "tolerations": {"notReadySeconds": 45, "devices": [{"key": "a.b/c", "seconds": 60}]},
    "failure": {"failJobOnExitCodes": [42], "jobSet": {"maxRestarts": 3, "rules": []}},
    "validation": {"strict": True, "rules": {"FTL010": "Warn"}},
}
WHOLE: dict[str, Any] = msgspec.to_builtins(Settings()) | {"policies": [POLICY]}
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.dates()
    | st.datetimes()
    | st.binary(max_size=8)
)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3),
    max_leaves=6,
)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """To every field there is, at any depth."""
    keys = value if isinstance(value, dict) else range(len(value)) if _listed(value) else ()
    for key in keys:
        yield (*path, key)
        yield from _paths(value[key], (*path, key))


def _listed(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _with(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return value | {path[0]: _with(value[path[0]], path[1:], new)}
    return [_with(one, path[1:], new) if i == path[0] else one for i, one in enumerate(value)]


def refusal(text: str | bytes) -> str:
    """What is said of such a file, as far as it stands behind the file's name; "" if it is read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.yaml"
        path.write_bytes(text.encode("utf-8", "replace") if isinstance(text, str) else text)
        try:
            assert isinstance(load_settings(path), Settings)
        except SettingsError as error:
            said = str(error)
            said.encode()
            assert said.startswith(f"settings file {path}: ")
            assert len(said.splitlines()) == 1
            assert len(said) < len(str(path)) + 600
            return said.partition(f"{path}: ")[2]
    return ""


def test_every_field_with_its_default_is_read() -> None:
    assert refusal(yaml.safe_dump(WHOLE)) == ""


@given(st.sampled_from(sorted(_paths(WHOLE), key=str)), ANY)
def test_whatever_stands_in_a_field_it_is_read_or_the_field_is_named(
    path: tuple[str | int, ...], value: Any
) -> None:
    said = refusal(yaml.safe_dump(_with(WHOLE, path, value), allow_unicode=True))
    no_yaml = "invalid YAML: line "  # as with half a surrogate pair
    assert not said or said.startswith(no_yaml) or any(str(key) in said for key in path)


@given(st.sampled_from(sorted(_paths(WHOLE), key=str)), st.text(st.characters(), min_size=1))
def test_an_unknown_field_is_named_wherever_it_stands(
    path: tuple[str | int, ...], name: str
) -> None:
    place: Any = WHOLE
    for key in path:
        place = place[key]
    if not isinstance(place, dict) or path[-1] in ("rules", "driverFeatures", "headers"):
        return  # any name fits
    said = refusal(json.dumps(_with(WHOLE, path, place | {name: 1})))
    assert name in place or "unknown field" in said or "invalid YAML" in said


@given(ANY)
def test_whatever_the_file_holds_it_is_settings_or_one_sentence(value: Any) -> None:
    refusal(yaml.safe_dump(value, allow_unicode=True))


@given(st.text() | st.binary() | st.text(st.sampled_from("[]{}:,-&*!<>|'\"#? \n01ax_.~")))
@example("&a [*a]")
@example("lint: &a {rules: *a}")
def test_wild_text_is_settings_or_one_sentence(text: str | bytes) -> None:
    refusal(text)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("namespace: 2001-99-99", "line 1: '2001-99-99'"),
        (f"health:\n  minDwellSeconds: {'9' * 5000}", "line 2: '9999"),
        ("health: {minDwellSeconds: 0b_}", "'0b_'"),
        ("extender: {secret: !!bool x}", "'x'"),
        ('lint: {rules: {"\\ud800": Off}}', "an invalid character"),
        ("policies: " + "[" * 3000, "nested too deeply"),
        ("webhook: {secret: !!binary x}", "base64"),
    ],
)
def test_a_value_that_is_not_what_yaml_takes_it_for_is_said_with_its_line(
    text: str, says: str
) -> None:
    said = refusal(text)
    assert said.startswith("invalid YAML")
    assert says in said
