"""What a report says besides its evidence."""

from fettle.health.signals.reports import Report
from fettle.model.health import Evidence, Family, Kind, NodeId, Subject, UnitId


def fault(subject: Subject) -> Evidence:
    return Evidence(
        subject=subject,
        family=Family.MEMORY,
        kind=Kind.LEVEL,
        weight=0.5,
        source="a",
        reporter="Node n",
        text="text",
        observed_at=0.0,
    )


def test_the_units_it_names_are_those_that_are_ill_or_whose_monitor_is_silent() -> None:
    ill, left = UnitId("n", "r", "GPU-0", ("index:0",)), UnitId("n", "r", "GPU-1")
    report = Report("Node n", (fault(ill), fault(NodeId("n"))), left=(fault(left),))
    assert report.units == {ill, left}
    assert Report("Node n", (fault(NodeId("n")),)).units == frozenset()
