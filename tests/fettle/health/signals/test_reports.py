"""The parts of a SignalReport: the units it names, and texts of one line."""

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.health.signals.reports import TEXT_LIMIT, SignalReport, one_line, without_middle
from fettle.model import (
    Evidence,
    EvidenceKind,
    Family,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    Subject,
    UnitId,
)

WHO = ReporterId("Node", "n")


def fault(subject: Subject) -> Evidence:
    return Evidence(
        subject=subject,
        family=Family.MEMORY,
        kind=EvidenceKind.LEVEL,
        weight=0.5,
        source=Source(SourceKind.TAINT, "a"),
        reporter=ReporterId("Node", "n"),
        said="text",
        observed_at=0.0,
    )


def test_the_units_it_names_are_those_that_are_ill_or_whose_monitor_is_silent() -> None:
    ill, left = UnitId("n", "r", "GPU-0", ("index:0",)), UnitId("n", "r", "GPU-1")
    report = SignalReport(
        ReporterId("Node", "n"), (fault(ill), fault(NodeId("n"))), stale=(fault(left),)
    )
    assert report.units == {ill, left}
    assert SignalReport(WHO, (fault(NodeId("n")),)).units == frozenset()


TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@pytest.mark.parametrize("told", [one_line, without_middle])
@given(text=st.text() | st.text("a\u202e\u2066\u200f\u2029"))
def test_no_text_can_steer_a_terminal_or_run_over_a_line(
    told: Callable[[str], str], text: str
) -> None:
    shown = told(text)
    assert len(shown) <= TEXT_LIMIT
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert not [c for c in shown if unicodedata.bidirectional(c) in TURNING]


def test_the_end_of_a_kubelets_text_stays_since_the_cause_is_there() -> None:
    message = f"Allocate failed due to rpc error: {'desc = ' * 400}GPU is lost, which is unexpected"
    told = without_middle(message)
    assert told.startswith("Allocate failed due to rpc error")
    assert told.endswith("GPU is lost, which is unexpected")
    assert " … " in told


def test_an_escape_sequence_is_only_its_letters() -> None:
    assert one_line("held \x1b]0;PWN\x07\x1b[31mred") == "held ]0;PWN [31mred"
