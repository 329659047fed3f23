"""What one object says about health at one moment, and what its silence means.

Made by `gathering`, folded by the health book. Imports only the model.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from fettle.api.meta import ObjectMeta
from fettle.model import HOLD, Evidence, EvidenceKind, Family, Subject, Unheard, UnitId

TEXT_LIMIT = 240
"""Characters of an explanation; what producers write can be far longer."""


class Fault(NamedTuple):
    """Evidence, and a word that stays the same while it is the same fault."""

    word: str
    evidence: Evidence


class SignalReport(NamedTuple):
    """What one object says now: faults that stand, and explicit all-clears.

    `cleared` names a (subject, source) that is said to be fine, by whoever reported it before;
    `settled` names sources about which this report is the whole truth: what they said earlier
    through this reporter, and say no longer, is over. `absent_is_clear` holds that for all its
    sources. Where none of these applies, silence is not an all-clear: a level fault that is no
    longer reported decays, and so does one of those `left` by a reporter that fell silent, at its
    `observed_at`. Under another `uid` a reporter is another object of the same name. A changed
    `boot` id clears what was latched and is not said again, and what others told of the boot
    before: each (subject, source) `of_boot`. `remediated`, where the object tells of
    a remediation, are the faults that it has dealt with, if they did not come after. What is
    `unheard` says nothing by the rules as they are.
    """

    reporter: str
    evidence: tuple[Evidence, ...]
    cleared: frozenset[tuple[Subject, str]] = frozenset()
    absent_is_clear: bool = False
    settled: frozenset[str] = frozenset()
    uid: str = ""
    boot: str = ""
    of_boot: frozenset[tuple[Subject, str]] = frozenset()
    left: tuple[Evidence, ...] = ()
    remediated: tuple[Fault, ...] | None = None
    unheard: tuple[Unheard, ...] = ()

    @property
    def units(self) -> frozenset[UnitId]:
        """The units that it names."""
        remediated = (fault.evidence for fault in self.remediated or ())
        said = (one.subject for one in (*self.evidence, *self.left, *remediated))
        return frozenset(subject for subject in said if isinstance(subject, UnitId))


def heaviest(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """One for each subject, source and family: what else was said there weighs no more.

    It stands for all of them, so it is tolerated only with all of their taints.
    """
    chosen: dict[object, Evidence] = {}
    for one in evidence:
        key = (one.subject, one.source, one.family, one.kind is EvidenceKind.UNKNOWN)
        other = chosen.get(key)
        if other is None:
            chosen[key] = one
            continue
        weightier = max(one, other, key=_rank)
        taints = tuple(sorted({*one.taints, *other.taints}))
        chosen[key] = msgspec.structs.replace(weightier, taints=taints)
    return tuple(chosen.values())


def _rank(one: Evidence) -> tuple[float, bool, str]:
    return one.weight, one.kind is EvidenceKind.LATCHED, one.text


HOLD_SOURCE = f"annotation {HOLD}"


def operator_holds(
    metadata: ObjectMeta, reporter: str, subjects: Iterable[Subject], now: float
) -> Iterator[Evidence]:
    reason = metadata.annotation(HOLD)
    if reason is None or reason.strip().lower() == "false":
        return
    for subject in subjects:
        yield Evidence(
            subject=subject,
            family=Family.OPERATOR,
            kind=EvidenceKind.LATCHED,
            weight=1.0,
            source=HOLD_SOURCE,
            reporter=reporter,
            text=one_line(f"held by an operator: {reason.strip() or 'no reason given'}"),
            observed_at=now,
        )


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that turn the direction of text, and halves of surrogate pairs."""


def one_line(text: str) -> str:
    """One line of at most `TEXT_LIMIT` characters, none of which could steer a terminal."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    return line if len(line) <= TEXT_LIMIT else line[: TEXT_LIMIT - 1] + "…"
