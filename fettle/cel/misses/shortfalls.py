"""Why a device does not meet conditions, in words for people: "memory 80Gi < 96Gi".

What is said holds on the device: all parts are evaluated there.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from fettle.api.resource import DeviceAttribute
from fettle.cel.language import syntax
from fettle.cel.language.reads import reads
from fettle.cel.language.syntax import (
    Again,
    Call,
    Construct,
    Expr,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Select,
)
from fettle.cel.library import conversions
from fettle.cel.library.quantity import MutableQuantity
from fettle.cel.library.strings import ESCAPES
from fettle.cel.library.values import (
    Concatenated,
    Duration,
    Growing,
    Optional,
    Timestamp,
    Type,
    Uint,
    Value,
    Version,
)
from fettle.cel.misses.conditions import Trial, is_constant, presence, read, scalar, sides
from fettle.cel.runtime.protocol import OutcomeKind
from fettle.cel.runtime.rows import AttributeRead
from fettle.cel.runtime.rows import Value as Published

_MOST_CONDITIONS = 4
_MOST_ALTERNATIVES = 3
_MOST_VALUES = 3
_NEITHER = "neither "
_QUOTED = {"quantity", "semver"}


def shortfall(conditions: Sequence[tuple[Expr, Trial]]) -> str:
    """Why a device meets none of these conditions, for the first few of them.

    For example: memory 80Gi < 96Gi and model "A100" != "H100".
    """
    said = islice(conditions, _MOST_CONDITIONS)
    facts = list(dict.fromkeys(fact for each in said for fact in _why(*each, wanted=True)))
    more = len(conditions) - _MOST_CONDITIONS + max(0, len(facts) - _MOST_CONDITIONS)
    facts = facts[:_MOST_CONDITIONS]
    if more > 0:
        facts.append(f"{more} more")
    joint = ", and " if any(fact.startswith(_NEITHER) for fact in facts) else " and "
    return joint.join(facts)


def failing(parts: Iterable[Expr], trial: Trial, *, wanted: bool) -> list[Expr]:
    """The parts that surely are not true, or not false where that is wanted."""
    kinds = (OutcomeKind.WOULD_ABORT, OutcomeKind.NO_MATCH if wanted else OutcomeKind.MATCH)
    return [part for part in parts if trial.outcome(part).kind in kinds]


def _why(condition: Expr, trial: Trial, *, wanted: bool) -> list[str]:
    """The facts about the device that keep a condition from being true, or from being false."""
    match condition:
        case Call(function=syntax.NOT, args=[inner]):
            return _why(inner, trial, wanted=not wanted)
        case Call(function=syntax.OR | syntax.AND as operator):
            parts = syntax.operands(condition, operator)
            if wanted is (operator == syntax.OR):
                return _why_none(parts, trial, wanted=wanted)
            return [
                fact
                for part in failing(parts, trial, wanted=wanted)
                for fact in _why(part, trial, wanted=wanted)
            ]
        case Call(function=syntax.EITHER, args=[test, yes, no]):
            for holds in trial.value(test):
                taken = yes if holds is True else no
                facts = [] if isinstance(taken, Literal) else _why(taken, trial, wanted=wanted)
                return [*_why(test, trial, wanted=holds is not True), *facts]
    outcome = trial.outcome(condition)
    if outcome.kind is OutcomeKind.WOULD_ABORT:
        return [_failure(condition, outcome.reason, trial)]
    return [_claim(condition, trial, holds=not wanted)]


def _why_none(alternatives: Sequence[Expr], trial: Trial, *, wanted: bool) -> list[str]:
    claims = _distinct(_claim(part, trial, holds=wanted) for part in alternatives)
    if len(claims) == 1:
        return _why(alternatives[0], trial, wanted=wanted)
    return [_NEITHER + " nor ".join(_bounded(claims))]


def _claim(condition: Expr, trial: Trial, *, holds: bool) -> str:
    """The words for a condition being true, or false, with the values of the device.

    Behind "neither", they are the words for what is not so on the device.
    """
    match condition:
        case Call(function=syntax.NOT, args=[inner]):
            return _claim(inner, trial, holds=not holds)
        case Call(function=syntax.OR | syntax.AND as operator):
            parts = syntax.operands(condition, operator)
            together = holds is (operator == syntax.AND)
            if together:
                parts = failing(parts, trial, wanted=holds) or parts
            claims = _bounded(_distinct(_claim(part, trial, holds=holds) for part in parts))
            joined = (" and " if together else " or ").join(claims)
            return f"({joined})" if len(claims) > 1 else joined
    if (place := presence(condition)) is not None:
        return _present(place) if holds else _absent(place)
    if not holds or (missing := _missing(condition, trial)) is None:
        return _stated(condition, trial, holds=holds)
    return _present(missing)


def _stated(condition: Expr, trial: Trial, *, holds: bool) -> str:
    compared = sides(condition, true=holds)
    if compared is not None:
        left, right = _side(compared.left, trial), _side(compared.right, trial)
        return f"{left} {compared.relation} {right}"
    where, truth = read(condition), "true" if holds else "false"
    name = where.name if where is not None else scalar(condition)
    if name:
        is_so = any(value is holds for value in trial.value(condition))
        return _side(condition, trial) if is_so else f"{name} {truth}"
    return f"{brief(condition)} is {'' if holds else 'not '}true{_values(condition, trial)}"


def _failure(condition: Expr, reason: str, trial: Trial) -> str:
    """Why a condition ends in an error."""
    if (missing := _missing(condition, trial)) is not None:
        return _absent(missing)
    if (read(condition) is not None or scalar(condition)) and trial.value(condition):
        return f"{_side(condition, trial)} is not a bool"
    compared = sides(condition, true=True)
    if (
        compared is not None
        and compared.are_compared
        and all(map(trial.value, (compared.left, compared.right)))
    ):
        left, right = _side(compared.left, trial), _side(compared.right, trial)
        return f"{left} cannot be compared with {right}"
    return f"{brief(condition)} ends in an error ({reason}){_values(condition, trial)}"


def _missing(condition: Expr, trial: Trial) -> AttributeRead | None:
    """The first value that the device lacks, if a condition ends in an error for want of it."""
    if trial.outcome(condition).kind is not OutcomeKind.WOULD_ABORT:
        return None
    left = [condition]
    while left:
        node = left.pop(0)
        where = read(node)
        if where is not None and trial.published(where) is None and _is_strict(node):
            return where
        left.extend(syntax.children(node))
    return None


def _is_strict(node: Expr) -> bool:
    """Whether it is an error that the value is missing."""
    return isinstance(node, Select) or (isinstance(node, Call) and node.function == syntax.INDEX)


def _present(place: AttributeRead) -> str:
    if not place.name:
        return f"{_kind(place)} of {place.domain} present"
    return f"{_kind(place)} {place.domain}/{place.name} present"


def _absent(place: AttributeRead) -> str:
    if not place.name:
        return f"no {_kind(place)} of {place.domain}"
    return f"no {_kind(place)} {place.domain}/{place.name}"


def _kind(place: AttributeRead) -> str:
    return "attribute" if place.field == "attributes" else "capacity"


def _side(node: Expr, trial: Trial) -> str:
    """One side of a comparison, with the value that the device has for it."""
    known = trial.value(node)
    value = computed(known[0]) if known else ""
    if (where := read(node)) is not None:
        found = trial.published(where)
        if found is None:
            replaced = bool(value) and type(known[0]) is not Optional
            return f"{where.name} (none, so {value})" if replaced else f"{where.name} (none)"
        text = _published(where, trial)
        optional = bool(known) and type(known[0]) is Optional
        return f"{where.name} {f'optional.of({text})' if optional else text}"
    if isinstance(node, Call) and node.function in _QUOTED and isinstance(node.args[0], Literal):
        return str(node.args[0].value)
    if is_constant(node):
        return value or brief(node)
    return f"{scalar(node) or brief(node)} {value}".rstrip()


def _values(condition: Expr, trial: Trial) -> str:
    """The values of the device that a condition reads, to stand behind the condition."""
    named = [read for read in reads(condition) or () if read.name]
    texts = _bounded([f"{each.name} {_published(each, trial)}" for each in named], _MOST_VALUES)
    return f" with {', '.join(texts)}" if texts else ""


def _published(where: AttributeRead, trial: Trial) -> str:
    found = trial.published(where)
    return "(none)" if found is None or isinstance(found, bool) else published(found)


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _bounded(texts: list[str], most: int = _MOST_ALTERNATIVES) -> list[str]:
    return texts if len(texts) <= most else [*texts[:most], "…"]


# The words for values and parts

_LONGEST = 80
_LISTS = (list, Growing, Concatenated)
_UNIT = 10**9
_SUFFIXES = ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki"))


def published(value: Published) -> str:
    """What a device publishes; quantities and versions are written as they are there."""
    if not isinstance(value, DeviceAttribute):
        return str(value)
    if value.version is not None:
        return value.version
    if value.versions is not None:
        return _cut(f"[{', '.join(value.versions)}]")
    known = (value.int_, value.bool_, value.string, value.ints, value.bools, value.strings)
    found = next(each for each in known if each is not None)
    return _cut(_literal(list(found) if isinstance(found, tuple) else found))


def computed(value: Value) -> str:
    """What a part of an expression came to; "" if there are no short words for it."""
    return _cut(_worded(value))


def _worded(value: Value) -> str:
    match value:
        case Version(major, minor, patch, _, pre):
            ids = ".".join(text or str(number) for _, number, text in pre)
            return f"{major}.{minor}.{patch}{'-' if pre else ''}{ids}"
        case MutableQuantity(nano=nano):
            return _quantity(nano)
        case Type(name=name):
            return name
        case Duration() | Timestamp():
            return conversions.text(value)
        case Optional(values=()):
            return "optional.none()"
        case Optional(values=(inner,)):
            text = _worded(inner)
            return text and f"optional.of({text})"
    if type(value) in _LISTS:
        texts = [_worded(item) for item in value[:_LONGEST]]
        return f"[{', '.join(texts)}]" if all(texts) else ""
    return _literal(value) if type(value) in _SIMPLE else ""


_SIMPLE = (bool, int, Uint, float, str, bytes, type(None))


def _quantity(nano: int) -> str:
    whole, rest = divmod(abs(nano), _UNIT)
    sign = "-" if nano < 0 else ""
    if rest:
        return f"{sign}{whole}.{rest:09d}".rstrip("0")
    for bits, suffix in _SUFFIXES:
        if whole and not whole % 2**bits:
            return f"{sign}{whole >> bits}{suffix}"
    return f"{sign}{whole}"


def _literal(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Uint():
            return f"{int(value)}u"
        case float():
            return conversions.text(value)
        case str():
            return f'"{value.translate(ESCAPES)}"'
        case bytes():
            return f'b"{value.decode("latin-1").translate(_BYTES)}"'
        case list():
            return f"[{', '.join(map(_literal, value))}]"
    return "null" if value is None else str(value)


_BYTES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 256))} | ESCAPES


def brief(node: Expr) -> str:
    """A part as its author might write it, with bare names for the values of the device."""
    return _cut(written(node, bare=True))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def written(node: Expr, *, bare: bool = False) -> str:
    """A part as its author might write it; `bare`: with bare names for values of the device."""
    if bare and (where := read(node)) is not None and not _is_alternative(node):
        return where.name
    match node.origin or node:
        case Literal(value=float() as value):
            text = _literal(value)
            return f"{text}.0" if text.lstrip("-").isdigit() else text
        case Literal(value=value):
            return _literal(value)
        case Ident(name=name):
            return name
        case Select(operand=operand, field=field):
            return f"{written(operand, bare=bare)}.{field}"
        case ListOf(items=items):
            return f"[{', '.join(written(item, bare=bare) for item in items)}]"
        case MapOf(entries=entries):
            parts = [(written(e.key, bare=bare), written(e.value, bare=bare)) for e in entries]
            inside = ", ".join(f"{key}: {value}" for key, value in parts)
            return f"{{{inside}}}"
        case Construct(name=name, entries=entries):
            parts = [(written(e.key).strip('"'), written(e.value, bare=bare)) for e in entries]
            return f"{name}{{{', '.join(f'{key}: {value}' for key, value in parts)}}}"
        case Again(of=of):
            return written(of, bare=bare)
        case Call() as call:
            return _written_call(call, bare=bare)
    return "…"


def _is_alternative(node: Expr) -> bool:
    return isinstance(node, Call) and node.function == "orValue"


def _written_call(node: Call, *, bare: bool) -> str:
    args = [written(arg, bare=bare) for arg in node.args]
    name = node.function
    match name:
        case syntax.INDEX:
            return f"{args[0]}[{args[1]}]"
        case syntax.OPTIONAL_INDEX:
            return f"{args[0]}[?{args[1]}]"
        case syntax.OPTIONAL_SELECT:
            return f"{args[0]}.?{args[1][1:-1]}"
        case syntax.EITHER:
            return f"({args[0]} ? {args[1]} : {args[2]})"
        case syntax.IN:
            return f"{args[0]} in {args[1]}"
        case syntax.NOT | syntax.NEGATE:
            return f"{name[0]}{args[0]}"
    if name.startswith("_") and name.endswith("_"):
        return f"({f' {name[1:-1]} '.join(args)})"
    call = f"{name}({', '.join(args)})"
    return call if node.target is None else f"{written(node.target, bare=bare)}.{call}"
