"""What a report says besides its evidence."""

from fettle.health.signals.reports import SignalReport
from fettle.model import Evidence, EvidenceKind, Family, NodeId, Subject, UnitId


def fault(subject: Subject) -> Evidence:
    return Evidence(
        subject=subject,
        family=Family.MEMORY,
        kind=EvidenceKind.LEVEL,
        weight=0.5,
        source="a",
        reporter="Node n",
        text="text",
        observed_at=0.0,
    )


def test_the_units_it_names_are_those_that_are_ill_or_whose_monitor_is_silent() -> None:
    ill, left = UnitId("n", "r", "GPU-0", ("index:0",)), UnitId("n", "r", "GPU-1")
    report = SignalReport("Node n", (fault(ill), fault(NodeId("n"))), stale=(fault(left),))
    assert report.units == {ill, left}
    assert SignalReport("Node n", (fault(NodeId("n")),)).units == frozenset()
