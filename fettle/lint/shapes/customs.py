"""Which fields custom resources have, by their CustomResourceDefinitions: those of Fettle and of
projects whose workloads have devices, which are shipped, and those that a user names.

Of a schema, types, names, required fields and lists of values are read. Ranges and patterns are
not: what they say is undecided. `x-kubernetes-validations` are found here, and evaluated by who
asks. Pods and Jobs within are checked by the fields that Kubernetes has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fettle.api.raw import Raw, mapping, text
from fettle.lint import workload_kinds
from fettle.lint.manifests import Field
from fettle.lint.shapes import kubernetes, place, whole_objects

ANY_FIELD = "*"
"""Among the fields of a type: it may have others, too."""
ENTRY = "*"
"""In a path: an entry of a list or map."""
_FILE = Path(__file__).with_name("customs.json")
_ANY = "any"
_SCALARS = {"string", "boolean", "integer", "number"}
_DEEPEST = 40
_HOLD = (workload_kinds.JOB_TEMPLATES, workload_kinds.POD_TEMPLATES, workload_kinds.CLAIM_SPECS)
"""Where objects have parts of Kubernetes' own."""


class Customs(msgspec.Struct, frozen=True):
    """`kinds` and `types` as in `shapes.Kubernetes`. `sources`: by group, the release that it is
    from, if a cluster may have another one. `rules`: by apiVersion and kind, what is left of a
    schema with `x-kubernetes-validations`."""

    kinds: Mapping[str, Mapping[str, str]] = {}
    types: Mapping[str, Mapping[str, str]] = {}
    sources: Mapping[str, str] = {}
    rules: Mapping[str, Mapping[str, Raw]] = {}

    def type_of(self, api_version: str, kind: str) -> str:
        return self.kinds.get(api_version, {}).get(kind, "")

    def source_of(self, type: str) -> str:
        return self.sources.get(type.partition("/")[0], "")


@cache
def shipped_customs() -> Customs:
    return msgspec.json.decode(_FILE.read_bytes(), type=Customs)


def customs_with(
    named: Iterable[Raw], found: Iterable[Raw] = (), *, statuses: bool = False
) -> Customs:
    """The shipped ones, and those of the CustomResourceDefinitions among objects that the user has
    `named`, and among those that were `found`, of which a cluster may have another release. With
    `statuses`, of these also what is in a status."""
    more = customs_of(filter(_is_definition, named), statuses=statuses)
    beside = customs_of(filter(_is_definition, found), statuses=statuses)
    shipped = shipped_customs()
    sources = dict(shipped.sources)
    sources |= dict.fromkeys(_groups(beside), "the definition among these files")
    return Customs(
        {**shipped.kinds, **beside.kinds, **more.kinds},
        {**shipped.types, **beside.types, **more.types},
        {group: said for group, said in sources.items() if group not in _groups(more)},
    )


def _is_definition(one: Raw) -> bool:
    return one.get("kind") == "CustomResourceDefinition"


def _groups(customs: Customs) -> set[str]:
    return {version.partition("/")[0] for version in customs.kinds}


class AbsentField(NamedTuple):
    """A field that objects of a kind cannot have, where it would be, and one of a like name."""

    name: str
    above: str
    near: str


def absent_field(
    path: Sequence[str], api_version: str, kind: str, customs: Customs
) -> AbsentField | None:
    """The first field of a path that objects of a kind cannot have; None if they can, or if that is
    not known. In the path, `*` stands for an entry of a list or map."""
    types = {**kubernetes().types, **whole_objects().types, **customs.types}
    type_ = customs.type_of(api_version, kind) or whole_objects().type_of(api_version, kind)
    for at, name in enumerate(path):
        if type_.startswith(("[]", "{}")):
            if type_.startswith("[]") and name != ENTRY:
                return None  # an index that is no text, or no field: its evaluation says so
            type_ = type_[2:]
            continue
        fields = types.get(type_)
        if fields is None or ANY_FIELD in fields or name == ENTRY:
            return None
        if name not in fields:
            near = get_close_matches(name, fields, 1)
            return AbsentField(name, ".".join(path[:at]), near[0] if near else "")
        type_ = place(fields[name]).type
    return None


def customs_of(definitions: Iterable[Raw], *, statuses: bool = False) -> Customs:
    """What these CustomResourceDefinitions say; what cannot be read in them may hold anything."""
    kinds: dict[str, dict[str, str]] = {}
    types: dict[str, dict[str, str]] = {}
    for definition in definitions:
        spec = mapping(definition.get("spec"))
        group, kind = text(spec.get("group")), text(mapping(spec.get("names")).get("kind"))
        for version in _objects(spec.get("versions")):
            schema = mapping(mapping(version.get("schema")).get("openAPIV3Schema"))
            api_version = f"{group}/{text(version.get('name'))}"
            if version.get("served") is False or not schema or not kind:
                continue
            reading = _Reading(types, f"{api_version}.{kind}", group, kind)
            kinds.setdefault(api_version, {})[kind] = reading.root(schema, statuses=statuses)
    return Customs(kinds, types)


class _Reading:
    """Reads the schema of one version of one kind into the table of types."""

    def __init__(self, types: dict[str, dict[str, str]], name: str, group: str, kind: str) -> None:
        self._types = types
        self._name = name
        self._elsewhere = {path for table in _HOLD for path in table.get((group, kind), ())}

    def root(self, schema: Raw, *, statuses: bool) -> str:
        fields = self._fields(schema, ())
        fields |= {"apiVersion": "string!", "kind": "string!", "metadata": "meta.v1.ObjectMeta"}
        if "status" in fields and not statuses:
            fields["status"] = _ANY
        self._types[self._name] = fields
        return self._name

    def _type(self, schema: Raw, path: workload_kinds.Path) -> str:
        if path in self._elsewhere or len(path) > _DEEPEST:
            return _ANY
        if schema.get("x-kubernetes-int-or-string"):
            return "int-or-string"
        if schema.get("x-kubernetes-embedded-resource"):
            return _ANY
        match schema.get("type"):
            case "array":
                return "[]" + self._type(mapping(schema.get("items")), (*path, "*"))
            case "object":
                return self._object(schema, path)
            case "string" if values := _values(schema):
                return "=" + "|".join(values)
            case str(scalar) if scalar in _SCALARS:
                return scalar
        return _ANY

    def _object(self, schema: Raw, path: workload_kinds.Path) -> str:
        if schema.get("properties"):
            name = ".".join((self._name, *(part for part in path if part != "*")))
            self._types[name] = self._fields(schema, path)
            return name
        if isinstance(more := schema.get("additionalProperties"), dict):
            return "{}" + self._type(more, (*path, "*"))
        return _ANY

    def _fields(self, schema: Raw, path: workload_kinds.Path) -> dict[str, str]:
        required = schema.get("required")
        names = required if isinstance(required, list) else []
        fields = {}
        for name, about in mapping(schema.get("properties")).items():
            mark = "!" if name in names and "default" not in mapping(about) else ""
            fields[str(name)] = self._type(mapping(about), (*path, str(name))) + mark
        if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties"):
            fields[ANY_FIELD] = _ANY
        return fields


# --- x-kubernetes-validations


class StatedRule(NamedTuple):
    """A rule of a definition, and the value that is `self` in it, with defaults as the API server
    adds them."""

    field: Field
    expression: str
    message: str


def schemas_of(definitions: Iterable[Raw]) -> dict[tuple[str, str], Raw]:
    """The schema of each apiVersion and kind among these objects, as far as it is served."""
    found = {}
    for definition in filter(_is_definition, definitions):
        spec = mapping(definition.get("spec"))
        group, kind = text(spec.get("group")), text(mapping(spec.get("names")).get("kind"))
        for version in _objects(spec.get("versions")):
            schema = mapping(mapping(version.get("schema")).get("openAPIV3Schema"))
            if schema and version.get("served") is not False:
                found[f"{group}/{text(version.get('name'))}", kind] = schema
    return found


def stated_rules(schema: Raw, object: Raw) -> Iterator[StatedRule]:
    """What the schema says of an object that is created. Rules about changes (`oldSelf`) say
    nothing then."""
    yield from _stated(schema, Field("", _completed(schema, object, _DEEPEST)), _DEEPEST)


def _stated(schema: Raw, field: Field, depth: int) -> Iterator[StatedRule]:
    for rule in _objects(schema.get("x-kubernetes-validations")):
        expression = text(rule.get("rule"))
        if expression and "oldSelf" not in expression:
            said = text(rule.get("message")) or f"the rule {' '.join(expression.split())} is broken"
            yield StatedRule(field, expression, said)
    if not depth:
        return
    for name, below in mapping(schema.get("properties")).items():
        if isinstance(field.value, dict) and field.value.get(name) is not None:
            yield from _stated(mapping(below), field.at(str(name)), depth - 1)
    if entries := mapping(schema.get("items")):
        for entry in field.entries():
            yield from _stated(entries, entry, depth - 1)
    if others := mapping(schema.get("additionalProperties")):
        for _, member in field.members():
            yield from _stated(others, member, depth - 1)


def _completed(schema: Raw, value: Any, depth: int) -> Any:
    """The value with the schema's defaults. A number is no integer, as in CEL."""
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not depth:
        return value
    if isinstance(value, list):
        return [_completed(mapping(schema.get("items")), one, depth - 1) for one in value]
    if not isinstance(value, dict):
        return value
    known, others = mapping(schema.get("properties")), mapping(schema.get("additionalProperties"))
    made = {}
    for name, below in known.items():
        given = value.get(name)
        if given is None and "default" in mapping(below):
            given = mapping(below)["default"]
        if given is not None:
            made[name] = _completed(mapping(below), given, depth - 1)
    for name, given in value.items():
        if name not in known:
            made[name] = _completed(others, given, depth - 1)
    return made


def _values(schema: Raw) -> list[str]:
    """The values that a text may have; none if any, or if they cannot be written as one text."""
    found = schema.get("enum")
    values = found if isinstance(found, list) else []
    plain = all(isinstance(one, str) and not set(one) & set("|! ") for one in values)
    return [str(one) for one in values] if plain and not schema.get("nullable") else []


def _objects(value: Any) -> Iterator[Raw]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())
