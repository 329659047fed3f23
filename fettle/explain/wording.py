"""Reasons as `explain` prints them, and as JSON has them: code, text and fields. Pure."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from fettle.model import DeviceId, Health, Source, proven_evidence, reasons
from fettle.model.reasons import Reason

LOWERED = "lowered by what tenants could cause"
"""Follows a state and its score, where the score is worse than what the state goes by."""
SUSPECTED = "by what tenants could cause, which refuses nobody"
"""Follows the state that a score has, where refusals go by a better one."""


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
