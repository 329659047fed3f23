"""How the reasons of many nodes are counted."""

from fettle.model.reasons import ObjectUnreadable
from fettle.records import Counted


def test_nodes_that_are_added_count_beside_those_of_the_same_code() -> None:
    first, second = ObjectUnreadable("a"), ObjectUnreadable("b")
    counted = Counted({first.code: 2}, first, ("n1", "n2")).adding({"n3": second})
    assert counted == Counted({first.code: 3}, first, ("n1", "n2", "n3"))
