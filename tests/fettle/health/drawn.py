"""Evidence and reports as Hypothesis draws them, and a book that is told them."""

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import strategies as st

from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.signals.reports import SignalReport, heaviest
from fettle.health.signals.rule_files import load_rules
from fettle.model import (
    DeviceId,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    Subject,
    UnitId,
)

T0 = 1_790_000_000.0

RULES = load_rules()

SUBJECTS: tuple[Subject, ...] = (
    DeviceId("gpu.nvidia.com", "gpu-1", "gpu-0"),
    NodeId("gpu-1"),
    UnitId("gpu-1", "nvidia.com/gpu", "GPU-1"),
)

KEY = SUBJECTS[0]

SOURCES = (Source(SourceKind.TAINT, "a"), Source(SourceKind.TAINT, "b"))

SAID = ("text", "text; no longer reported", "text; no longer reported, latched until it is cleared")

weights = st.floats(0.0, 1.0)

waits = st.floats(1.0, 20_000.0)


def evidence(kinds: Iterable[EvidenceKind] = EvidenceKind) -> st.SearchStrategy[Evidence]:
    return st.builds(
        Evidence,
        subject=st.sampled_from(SUBJECTS),
        family=st.sampled_from(Family),
        kind=st.sampled_from(list(kinds)),
        weight=weights,
        source=st.sampled_from(SOURCES),
        reporter=st.just(ReporterId("x")),
        said=st.sampled_from(SAID),
        observed_at=st.floats(T0 - 7200, T0),
        half_life_s=st.sampled_from([600.0, 3600.0, 86_400.0]),
        cap=weights,
        reporting_namespace=st.sampled_from(["", "team-a", "team-b"]),
        together=weights,
    )


def reports(kinds: Iterable[EvidenceKind] = EvidenceKind) -> st.SearchStrategy[list[SignalReport]]:
    """Reports of different reporters."""
    said = st.lists(st.lists(evidence(kinds), max_size=4), max_size=5)
    return said.map(
        lambda all_said: [
            SignalReport(who(i), heaviest(reported(who(i), part)))
            for i, part in enumerate(all_said)
        ]
    )


def who(number: int, kind: str = "r") -> ReporterId:
    return ReporterId(kind, str(number))


def reported(reporter: ReporterId, part: list[Evidence]) -> list[Evidence]:
    return [msgspec.structs.replace(e, reporter=reporter) for e in part]


def book() -> HealthBook:
    return HealthBook(HealthSettings(), RULES)


def told(said: Iterable[SignalReport], now: float = T0) -> HealthBook:
    filled = book()
    for report in said:
        filled.ledger.report(report, now)
    return filled


def assess(book: HealthBook, now: float = T0) -> Health:
    return book.assess(KEY, SUBJECTS, now)


def about_the_bus(kind: EvidenceKind, weight: float, **more: Any) -> Evidence:
    return Evidence(
        subject=KEY,
        family=Family.BUS,
        kind=kind,
        weight=weight,
        source=Source(SourceKind.TAINT, "a"),
        reporter=ReporterId("x"),
        said="text",
        observed_at=T0,
        **more,
    )
