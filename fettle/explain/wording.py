"""Reasons as `explain` prints them, and as JSON has them: code, text and fields; what each code
means; and JSON fields by the names that the version before gave them. Pure."""

import inspect
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from fettle.model import BadInput, DeviceId, Health, Source, proven_evidence, reasons
from fettle.model.reasons import Reason

JSON_VERSION = 1
"""The version of what `/explain` and `/devices` answer; see `docs/explain-json.md`."""

LOWERED = "lowered by what tenants could cause"
"""Follows a state and its score, where the score is worse than what the state goes by."""
SUSPECTED = "by what tenants could cause, which refuses nobody"
"""Follows the state that a score has, where refusals go by a better one."""
_FORMER = {"demand": "ask", "rejected": "unfit", "unknownSignals": "unheard"}


def text(reason: Reason) -> str:
    """The reason as a sentence, or a part of one."""
    return str(reason)


def why_withheld(reason: Reason) -> str:
    """Why devices of a pool cannot be allocated now, for a line that names the pool anyway."""
    match reason:
        case reasons.PoolNotWhole():
            return f"pool {reason.flaw}"
        case reasons.PoolBetweenGenerations():
            return "pool between generations: its driver is replacing its slices"
        case reasons.SchedulingError():
            return f"the scheduler's attempts here end in an error: {reason.cause}"
    return text(reason)


def texts(found: Iterable[Reason]) -> list[str]:
    """Each reason as a sentence."""
    return [text(reason) for reason in found]


def plain_reason(reason: Reason) -> dict[str, Any]:
    """The reason for JSON: `code`, `text`, and its fields in camelCase, reasons within it too."""
    fields = {_camel(name): _plain(getattr(reason, name)) for name in reason.__struct_fields__}
    return {"code": reason.code, "text": text(reason), **fields}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _plain(value: object) -> object:
    match value:
        case Reason():
            return plain_reason(value)
        case Health():
            proven = proven_evidence(value.evidence)
            evidence = {"evidence": proven[0].evidence.text} if proven else {}
            return {"state": str(value.state), "proven": round(value.proven, 4), **evidence}
        case DeviceId() | Source() | StrEnum():
            return str(value)
        case msgspec.Struct():
            names = value.__struct_fields__
            return {_camel(name): _plain(getattr(value, name)) for name in names}
        case tuple():
            return [_plain(each) for each in value]
    return value


_SCHEDULER = "The scheduler's own checks say so: the pod does not go there, with or without Fettle."
_NOTE = "A note: no answer depends on it."
_EFFECTS = {
    "policy": "A refusal of Fettle's, which counts in mode enforce. Another node, a repair, the end"
    " of a hold or another policy ends it.",
    "units": _SCHEDULER,
    "claims": _SCHEDULER,
    "allocator": _SCHEDULER,
    "obstacles": _SCHEDULER,
    "attempt_errors": "The scheduler's attempt ends in an error here, which may keep the pod off "
    "all other nodes too.",
    "undecided": "It is allowed: what cannot be decided refuses nothing.",
    "notes": _NOTE,
    "pods": _NOTE,
}
"""By module of the reasons: what comes of one."""
_RANKS = "It ranks the node lower, and refuses nobody."
_OWN_EFFECTS = {
    "NodeRequirementUndecided": _EFFECTS["undecided"],
    "DeviceRequirementUndecided": _EFFECTS["undecided"],
    "RanHere": "It ranks the node higher, and refuses nobody.",
    **dict.fromkeys(
        ("Maintenance", "DriverIsNew", "FailedHere", "SlowsGang", "SlowsRestOfGang", "GangIsSlow"),
        _RANKS,
    ),
}
"""By code, where more than one thing comes of the reasons of a module."""


def list_codes() -> list[dict[str, Any]]:
    """Each code: what it means, of what kind it is, what comes of it, and its fields."""
    return [_described(kind) for kind in sorted(_codes(Reason), key=lambda kind: kind.__name__)]


def describe_code(code: str) -> dict[str, Any]:
    """Raises BadInput with near codes."""
    listed = list_codes()
    found = next((one for one in listed if one["code"].lower() == code.lower()), None)
    if found is None:
        from fettle.explain.finding import near  # what looks for devices is heavy

        like = near(code, [one["code"] for one in listed])
        every = "`fettle explain reason` lists all"
        raise BadInput(f"there is no reason code {code[:80]!r}{like}; {every}", status=404)
    return found


def _codes(of: type[Reason]) -> Iterator[type[Reason]]:
    """Those that nothing is derived from: the others are never made."""
    for kind in of.__subclasses__():
        if kind.__subclasses__():
            yield from _codes(kind)
        else:
            yield kind


def _described(kind: type[Reason]) -> dict[str, Any]:
    about = " ".join((inspect.getdoc(kind) or "").split())
    for name in kind.__struct_fields__:
        about = about.replace(f"`{name}`", f"`{_camel(name)}`")  # as JSON has them
    heading = inspect.getdoc(sys.modules[kind.__module__]) or ""
    return {
        "code": kind.__name__,
        "about": about,
        "kind": heading.partition("\n")[0].partition(". ")[0].rstrip("."),
        "effect": _NOTE if about.startswith("A note") else _effect(kind),
        "fields": [_camel(name) for name in kind.__struct_fields__],
    }


def _effect(kind: type[Reason]) -> str:
    return _OWN_EFFECTS.get(kind.__name__) or _EFFECTS[kind.__module__.rpartition(".")[2]]


def with_former(fields: dict[str, Any]) -> dict[str, Any]:
    """An object of JSON, with those of its fields that were renamed by both names."""
    return fields | {old: fields[new] for new, old in _FORMER.items() if new in fields}
