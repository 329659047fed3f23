"""The custom resource definition says field by field what `fettle.model.policy` reads."""

from collections.abc import Iterator
from enum import EnumType
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import msgspec
import pytest
import yaml

from fettle.api import PolicyStatus, kinds
from fettle.api.meta import Condition, ObjectMeta
from fettle.api.own_group import DeviceHealthStatus
from fettle.model import Sections
from fettle.steward.policy_statuses import READ_BY

FILE = Path(__file__).parents[2] / "deploy" / "crds" / "devicepolicies.yaml"
DEFINITION = yaml.safe_load(FILE.read_text())
(VERSION,) = DEFINITION["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"]


def fields(schema: Any, struct: type[msgspec.Struct], path: str) -> Iterator[tuple[str, Any, Any]]:
    """(path, schema, field of the struct) for every field, however deep."""
    known = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    assert set(schema["properties"]) == set(known), path
    for name, field in known.items():
        below = schema["properties"][name]
        yield f"{path}.{name}", below, field
        if (inner := struct_in(field.type)) is not None:
            yield from fields(below.get("items", below), inner, f"{path}.{name}")


def struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    return next(filter(None, map(struct_in, get_args(annotation))), None)


FIELDS = list(fields(SCHEMA, Sections, "spec"))


def test_the_definition_is_of_the_kind_that_is_read() -> None:
    kind = kinds.POLICY
    names = DEFINITION["spec"]["names"]
    assert (names["kind"], names["plural"]) == (kind.name, kind.plural)
    assert (DEFINITION["spec"]["group"], VERSION["name"]) == (kind.group, kind.version)
    assert DEFINITION["spec"]["scope"] == "Cluster"
    assert kind.optional


@pytest.mark.parametrize(("path", "schema", "field"), FIELDS, ids=[f[0] for f in FIELDS])
def test_types_defaults_and_values_are_the_same(path: str, schema: Any, field: Any) -> None:
    inner = struct_in(field.type)
    if "default" in schema:
        default = field.default
        expected = {} if inner is not None and schema["type"] == "object" else default
        assert schema["default"] == expected
    else:  # absent means the same as what the struct says then
        assert field.default in (None, (), msgspec.NODEFAULT) or field.default_factory is dict
    plain = [t for t in get_args(field.type) if isinstance(field.type, UnionType)] or [field.type]
    for words in (plain[0], *get_args(plain[0])[:1]):
        if isinstance(words, EnumType):
            assert set(schema.get("items", schema)["enum"]) == {*map(str, words)}
    names = {float: "number", int: "integer", bool: "boolean", str: "string"}
    if plain[0] in names:
        assert schema["type"] == names[plain[0]]


def test_the_definition_has_the_status_that_is_written() -> None:
    status = VERSION["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert [path for path, *_ in fields(status, PolicyStatus, "status")] != []
    assert len(READ_BY) <= status["properties"]["readBy"]["maxLength"]
    assert VERSION["subresources"] == {"status": {}}


def test_every_rule_of_the_definition_has_a_message() -> None:
    found = list(rules(VERSION["schema"]["openAPIV3Schema"]))
    assert len(found) >= 6
    assert all(rule["message"] for rule in found)


def rules(schema: Any) -> Iterator[Any]:
    """Of a schema, however deep."""
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations", ())
        for value in schema.values():
            yield from rules(value)


def memory_fields(schema: Any, struct: type[msgspec.Struct], path: str) -> Iterator[str]:
    """Every field of the definition of DeviceHealth, with what differs from the struct."""
    known = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    if set(schema["properties"]) != set(known):
        yield f"{path}: {set(schema['properties']) ^ set(known)}"
    required = {name for name, field in known.items() if field.required}
    if set(schema.get("required", ())) - {"metadata"} != required:
        yield f"{path}: required {required}"
    for name, field in known.items():
        below = schema["properties"].get(name, {})
        inner = struct_in(field.type)
        if inner not in (None, ObjectMeta, Condition):
            yield from memory_fields(below.get("items", below), inner, f"{path}.{name}")
        words = next(
            (w for w in (field.type, *get_args(field.type)) if isinstance(w, EnumType)), None
        )
        if words is not None and set(below["enum"]) != {*map(str, words)}:
            yield f"{path}.{name}: {below['enum']}"


def test_the_definition_of_device_health_has_the_fields_that_are_written() -> None:
    definition = yaml.safe_load(FILE.with_name("devicehealths.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    names = definition["spec"]["names"]
    kind = kinds.DEVICE_HEALTH
    assert (names["kind"], names["plural"]) == (kind.name, kind.plural)
    assert (definition["spec"]["group"], version["name"]) == (kind.group, kind.version)
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert list(memory_fields(status, DeviceHealthStatus, "status")) == []


def test_the_samples_show_every_field() -> None:
    files = (FILE.parents[1] / "samples").glob("*.yaml")
    objects = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    shown = {name for one in objects if one["kind"] == "DevicePolicy" for name in names(one)}
    missing = {path for path, _, _ in fields(SCHEMA, Sections, "spec")} - shown
    assert not missing - {"spec.placement.requires", "spec.failure.jobSet.rules"}


def names(value: Any, path: str = "") -> Iterator[str]:
    """Paths of all fields of an object, as `fields` names them."""
    for name, below in value.items() if isinstance(value, dict) else ():
        yield (here := f"{path}.{name}".removeprefix("."))
        for one in below if isinstance(below, list) else [below]:
            yield from names(one, here)
