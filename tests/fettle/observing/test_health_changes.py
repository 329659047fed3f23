"""What the log shows of nodes and devices whose state changes, and how devices are counted."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from fettle.api import kinds
from fettle.cluster import EMPTY, NodeView, PluginView, UnitView, View
from fettle.model import SOUND, Health, State
from fettle.observing.health_changes import MOST, count_devices, log_health_changes
from fettle.pacing import run_within
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, node, slice_

ILL = b.health(0.1, text="XID 79")
FAIR = b.health(0.6, text="hot")


def logged(before: View, after: View, changed: Iterable[str] | None = None) -> list[dict[str, Any]]:
    names = before.nodes.keys() | after.nodes.keys() if changed is None else changed
    with capture_logs() as logs:
        log_health_changes(before, after, frozenset(names))
    assert {log["log_level"] for log in logs} <= {"info"}
    return [dict(log) for log in logs]


def lines(before: Iterable[NodeView], after: Iterable[NodeView]) -> list[tuple[str, str, str]]:
    """Subject, state before and state after of each line."""
    lines_logged = logged(b.view(*before), b.view(*after))
    return [(line["subject"], line["before"], line["after"]) for line in lines_logged]


def units(name: str, own: Health = SOUND, **healths: Health) -> NodeView:
    views = tuple(UnitView(unit, health) for unit, health in healths.items())
    plugins = {b.RESOURCE: PluginView(b.RESOURCE, 8, 8, views)}
    return msgspec.structs.replace(b.node(name, own=own), plugins=plugins)


def devices(name: str, own: Health = SOUND, **healths: Health) -> NodeView:
    made = tuple(
        msgspec.structs.replace(b.device(device, pool=name, local=name), health=health)
        for device, health in healths.items()
    )
    return b.node(name, own=own, pools=(b.pool(*made, name=name),))


def test_a_change_is_logged_with_both_states_the_score_and_the_reason() -> None:
    (line,) = logged(b.view(b.node("n1")), b.view(b.node("n1", own=ILL)))
    assert line == {
        "log_level": "info",
        "event": "health changed",
        "subject": "node n1",
        "before": "Healthy",
        "after": "Unhealthy",
        "score": 0.1,
        "why": "XID 79",
    }
    (back,) = logged(b.view(b.node("n1", own=ILL)), b.view(b.node("n1")))
    assert (back["before"], back["after"], back["score"]) == ("Unhealthy", "Healthy", 1.0)
    assert "why" not in back


def test_a_change_of_the_score_alone_is_not_logged() -> None:
    worse = b.health(0.5, text="hotter")
    assert lines([b.node("n1", own=FAIR)], [b.node("n1", own=worse)]) == []
    assert logged(b.view(b.node("n1")), b.view(b.node("n1", own=ILL)), changed=()) == []


def test_a_unit_without_evidence_has_the_health_of_its_node() -> None:
    unit = f"{b.RESOURCE} a on n1"
    assert lines([units("n1")], [units("n1", a=ILL)]) == [(unit, "Healthy", "Unhealthy")]
    assert lines([units("n1", a=ILL)], [units("n1")]) == [(unit, "Unhealthy", "Healthy")]
    assert lines([units("n1", FAIR)], [units("n1", FAIR, a=ILL)]) == [
        (unit, "Degraded", "Unhealthy")
    ]


def test_devices_that_change_as_their_node_does_are_not_logged() -> None:
    before = devices("n1", a=SOUND, b=ILL)
    assert lines([before], [devices("n1", FAIR, a=FAIR, b=ILL)]) == [
        ("node n1", "Healthy", "Degraded")
    ]


def test_what_is_new_or_gone_is_logged_only_if_it_is_not_healthy() -> None:
    gpu = f"{b.DRIVER}/n1/a"
    assert lines([b.node("n1")], [devices("n1", a=SOUND)]) == []
    assert lines([b.node("n1")], [devices("n1", a=ILL)]) == [(gpu, "new", "Unhealthy")]
    assert lines([devices("n1", a=ILL)], [b.node("n1")]) == [(gpu, "Unhealthy", "gone")]
    assert lines([], [b.node("n1")]) == []
    assert lines([b.node("n1")], []) == []
    assert lines([], [devices("n1", ILL, a=ILL)]) == [("node n1", "new", "Unhealthy")]
    assert lines([devices("n1", ILL, a=ILL)], []) == [("node n1", "Unhealthy", "gone")]


def test_a_device_that_is_withheld_is_not_gone() -> None:
    before = devices("n1", a=ILL)
    (pool,) = before.pools
    hidden = msgspec.structs.replace(pool, devices=(), withheld=pool.devices)
    assert lines([before], [msgspec.structs.replace(before, pools=(hidden,))]) == []


def test_a_network_device_is_logged_once_however_many_nodes_see_it() -> None:
    names = [f"n{i}" for i in range(8)]
    sound, ill = b.pool(b.device("fab", local="")), b.pool(b.device("fab", 0.1, local=""))
    before = [b.node(n, pools=(sound,)) for n in names]
    after = [b.node(n, pools=(ill,)) for n in names]
    assert lines(before, after) == [(f"{b.DRIVER}/n/fab", "Healthy", "Unhealthy")]
    apart = [b.node(n, pools=(msgspec.structs.replace(ill),)) for n in names]
    assert lines(before, apart) == [(f"{b.DRIVER}/n/fab", "Healthy", "Unhealthy")]
    assert lines(after, [*after, b.node("n8", pools=(ill,))]) == []


def test_of_many_changes_the_worst_are_logged_and_the_rest_counted() -> None:
    names = [f"n{i:02}" for i in range(60)]
    before = b.view(*(b.node(n) for n in names))
    after = b.view(*(b.node(n, own=ILL if n == "n33" else FAIR) for n in names))
    lines_logged = logged(before, after)
    assert len(lines_logged) == MOST + 1
    assert lines_logged[0]["subject"] == "node n33"
    assert lines_logged[-1]["event"] == "health changed of more nodes and devices than are logged"
    assert lines_logged[-1]["more"] == 60 - MOST


def test_of_the_first_view_only_counts_are_logged() -> None:
    nodes = [b.node("n1", own=FAIR), b.node("n2", gpus=7), devices("n3", a=ILL, b=SOUND)]
    (line,) = logged(EMPTY, b.view(*nodes))
    assert line["event"] == "health at the start"
    assert line["nodes"] == {"Healthy": 2, "Degraded": 1}
    assert line["devices"] == {"Healthy": 8, "Unhealthy": 1}


def test_the_log_shows_a_fault_begin_and_end() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("n", gpus=0))
    lines_logged = []
    taint = [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoExecute"}]
    for taints in ([], taint, []):
        fleet.put(kinds.SLICE, slice_("n", 2, taints=taints))
        before = fleet.view
        lines_logged += logged(before, fleet.look(), fleet.changed)
        fleet.now += 60
    start, *rest = lines_logged
    assert start["event"] == "health at the start"
    assert [(line["subject"], line["after"]) for line in rest] == [
        (f"{b.DRIVER}/n/gpu-0", "Unhealthy"),
        (f"{b.DRIVER}/n/gpu-1", "Unhealthy"),
        (f"{b.DRIVER}/n/gpu-0", "Healthy"),
        (f"{b.DRIVER}/n/gpu-1", "Healthy"),
    ]
    assert rest[0]["why"].startswith("XID 79: GPU has fallen off the bus")
    assert rest[2]["why"].startswith("was until recently: XID 79")


@pytest.mark.usefixtures("turns_at_each_pause")
async def test_requests_are_answered_while_thousands_of_nodes_are_compared() -> None:
    names = [f"n{i}" for i in range(5000)]
    before = b.view(*(b.node(n) for n in names))
    after = b.view(*(b.node(n, own=ILL) for n in names))
    follow = partial(log_health_changes, before, after, frozenset(names))
    turns = 0
    with capture_logs() as logs:
        task = asyncio.create_task(run_within(follow))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
    assert len(logs) == MOST + 1
    assert turns >= len(names)


def test_units_of_device_plugins_and_devices_of_drivers_are_counted_by_state() -> None:
    ill = b.node("n1", gpus=4, units={"u": 0.2})
    drivers = b.node("n2", pools=(b.pool(b.device("a"), b.device("b", 0.5)),))
    assert count_devices(b.view(ill, drivers)) == {
        (b.RESOURCE, State.UNHEALTHY): 1,
        (b.RESOURCE, State.HEALTHY): 3,
        (b.DRIVER, State.HEALTHY): 1,
        (b.DRIVER, State.DEGRADED): 1,
    }


def test_an_amount_of_memory_is_not_counted_as_devices() -> None:
    gpus = b.node(gpus=8)
    memory = PluginView("gpu.intel.com/memory.max", 6_700_149_198_926, 6_700_149_198_926)
    node = msgspec.structs.replace(gpus, plugins={**gpus.plugins, memory.resource: memory})
    counted = count_devices(b.view(node))
    assert {resource for resource, _ in counted} == {b.RESOURCE}
