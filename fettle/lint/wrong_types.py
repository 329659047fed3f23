"""Values of a wrong type, which the API server cannot decode.

The types are those of the structs in `fettle.api`, which have only the fields that Fettle reads;
other fields are not checked. A value that is absent or null is never wrong, and neither is a mark
that is replaced before the API server sees it, such as `__NUM_NODES__`.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from msgspec import inspect

from fettle.api import core, kinds, meta, resource
from fettle.api.meta import Wire
from fettle.lint import workload_kinds
from fettle.lint.findings import Check, Finding, Severity
from fettle.lint.manifests import Field, Manifest, values_at

WRONG_TYPE = Check(
    "FTL106",
    "wrong-type",
    Severity.DENY,
    "A value of the wrong type, such as a quoted number.",
    "The API server cannot decode the object and refuses it.",
)
_WHOLE_NUMBER = "a whole number"
_INT64 = range(-(2**63), 2**63)
_MOST_DIGITS = 19
_WORDS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.IntType: _WHOLE_NUMBER,
    inspect.FloatType: "a number",
    inspect.StructType: "an object",
    inspect.DictType: "an object",
    inspect.ListType: "a list",
    inspect.VarTupleType: "a list",
}
_TEXT = "text"
_SHOWN = 40
_PLACEHOLDER = re.compile(r"__\w+__|\$\w+|\$\{[^{}]+\}|\{\{[^{}]+\}\}|<[^<>]+>|@\w+@")
_REPLICATED = ("apps", "leaderworkerset.x-k8s.io")
_WHOLE = (kinds.SLICE, kinds.TAINT_RULE)


# --- fields of pods and their owners that rules read and `fettle.api` does not have


class RestartRule(Wire, frozen=True, kw_only=True):
    action: str | None = None
    exit_codes: "OnExitCodes | None" = None


class LintContainer(core.Container, frozen=True, kw_only=True):
    restart_policy_rules: tuple[RestartRule, ...] | None = None


class LintPodSpec(core.PodSpec, frozen=True, kw_only=True):
    containers: tuple[LintContainer, ...] | None = None
    init_containers: tuple[LintContainer, ...] | None = None
    priority: int | None = None
    scheduler_name: str | None = None
    restart_policy: str | None = None


class Replicated(Wire, frozen=True, kw_only=True):
    replicas: int | None = None


class OnExitCodes(Wire, frozen=True, kw_only=True):
    container_name: str | None = None
    operator: str | None = None
    values: tuple[int, ...] | None = None


class OnPodCondition(Wire, frozen=True, kw_only=True):
    type: str | None = None
    status: str | None = None


class FailureRule(Wire, frozen=True, kw_only=True):
    action: str | None = None
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: tuple[OnPodCondition, ...] | None = None


class FailurePolicy(Wire, frozen=True, kw_only=True):
    rules: tuple[FailureRule, ...] | None = None


class JobSpec(Wire, frozen=True, kw_only=True):
    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    completion_mode: str | None = None
    pod_replacement_policy: str | None = None
    suspend: bool | None = None
    pod_failure_policy: FailurePolicy | None = None


# --- values against types


def mismatches(manifest: Manifest) -> Iterator[Finding]:
    """A finding for each value of a wrong type."""
    for field, struct in _typed(manifest):
        for wrong, word in _wrong(field, _type(struct)):
            yield WRONG_TYPE.finding(
                wrong, f"must be {word}, and is {_shown(wrong.value)}", _fix(word, wrong.value)
            )


def _typed(manifest: Manifest) -> Iterator[tuple[Field, Any]]:
    """Parts of the object, each with the struct that describes it."""
    yield manifest.root.at("metadata"), meta.ObjectMeta
    for kind in _WHOLE:
        if manifest.kind == kind.name and manifest.api_version in kind.api_versions:
            yield manifest.root, kind.struct
    if manifest.group in _REPLICATED:
        yield manifest.root.at("spec"), Replicated
    for path, struct in _specs(manifest):
        yield from ((spec, struct) for spec in values_at(manifest.root, path))
        if len(path) > 1:
            beside = (*path[:-1], "metadata")
            yield from ((each, meta.ObjectMeta) for each in values_at(manifest.root, beside))


def _specs(manifest: Manifest) -> Iterator[tuple[workload_kinds.Path, Any]]:
    yield from ((p, resource.ResourceClaimSpec) for p in manifest.paths(workload_kinds.CLAIM_SPECS))
    yield from ((p, resource.DeviceClassSpec) for p in manifest.paths(workload_kinds.CLASS_SPECS))
    yield from ((p, LintPodSpec) for p in manifest.pod_specs)
    yield from ((p, JobSpec) for p in manifest.paths(workload_kinds.JOB_SPECS))


@cache
def _type(struct: Any) -> inspect.Type:
    return inspect.type_info(struct)


def _wrong(field: Field, wanted: inspect.Type) -> Iterator[tuple[Field, str]]:
    """The values at and below a field that have a wrong type, and what they should be."""
    value = field.value
    if value is None or (isinstance(value, str) and _PLACEHOLDER.fullmatch(value)):
        return
    match wanted:
        case inspect.StructType() if isinstance(value, dict):
            for known in wanted.fields:
                yield from _wrong(field.at(known.encode_name), known.type)
        case inspect.DictType() if isinstance(value, dict):
            for _, member in field.members():
                yield from _wrong(member, wanted.value_type)
        case inspect.ListType() | inspect.VarTupleType() if isinstance(value, list):
            for entry in field.entries():
                yield from _wrong(entry, wanted.item_type)
        case inspect.UnionType():
            yield from _wrong_of_any(field, wanted)
        case _ if not _fits(value, wanted):
            yield field, _WORDS.get(type(wanted), _TEXT)


def _wrong_of_any(field: Field, wanted: inspect.UnionType) -> Iterator[tuple[Field, str]]:
    types = [one for one in wanted.types if not isinstance(one, inspect.NoneType)]
    if len(types) == 1:
        yield from _wrong(field, types[0])
    elif isinstance(field.value, bool | dict | list):  # a quantity is a number or a string
        yield field, "a quantity"


def _fits(value: object, wanted: inspect.Type) -> bool:
    match wanted:
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType():
            whole = isinstance(value, float) and value.is_integer()
            number = isinstance(value, int) and not isinstance(value, bool)
            return whole or (number and value in _INT64)
        case inspect.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case inspect.AnyType() | inspect.RawType():
            return True
        case inspect.StructType() | inspect.DictType():
            return False  # an object was matched before
        case inspect.ListType() | inspect.VarTupleType():
            return False
    return isinstance(value, str)


def _is_number(text: str) -> bool:
    """Whether the API server would accept it without quotes."""
    digits = text.removeprefix("-")
    short = digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS
    return short and int(text) in _INT64


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value not in _INT64:
        return "one larger than 64 bits"
    said = f'"{value}"' if isinstance(value, str) else str(value)
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}…"


def _fix(word: str, value: object) -> str:
    """Most often, quotes are missing or should not be there."""
    if word == _TEXT and isinstance(value, bool | int | float):
        return f'write "{_shown(value)}", in quotes'
    if word == _TEXT or not isinstance(value, str):
        return ""
    if word == _WHOLE_NUMBER and _is_number(value.strip()):
        return f"write {value.strip()}, without quotes"
    if word == "true or false" and value.strip().lower() in ("true", "false"):
        return f"write {value.strip().lower()}, without quotes"
    return ""
