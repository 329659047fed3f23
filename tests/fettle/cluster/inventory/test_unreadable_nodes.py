"""The readable parts of a Node that cannot be read as a whole still count."""

from typing import Any

import pytest

from fettle.api import kinds
from fettle.cluster.view import NodeView
from fettle.model import EvidenceKind, State
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, node, slice_

MALFORMED = {"conditions": [{"type": 3}]}
HELD = {"fettle.dev/hold": "mine"}


def conditions(*types: str) -> dict[str, Any]:
    return {"conditions": [{"type": 3}, *({"type": t, "status": "True"} for t in types)]}


def look(fleet: Fleet) -> NodeView:
    return fleet.look().nodes["n"]


def test_a_hold_counts_though_its_node_could_never_be_read(fleet: Fleet) -> None:
    fleet.put(kinds.SLICE, slice_())
    fleet.take(kinds.NODE, node(annotations=HELD, status=MALFORMED))
    seen = look(fleet)
    assert (seen.health.held, seen.health.score) == (True, 0.0)
    assert all(d.health.held for pool in seen.pools for d in pool.devices)
    assert seen.unread
    assert seen.quarantined
    fleet.take(kinds.NODE, node(status=MALFORMED))
    assert (look(fleet).health.state, look(fleet).health.held) == (State.UNKNOWN, False)


def test_a_hold_set_while_its_node_cannot_be_read_counts(fleet: Fleet) -> None:
    fleet.take(kinds.NODE, node())
    fleet.take(kinds.NODE, node(status=MALFORMED))
    assert (look(fleet).health.state, look(fleet).unread) == (State.UNKNOWN, False)
    fleet.take(kinds.NODE, node(annotations=HELD, status=MALFORMED))
    assert look(fleet).health.held
    assert look(fleet).plugins[b.RESOURCE].capacity == 8


def test_unreadable_parts_of_a_node_stay_as_they_were(fleet: Fleet) -> None:
    fleet.take(
        kinds.NODE,
        node(
            annotations=HELD, status={"conditions": conditions("KernelDeadlock")["conditions"][1:]}
        ),
    )
    before = look(fleet).health.score
    fleet.take(kinds.NODE, node(annotations=HELD | {"x": 5}, status=MALFORMED))
    assert look(fleet).health.score == before
    assert look(fleet).health.held


def test_readable_entries_of_a_broken_part_are_updated(fleet: Fleet) -> None:
    """A hold that is taken back, one that is set, a condition that cleared, a new one."""
    ill = conditions("KernelDeadlock", "ReadonlyFilesystem")["conditions"][1:]
    fleet.take(kinds.NODE, node(annotations=HELD, status={"conditions": ill}))
    assert look(fleet).health.held
    well = {"type": "KernelDeadlock", "status": "False"}
    now = [*conditions("XfsShutdown")["conditions"], well]
    fleet.take(kinds.NODE, node(labels={"a": 5}, annotations={}, status={"conditions": now}))
    seen = look(fleet)
    standing = {
        str(w.evidence.source)
        for w in seen.health.evidence
        if w.evidence.kind is EvidenceKind.LEVEL
    }
    assert standing == {"condition ReadonlyFilesystem", "condition XfsShutdown"}
    assert not seen.health.held
    fleet.take(kinds.NODE, node(annotations=HELD | {"x": 5}, status={"conditions": ill}))
    assert look(fleet).health.held


def test_readable_parts_count_though_the_node_was_never_readable_as_a_whole(fleet: Fleet) -> None:
    raw = node(
        labels={"zone": "a", "autopilot.ibm.com/gpuhealth": "EVICT"},
        status=conditions("KernelDeadlock"),
    )
    raw["spec"] = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    fleet.take(kinds.NODE, raw)
    seen = look(fleet)
    assert seen.labels["zone"] == "a"
    assert [t.key for t in seen.taints] == ["k"]
    assert seen.health.score == pytest.approx(0.25 * 0.1)


def test_a_node_that_becomes_readable_is_like_any_other(fleet: Fleet) -> None:
    fleet.take(kinds.NODE, node(annotations=HELD, status=MALFORMED))
    look(fleet)
    fleet.take(kinds.NODE, node(annotations=HELD))
    seen = look(fleet)
    assert (seen.unread, seen.quarantined, seen.health.held) == (False, (), True)
    fleet.take(kinds.NODE, node())
    assert look(fleet).health.score == 1.0


def test_a_hold_goes_with_its_node(fleet: Fleet) -> None:
    fleet.take(kinds.NODE, node(annotations=HELD, status=MALFORMED))
    look(fleet)
    fleet.inventory.remove(kinds.NODE, "n", fleet.now)
    assert "n" not in fleet.look().nodes
    fleet.take(kinds.NODE, node(status=MALFORMED))
    assert not look(fleet).health.held


def test_an_unreadable_node_keeps_nothing_of_an_earlier_node_of_its_name(fleet: Fleet) -> None:
    fleet.take(kinds.NODE, node(uid="1", annotations=HELD, labels={"zone": "a"}))
    look(fleet)
    fleet.take(kinds.NODE, node(uid="2", labels={"rack": 7}))
    seen = look(fleet)
    assert (seen.health.held, dict(seen.labels), seen.unread) == (False, {}, True)


def test_a_node_that_a_list_names_but_nobody_can_read_stays(fleet: Fleet) -> None:
    fleet.inventory.begin_list(kinds.NODE)
    fleet.take(kinds.NODE, node(annotations=HELD, status=MALFORMED))
    fleet.inventory.end_list(kinds.NODE, fleet.now)
    assert look(fleet).health.held
    fleet.inventory.begin_list(kinds.NODE)
    fleet.inventory.end_list(kinds.NODE, fleet.now)
    assert "n" not in fleet.look().nodes
