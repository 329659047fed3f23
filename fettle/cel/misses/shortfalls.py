"""Why a device does not meet conditions, in words for people: "memory 80Gi < 96Gi".

Runs in the worker. What is said holds on the device: its parts are evaluated there.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from fettle.cel.language import syntax
from fettle.cel.language.reading import reads
from fettle.cel.language.syntax import Call, Expr, Literal, Select
from fettle.cel.library.values import Optional
from fettle.cel.misses.conditions import is_constant, presence, read, scalar, sides
from fettle.cel.misses.trials import Trial
from fettle.cel.misses.wording import brief, computed, published
from fettle.cel.runtime.outcomes import OutcomeKind
from fettle.cel.runtime.rows import AttributeRead

_MOST_CONDITIONS = 4
_MOST_ALTERNATIVES = 3
_MOST_VALUES = 3
_NEITHER = "neither "
_QUOTED = {"quantity", "semver"}


def shortfall(conditions: Sequence[tuple[Expr, Trial]]) -> str:
    """Why a device does not meet conditions, none of which is true on it: "memory 80Gi < 96Gi and
    model "A100" != "H100"", the first few of them."""
    said = islice(conditions, _MOST_CONDITIONS)
    facts = list(dict.fromkeys(fact for each in said for fact in _why(*each, wanted=True)))
    more = len(conditions) - _MOST_CONDITIONS + max(0, len(facts) - _MOST_CONDITIONS)
    facts = facts[:_MOST_CONDITIONS]
    if more > 0:
        facts.append(f"{more} more")
    joint = ", and " if any(fact.startswith(_NEITHER) for fact in facts) else " and "
    return joint.join(facts)


def failing(parts: Iterable[Expr], trial: Trial, *, wanted: bool) -> list[Expr]:
    """Those that surely are not as wanted."""
    kinds = (OutcomeKind.WOULD_ABORT, OutcomeKind.NO_MATCH if wanted else OutcomeKind.MATCH)
    return [part for part in parts if trial.outcome(part).kind in kinds]


def _why(condition: Expr, trial: Trial, *, wanted: bool) -> list[str]:
    """What is so on the device, which keeps a condition from being true, or false."""
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
    """That a condition is true, or false, with the values of the device: so or not."""
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
    """The first value that a condition which ends in an error needs, and the device lacks."""
    if trial.outcome(condition).kind is not OutcomeKind.WOULD_ABORT:
        return None
    left = [condition]
    while left:
        node = left.pop(0)
        where = read(node)
        if where is not None and trial.look(where) is None and _is_strict(node):
            return where
        left.extend(syntax.children(node))
    return None


def _is_strict(node: Expr) -> bool:
    """Whether an expression minds that a value is missing."""
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
    """A side of a comparison with what the device has for it."""
    known = trial.value(node)
    value = computed(known[0]) if known else ""
    if (where := read(node)) is not None:
        found = trial.look(where)
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
    """What the device has where an expression looks, after the expression."""
    named = [read for read in reads(condition) or () if read.name]
    texts = _bounded([f"{each.name} {_published(each, trial)}" for each in named], _MOST_VALUES)
    return f" with {', '.join(texts)}" if texts else ""


def _published(where: AttributeRead, trial: Trial) -> str:
    found = trial.look(where)
    return "(none)" if found is None or isinstance(found, bool) else published(found)


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _bounded(texts: list[str], most: int = _MOST_ALTERNATIVES) -> list[str]:
    return texts if len(texts) <= most else [*texts[:most], "…"]
