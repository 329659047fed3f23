"""What people read of devices that a node should have and has not."""

import json
from typing import Any

import pytest

from fettle.api import kinds
from fettle.cli import explaining
from fettle.cli.device_tables import print_devices
from fettle.cli.printing import MOST_LISTED
from fettle.explain.devices import list_network_devices, list_nodes
from fettle.explain.recoveries import explain_node
from tests.fettle.cluster.inventory.fleets import Fleet, node
from tests.fettle.cluster.inventory.test_expected_devices import GFD

SAID = "8 of 8 nvidia.com/gpu missing, expected by label nvidia.com/gpu.count"
WHEN = "; since 1970-01-12 13:46:40Z, lost from 1970-01-12 13:56:40Z on"


@pytest.fixture
def fleet() -> Fleet:
    """A GPU node whose device plugin has never registered."""
    fleet = Fleet()
    fleet.put(kinds.NODE, {"metadata": {"name": "n", "labels": GFD}, "status": {}})
    fleet.look()
    return fleet


def printed(fleet: Fleet, capsys: pytest.CaptureFixture[str], *, everything: bool = False) -> str:
    nodes = list_nodes(fleet.view, only_unsound=True)
    network = list_network_devices(fleet.view, only_unsound=True)
    print_devices(
        {"nodes": nodes, "network": network, "quarantined": {}, "nodesWithDevices": 0},
        everything=everything,
    )
    return " ".join(capsys.readouterr().out.split())


def test_devices_lists_a_node_that_has_never_shown_its_gpus(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed(fleet, capsys)
    assert f"n: {SAID}{WHEN}" in said
    assert "all are sound" not in said
    assert "no node has devices" not in said


def test_where_nothing_is_missing_nothing_is_said_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("n"))
    fleet.look()
    assert printed(fleet, capsys) == "no node has devices"


def test_one_look_does_not_know_for_how_long_devices_have_been_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fleet = Fleet(looks_once=True)
    fleet.put(kinds.NODE, {"metadata": {"name": "n", "labels": GFD}, "status": {}})
    fleet.look()
    found: dict[str, Any] = explain_node("n", fleet.view, fleet.inventory, fleet.now)
    [one] = json.loads(json.dumps(found))["missing"]
    assert (one["found"], one["since"], one["lostAt"]) == (0, None, None)
    said = f"{SAID}; seen now, for how long is not known"
    assert f"n: {said}" in printed(fleet, capsys)
    explaining.print_node({**found, "problems": []})
    assert said in " ".join(capsys.readouterr().out.split())


def test_many_nodes_that_lack_devices_are_counted(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(MOST_LISTED + 4):
        name = f"m{number:02}"
        fleet.put(kinds.NODE, {"metadata": {"name": name, "labels": GFD}, "status": {}})
    fleet.look()
    some = printed(fleet, capsys)
    assert "… 5 more (--all lists them)" in some
    assert f"n: {SAID}" not in some
    everything = printed(fleet, capsys, everything=True)
    assert f"n: {SAID}" in everything
    assert " more" not in everything


def test_explain_node_says_what_is_missing_in_words_and_in_json(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = explain_node("n", fleet.view, fleet.inventory, fleet.now)
    assert json.loads(json.dumps(found))["missing"] == [
        {
            "name": "nvidia.com/gpu",
            "expected": 8,
            "found": 0,
            "source": "label nvidia.com/gpu.count",
            "since": fleet.now,
            "lostAt": fleet.now + 600,
            "text": SAID,
        }
    ]
    assert (found["state"], found["score"]) == ("Healthy", 1.0)
    explaining.print_node({**found, "problems": []})
    assert SAID + WHEN in " ".join(capsys.readouterr().out.split())
