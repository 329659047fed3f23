"""What the API server refuses for an object's structure: fields that it does not have, values of
wrong types or that are not allowed, what is missing, and unions.

Checks whole objects of Kubernetes' own kinds, and pods and Jobs in those of others. A value that is
absent or null is never wrong, and neither is a mark that is replaced before the API server sees it,
such as `__NUM_NODES__` or `NUM_NODES`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import NamedTuple

import msgspec

from fettle.lint import workload_kinds
from fettle.lint.findings import COMPLETE_GROUPS, Check, Finding, Severity
from fettle.lint.manifests import Field, Manifest, values_at
from fettle.lint.names import nearest
from fettle.lint.refusals.forms import ALLOWED, LENGTHS, REQUIRED, repeated, wrong_forms
from fettle.lint.shapes import Place, kubernetes, place
from fettle.lint.shapes.customs import ANY_FIELD, Customs, shipped_customs

WRONG_TYPE = Check(
    "FTL106",
    "wrong-type",
    Severity.DENY,
    "A value of the wrong type, such as a quoted number.",
    "The API server cannot decode the object and refuses it.",
)
UNKNOWN_FIELD = Check(
    "FTL201",
    "unknown-field",
    Severity.DENY,
    "A field that Kubernetes does not have, such as a misspelt one.",
    "kubectl has the API server refuse it; other clients have it dropped without a word.",
)
NOT_ALLOWED = Check(
    "FTL202",
    "value-not-allowed",
    Severity.DENY,
    "A value that is none of those that the field may have, also by its case.",
    "The API server refuses the object.",
)
MISSING = Check(
    "FTL203",
    "missing-field",
    Severity.DENY,
    "An object without a field that it must have.",
    "The API server refuses the object.",
)
UNION = Check(
    "FTL204",
    "one-of",
    Severity.DENY,
    "Two of several fields that exclude each other, or none where one is needed.",
    "The API server refuses the object.",
)
SOME_VERSIONS = Check(
    "FTL205",
    "not-in-all-versions",
    Severity.WARN,
    "A field that not every version of Kubernetes from the oldest that is supported has.",
    "Versions without it refuse it from kubectl, and drop it from other clients.",
)
OUT_OF_RANGE = Check(
    "FTL209",
    "out-of-range",
    Severity.DENY,
    "A number that is too small or too large for its field, such as a negative one.",
    "The API server refuses the object.",
)
WRONG_FORM = Check(
    "FTL242",
    "wrong-form",
    Severity.DENY,
    "A name, key, path, address, version or mode that does not have the form that its field needs.",
    "The API server refuses the object.",
)
REPEATED = Check(
    "FTL243",
    "repeated-entry",
    Severity.DENY,
    "An entry of a list that repeats an earlier one, where none may.",
    "The API server refuses the object.",
)
TOO_MANY = Check(
    "FTL244",
    "too-many-entries",
    Severity.DENY,
    "A list or map with more entries than its field may have.",
    "The API server refuses the object.",
)
STRUCTURE = (
    *(WRONG_TYPE, UNKNOWN_FIELD, NOT_ALLOWED, MISSING, UNION, SOME_VERSIONS, OUT_OF_RANGE),
    *(WRONG_FORM, REPEATED, TOO_MANY),
)
_SURELY_WRONG = frozenset((WRONG_TYPE.id, UNKNOWN_FIELD.id, NOT_ALLOWED.id))

_WHOLE_NUMBER, _TEXT, _OBJECT, _LIST = "a whole number", "text", "an object", "a list"
_QUANTITY_WORD = "a quantity"
_PORT_WORD = "a whole number or the name of a port"
_WORDS: Mapping[str, str] = {
    "string": _TEXT,
    "boolean": "true or false",
    "integer": _WHOLE_NUMBER,
    "number": "a number",
    "quantity": _QUANTITY_WORD,
    "int-or-string": "a whole number or text",
}
_WORDS_FOR = {True: "true, yes, on and y", False: "false, no, off and n"}
"""In YAML 1.1, which kubectl reads."""
_INT64 = range(-(2**63), 2**63)
_MOST_DIGITS = 19
_SHOWN = 40
_ABSENT: tuple[object, ...] = (None, "", [])
_MOST_ALLOWED = 8
_ALIKE = 0.75
"""How much a name that means another one has in common with it; the field is wrong anyway."""
_LEVELS = 3
"""How far below a misplaced field may belong: from a Deployment's spec to that of its pods."""
_CAPITALS = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_PLACEHOLDER = re.compile(
    rf"__\w+__|\$\w+|\$\{{[^{{}}]+\}}|\{{\{{[^{{}}]+\}}\}}|<[^<>]+>|@\w+@|{_CAPITALS.pattern}"
)
_QUANTITY = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
_AMOUNT = re.compile(r"([\d.]{1,20}) ?([a-zA-Z]{1,3})")
_UNITS = {unit.lower(): unit for unit in ("Ki", "Mi", "Gi", "Ti", "Pi", "k", "M", "G", "T")}
_NONE = Customs()
_LEADER_WORKERS = "leaderworkerset.x-k8s.io"
_METADATA, _POD, _JOB = "meta.v1.ObjectMeta", "core.v1.PodSpec", "batch.v1.JobSpec"
_TEMPLATES = {_POD: "core.v1.PodTemplateSpec", _JOB: "batch.v1.JobTemplateSpec"}


class _Union(NamedTuple):
    """Fields of a type of which one may be set; `needed`: one must be."""

    fields: tuple[str, ...]
    needed: bool = True


_AT_LEAST_ZERO = frozenset(
    (
        *("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"),
        *("parallelism", "completions", "backoffLimit", "backoffLimitPerIndex"),
        *("maxFailedIndexes", "activeDeadlineSeconds", "ttlSecondsAfterFinished"),
        *("successfulJobsHistoryLimit", "failedJobsHistoryLimit", "startingDeadlineSeconds"),
        *("timeoutSeconds", "periodSeconds", "initialDelaySeconds", "successThreshold"),
        *("failureThreshold", "hostPort"),
    )
)
_RANGES: Mapping[tuple[str, str], range] = {
    ("core.v1.ContainerPort", "containerPort"): range(1, 2**16),
    ("core.v1.ContainerPort", "hostPort"): range(2**16),
    ("core.v1.HTTPGetAction", "port"): range(1, 2**16),
    ("core.v1.TCPSocketAction", "port"): range(1, 2**16),
    ("core.v1.GRPCAction", "port"): range(1, 2**16),
    ("core.v1.PreferredSchedulingTerm", "weight"): range(1, 101),
    ("core.v1.WeightedPodAffinityTerm", "weight"): range(1, 101),
    ("core.v1.TopologySpreadConstraint", "maxSkew"): range(1, 2**31),
}
_HANDLERS = ("exec", "grpc", "httpGet", "sleep", "tcpSocket")
_ALL_BUT = {
    "core.v1.Volume": ("name",),
    "core.v1.VolumeProjection": (),
    "core.v1.EnvVarSource": (),
    "core.v1.EnvFromSource": ("prefix",),
    **dict.fromkeys((f"resource.{v}.DeviceAttribute" for v in ("v1", "v1beta1", "v1beta2")), ()),
}
"""Types of which one field may be set, besides these."""
_UNIONS: Mapping[str, _Union] = {
    "core.v1.Probe": _Union(_HANDLERS),
    "core.v1.LifecycleHandler": _Union(_HANDLERS),
    "core.v1.EnvVar": _Union(("value", "valueFrom"), needed=False),
    "core.v1.VolumeMount": _Union(("subPath", "subPathExpr"), needed=False),
    "core.v1.DownwardAPIVolumeFile": _Union(("fieldRef", "resourceFieldRef")),
    "core.v1.PodResourceClaim": _Union(("resourceClaimName", "resourceClaimTemplateName")),
    "batch.v1.PodFailurePolicyRule": _Union(("onExitCodes", "onPodConditions")),
    "resource.v1beta1.DeviceRequest": _Union(("deviceClassName", "firstAvailable")),
    "resource.v1beta2.DeviceRequest": _Union(("exactly", "firstAvailable")),
    "resource.v1.DeviceRequest": _Union(("exactly", "firstAvailable")),
}
_WITHOUT_SOURCE = frozenset({"core.v1.Volume", "core.v1.VolumeProjection"})
"""An empty volume is an empty directory, an empty projection nothing."""


# --- an object


def mistakes_in_structure(manifest: Manifest, customs: Customs | None = None) -> Iterator[Finding]:
    """`customs`: the fields of custom resources; None means the shipped ones."""
    if whole := kubernetes().type_of(manifest.api_version, manifest.kind):
        yield from _of_type(manifest.root, whole)
        return
    known = shipped_customs() if customs is None else customs
    said: set[tuple[str, str]] = set()
    if whole := known.type_of(manifest.api_version, manifest.kind):
        for finding in _of_type(manifest.root, whole, known):
            said.add((finding.rule, finding.field))
            yield _of_custom(finding, known.source_of(whole))
    elif manifest.root.raw("metadata"):
        for finding in _of_type(manifest.root.at("metadata"), _METADATA):
            if finding.rule == WRONG_TYPE.id:  # it may be no object of Kubernetes
                yield finding
    if manifest.group == _LEADER_WORKERS:
        yield from _checked(manifest.root.at("spec", "replicas"), "integer")
    is_known = (manifest.group, manifest.kind) in workload_kinds.POD_TEMPLATES
    jobs = manifest.paths(workload_kinds.JOB_SPECS)
    for paths, type in ((jobs, _JOB), (() if jobs else manifest.pod_specs, _POD)):
        for path in paths:
            for beside in values_at(manifest.root, path[:-1]):
                if isinstance(beside.value, dict) and is_known and path[:-1]:
                    yield from _unknown_beside(beside, _TEMPLATES[type])
                yield from _checked(beside.at("metadata"), _METADATA)
                for finding in _checked(beside.at("spec"), type):
                    yield _in_template(finding, manifest)
    for spec in manifest.specs_by_form:
        yield from (one for one in _by_form(spec) if (one.rule, one.field) not in said)


def _by_form(spec: Field) -> Iterator[Finding]:
    """What is misspelt in the pods of a kind that is not known. Its pods may have more fields than
    Kubernetes' (Knative's do), and its controller may complete them, so this only warns."""
    fields = kubernetes().types[_POD]
    for name, member in spec.members():
        if name in fields:
            found = _checked(member, place(fields[name]).type)
        else:
            found = iter([_unknown(member, name, _POD, _NONE)] if _near(name, fields) else [])
        for finding in found:
            if finding.rule in _SURELY_WRONG:
                yield msgspec.structs.replace(finding, severity=Severity.WARN)


def _unknown_beside(template: Field, type: str) -> Iterator[Finding]:
    """The fields of a template that are none."""
    for name, member in template.members():
        if name not in kubernetes().types[type]:
            yield _unknown(member, name, type, _NONE)


def _of_custom(finding: Finding, source: str) -> Finding:
    """A webhook may add what is missing before the schema is applied; another release of the
    `source` may allow more."""
    later = bool(source) and finding.rule == NOT_ALLOWED.id and not finding.fix
    if finding.rule == MISSING.id or later:
        return msgspec.structs.replace(finding, severity=Severity.WARN)
    return finding


def _in_template(finding: Finding, manifest: Manifest) -> Finding:
    """What is missing in the workload of another project its controller may add."""
    if finding.rule in (MISSING.id, UNION.id) and manifest.group not in COMPLETE_GROUPS:
        return msgspec.structs.replace(finding, severity=Severity.WARN)
    return finding


def _checked(field: Field, type: str, customs: Customs = _NONE) -> Iterator[Finding]:
    """What is wrong with a value at and below a field."""
    value = field.value
    if value is None or _is_put_in(value, type, customs):
        return
    if type.startswith("[]"):
        if not isinstance(value, list):
            yield _wrong_type(field, _LIST)
            return
        for entry in field.entries():
            is_empty = entry.value is None and _fields(type[2:], customs) is not None
            yield from _checked(entry._replace(value={}) if is_empty else entry, type[2:], customs)
    elif type.startswith("{}"):
        if not isinstance(value, dict):
            yield _wrong_type(field, _OBJECT)
            return
        for _, member in field.members():
            yield from _checked(member, type[2:], customs)
    elif type.startswith("="):
        yield from _allowed(field, type[1:].split("|"))
    elif _fields(type, customs) is not None:
        yield from _of_type(field, type, customs)
    elif not _fits(value, type):
        yield _wrong_type(field, _WORDS[type])


def _is_put_in(value: object, type: str, customs: Customs) -> bool:
    """Whether it is a mark that is replaced. `IPC_LOCK` is none where a list is due, nor is
    `NO_SCHEDULE` where NoSchedule may be."""
    if not isinstance(value, str) or not _PLACEHOLDER.fullmatch(value):
        return False
    if not _CAPITALS.fullmatch(value):
        return True
    if type.startswith("="):
        meant = value.replace("_", "").lower()
        return all(meant != allowed.lower() for allowed in type[1:].split("|"))
    return not type.startswith(("[]", "{}")) and _fields(type, customs) is None


def _allowed(field: Field, allowed: list[str]) -> Iterator[Finding]:
    value = field.value
    if not isinstance(value, str):
        yield _wrong_type(field, _TEXT)
    elif value and value not in allowed:  # no text counts as absent
        near = nearest(value, allowed)
        said = ", ".join(allowed) if len(allowed) <= _MOST_ALLOWED else "those of Kubernetes"
        meant = f"; did you mean {near}?" if near else ""
        yield NOT_ALLOWED.finding(
            field,
            f"must be one of {said}, and is {_shown(value)}{meant}",
            f"write {near}" if near else "",
        )


def _of_type(field: Field, type: str, customs: Customs = _NONE) -> Iterator[Finding]:
    value = field.value
    if value is None:
        return
    if not isinstance(value, dict):
        yield _wrong_type(field, _OBJECT)
        return
    fields = _fields(type, customs) or {}
    for name, member in field.members():
        if name not in fields:
            if ANY_FIELD not in fields:
                yield _unknown(member, name, type, customs)
            continue
        there = place(fields[name])
        if member.exists and (there.since or there.until):
            yield _of_some_versions(member, there)
        yield from _checked(member, there.type, customs)
        yield from _in_range(member, name, type)
        yield from _of_form(member, name, type)
        if (type, name) in _RANGES and there.type == "int-or-string" and _is_quoted(member.value):
            yield _wrong_type(member, _PORT_WORD)
    for name, text in fields.items():
        if place(text).required and value.get(name) in _ABSENT:
            yield MISSING.finding(field.at(name), "is required", f"write {name}")
    needed = REQUIRED.get(type, "")
    if needed and not place(fields[needed]).required and not value.get(needed):
        yield MISSING.finding(field.at(needed), "is required", f"write {needed}")
    yield from _union(field, type, fields)


def _fields(type: str, customs: Customs) -> Mapping[str, str] | None:
    return kubernetes().types.get(type) or customs.types.get(type)


def _unknown(member: Field, name: str, type: str, customs: Customs) -> Finding:
    fields = _fields(type, customs) or {}
    what = type.rpartition(".")[2]
    source = customs.source_of(type)
    if near := nearest(name, fields) if source else _near(name, fields):
        message = f"{what} has no such field; did you mean {near}?"
        return UNKNOWN_FIELD.finding(member, message, f"write {near}")
    at, its_name = _place_below(name, type, customs)
    fix = f"write it under {at}" if at else "leave it out"
    if at and its_name != name:
        fix = f"write {at}.{its_name}"
    if source:
        message = f"{what} has no such field in {source}; another release may have it"
        return UNKNOWN_FIELD.finding(member, message, fix, severity=Severity.WARN)
    where = f" in Kubernetes {kubernetes().span}" if type in kubernetes().types else ""
    return UNKNOWN_FIELD.finding(member, f"{what} has no such field{where}", fix)


def _near(name: str, fields: Iterable[str]) -> str:
    """The field that a name means; "" if none."""
    return nearest(name, fields) or next(iter(get_close_matches(name, list(fields), 1, _ALIKE)), "")


def _place_below(name: str, type: str, customs: Customs) -> tuple[str, str]:
    """The path to the nearest object below this type that has such a field, and its name, which may
    differ in case; "" if none has."""
    level = [("", type)]
    for _ in range(_LEVELS):
        level = [
            (f"{path}.{field}", place(text).type)
            for path, above in level
            for field, text in (_fields(above, customs) or {}).items()
            if field != "metadata"
        ]
        for like in (str, str.lower):
            for path, below in level:
                for field in _fields(below, customs) or {}:
                    if like(field) == like(name):
                        return path[1:], field
    return "", ""


def _of_some_versions(member: Field, there: Place) -> Finding:
    first = f" from {there.since}" if there.since else ""
    last = f" up to {there.until}" if there.until else ""
    return SOME_VERSIONS.finding(member, f"only Kubernetes{first}{last} has it")


def _in_range(member: Field, name: str, type: str) -> Iterator[Finding]:
    value = member.value
    allowed = _RANGES.get((type, name), range(2**63) if name in _AT_LEAST_ZERO else _INT64)
    number = isinstance(value, int) and not isinstance(value, bool)
    if number and value in _INT64 and value not in allowed:
        most = f" and at most {allowed[-1]}" if allowed.stop < 2**31 else ""
        yield OUT_OF_RANGE.finding(member, f"must be at least {allowed.start}{most}")


def _of_form(member: Field, name: str, type: str) -> Iterator[Finding]:
    for field, message in wrong_forms(type, name, member):
        yield WRONG_FORM.finding(field, message)
    for field, message in repeated(type, name, member):
        yield REPEATED.finding(field, message, "leave one of the two out")
    if allowed := ALLOWED.get((type, name)):
        yield from _allowed(member, list(allowed)) if member.exists else ()
    most, value = LENGTHS.get((type, name)), member.value
    if most is not None and isinstance(value, list | dict) and len(value) > most:
        yield TOO_MANY.finding(member, f"has {len(value)} entries; at most {most} may be")


def _union(field: Field, type: str, fields: Mapping[str, str]) -> Iterator[Finding]:
    union, absent = _UNIONS.get(type), _ABSENT
    if type in _ALL_BUT:
        absent = (None,)
        names = tuple(name for name in fields if name not in _ALL_BUT[type])
        union = _Union(names, needed=type not in _WITHOUT_SOURCE)
    if union is None:
        return
    there = [name for name in union.fields if field.value.get(name) not in absent]
    if len(there) > 1:
        yield UNION.finding(
            field.at(there[1]),
            f"{' and '.join(there)} exclude each other",
            "leave all but one of them out",
        )
    elif not there and union.needed and field.value.keys() <= fields.keys():
        one = [name for name in union.fields if name in fields]
        named = f"one of {', '.join(one)}" if len(one) <= _MOST_ALLOWED else "one of its sources"
        yield UNION.finding(field, f"needs {named}")


# --- a value


def _wrong_type(field: Field, word: str) -> Finding:
    shown = _shown(field.value)
    return WRONG_TYPE.finding(field, f"must be {word}, and is {shown}", _fix(word, field.value))


def _fits(value: object, type: str) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match type:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return _is_whole(value)
        case "number":
            return number
        case "quantity":
            return number or (isinstance(value, str) and _QUANTITY.fullmatch(value) is not None)
        case "int-or-string":
            return isinstance(value, str) or _is_whole(value)
    return True


def _is_whole(value: object) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool) and value in _INT64


def _is_quoted(value: object) -> bool:
    return isinstance(value, str) and _is_number(value)


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
    if word == _QUANTITY_WORD:
        return meant_quantity(value)
    if word == _TEXT and isinstance(value, bool):
        return f"put it in quotes: without them {_WORDS_FOR[value]} mean {_shown(value)}"
    if word == _TEXT and isinstance(value, int | float):
        return "put it in quotes"
    if word == _TEXT or not isinstance(value, str):
        return ""
    if word in (_WHOLE_NUMBER, _PORT_WORD) and _is_number(value.strip()):
        return f"write {value.strip()}, without quotes"
    if word == "true or false" and value.strip().lower() in ("true", "false"):
        return f"write {value.strip().lower()}, without quotes"
    return ""


def meant_quantity(value: object) -> str:
    """64G of 64GB, 8Gi of 8gi."""
    match = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return ""
    unit = match[2].lower()
    for meant in (unit, unit.removesuffix("b")):
        if meant in _UNITS:
            return f"write {match[1]}{_UNITS[meant]}"
    return ""
