"""What can be drawn of a resource: for every reader the same units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.cluster import PluginView, UnitView
from fettle.model import BUILT_IN, State
from fettle.scheduling.judge.units import Draw, allocatable_units, free_units
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet
from tests.fettle.scheduling.counting import Counting

TRAINING = BUILT_IN["training"].placement
DEAD = b.health(0.0)


def test_units_in_use_are_free_no_more_and_count_all_the_same() -> None:
    plugin = PluginView("r", 8, 8, (UnitView("a", DEAD, allocated=1, count=4),))
    assert free_units(plugin, 1) == Draw(((DEAD, 3),), 4)
    assert allocatable_units(plugin) == Draw(((DEAD, 4),), 4)


def test_the_scheduler_knows_better_how_many_are_free() -> None:
    plugin = PluginView("r", 8, 8, tuple(UnitView(f"u{i}", DEAD, 1) for i in range(8)))
    assert free_units(plugin, 2) == Draw((), 2)


def test_of_more_units_than_there_are_the_worst_count() -> None:
    worn = b.health(0.5)
    plugin = PluginView("r", 2, 2, (UnitView("a", worn, count=2), UnitView("b", DEAD)))
    assert allocatable_units(plugin) == Draw(((DEAD, 1), (worn, 1)), 0)


NUMBERS = st.integers(0, 9)
UNITS = st.builds(
    lambda score, allocated, count, withdrawn: UnitView(
        "u", b.health(score), allocated, count, min(withdrawn, count)
    ),
    st.sampled_from([0.0, 0.5, 0.9]),
    NUMBERS,
    NUMBERS,
    NUMBERS,
)


@given(st.lists(UNITS, max_size=5), NUMBERS, NUMBERS, NUMBERS)
def test_no_more_of_a_kind_is_drawn_than_is_left_of_it(
    units: list[UnitView], capacity: int, allocatable: int, least: int
) -> None:
    plugin = PluginView("r", capacity, allocatable, tuple(units))
    for drawn in (allocatable_units(plugin), free_units(plugin, least)):
        for score in (0.0, 0.5, 0.9):
            number = sum(n for health, n in drawn.named if health.score == score)
            assert number <= sum(u.left for u in units if u.health.score == score)
        assert drawn.rest >= 0
        assert all(number > 0 for _, number in drawn.named)
    assert allocatable_units(plugin).size == allocatable
    assert free_units(plugin, least).size >= least


def lost(name: str, left: int) -> dict[str, object]:
    """A node with two dead GPUs of eight."""
    entries = [f"ErrorCode:79 GPU_UUID:GPU-{i} x Recommended Action=RESTART_BM;" for i in (4, 5)]
    bad = {"type": "SysLogsXIDError", "status": "True", "message": "".join(entries)}
    status = {
        "capacity": {"nvidia.com/gpu": "8"},
        "allocatable": {"nvidia.com/gpu": str(left)},
        "conditions": [bad],
    }
    return {"metadata": {"name": name}, "status": status}


@pytest.mark.parametrize(("left", "is_open", "share"), [(8, True, 0.25), (6, False, 0.0)])
def test_gpus_that_are_withdrawn_everywhere_leave_the_breaker_closed(
    left: int, is_open: bool, share: float
) -> None:
    fleet = Fleet()
    for i in range(12):
        fleet.put(kinds.NODE, lost(f"n{i}", left))
    nodes = dict(fleet.look().nodes)
    assert {node.health.state for node in nodes.values()} == {State.HEALTHY}
    breaker = Counting(TRAINING)
    breaker.update(nodes, nodes)
    assert breaker.share("nvidia.com/gpu") == share
    assert bool(breaker.open) is is_open
