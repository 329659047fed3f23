"""SignalReport: what one object says about health at one moment, and what its silence means.

Made by the other modules here, folded into the ledger by the health book.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from fettle.api import kinds
from fettle.model import (
    Evidence,
    EvidenceKind,
    Hold,
    NodeId,
    ReporterId,
    Source,
    Subject,
    UnitId,
    UnknownSignal,
)

TEXT_LIMIT = 240
"""Maximum length of an explanation in characters. What producers write can be far longer."""
_LOOKED_AT = 8 * TEXT_LIMIT
"""Characters of a text that make its line."""


class Fault(NamedTuple):
    """Evidence, with an identity that stays the same as long as it is the same fault."""

    identity: str
    evidence: Evidence


class StatedRepair(NamedTuple):
    """Everything on `subject` was mended `at` a time; `how` that was said."""

    subject: Subject
    at: float
    how: str


class SignalReport(NamedTuple):
    """What one object says now: the faults that stand, and explicit all-clears.

    - `cleared`: each (subject, source) that is said to be fine, whoever reported it before.
    - `settled`: sources about which this report is complete. What this reporter said earlier under
      such a source, and does not repeat, is over. `absent_is_clear`: true of all sources.
    - Otherwise silence is not an all-clear: a level fault that is no longer reported decays.
    - `retracted`: subjects of which this reporter was wrong. What it said of them, and does not
      repeat, is gone without a trace.
    - `silent`: subjects of which nothing is known now: what was said of them is not over.
    - `stale`: level faults whose producer fell silent. They decay from their `observed_at`.
    - `uid`: a reporter with another UID is another object of the same name.
    - `boot`: a changed boot id clears what was latched and is not repeated, and each (subject,
      source) in `ended_by_repair`, whoever reported it, as one of `repairs` of that subject does
      with what came before it. What a source says counts as repeated only if it was `renewed`
      since, by the node's clock.
    - `remediated`: the faults that a remediation has dealt with, unless they came after it; None if
      the object mentions no remediation.
    - `unknown_signals`: what it says that no rule names.
    - `node`: the node that it speaks for. `repairs`: what an operator says was mended on it.
    - `named`: units of which it says nothing but their names.
    - `holds`: an operator's holds that are in force. Their evidence is among the rest.
    """

    reporter: ReporterId
    evidence: tuple[Evidence, ...]
    cleared: frozenset[tuple[Subject, Source]] = frozenset()
    absent_is_clear: bool = False
    settled: frozenset[Source] = frozenset()
    retracted: frozenset[Subject] = frozenset()
    uid: str = ""
    boot: str = ""
    ended_by_repair: frozenset[tuple[Subject, Source]] = frozenset()
    stale: tuple[Evidence, ...] = ()
    remediated: tuple[Fault, ...] | None = None
    unknown_signals: tuple[UnknownSignal, ...] = ()
    holds: tuple[Hold, ...] = ()
    node: NodeId | None = None
    repairs: tuple[StatedRepair, ...] = ()
    silent: frozenset[Subject] = frozenset()
    named: frozenset[UnitId] = frozenset()
    renewed: Mapping[Source, float] = {}

    @property
    def units(self) -> frozenset[UnitId]:
        """The units that it names."""
        remediated = (fault.evidence for fault in self.remediated or ())
        said = (one.subject for one in (*self.evidence, *self.stale, *remediated))
        return self.named.union(subject for subject in said if isinstance(subject, UnitId))


def node_reporter(node: str) -> ReporterId:
    """A Node that reports."""
    return ReporterId(kinds.NODE.name, node)


def heaviest(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """The heaviest evidence for each subject, source and family.

    It stands for all the others of its group, so it gets the taints of all: it is tolerated only
    together with them.
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
    return one.weight, one.kind is EvidenceKind.LATCHED, one.said


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, characters that change the direction of text, and halves of surrogate
pairs."""


def without_middle(text: str, most: int = TEXT_LIMIT) -> str:
    """As `one_line`, of a text that says its cause at its end, as kubelets' do: what is too long
    lacks its middle."""
    if len(text) > _LOOKED_AT:
        text = f"{text[: _LOOKED_AT // 2]} … {text[-_LOOKED_AT // 2 :]}"
    line = " ".join(_CONTROL.sub(" ", text).split())
    half = (most - 3) // 2
    return line if len(line) <= most else f"{line[:half].rstrip()} … {line[-half:].lstrip()}"


def one_line(text: str) -> str:
    """The text as one line of at most TEXT_LIMIT characters, without any that could control a
    terminal."""
    line = " ".join(_CONTROL.sub(" ", text[:_LOOKED_AT]).split())
    is_whole = len(text) <= _LOOKED_AT and len(line) <= TEXT_LIMIT
    return line if is_whole else line[: TEXT_LIMIT - 1] + "…"
