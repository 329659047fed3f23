"""What people read of many nodes: the worst first, and those that say the same as one."""

from typing import Any

import pytest

from fettle.cli import asking
from fettle.cli.grouping import FEW
from fettle.model import State

TRACE = "was until recently: not allocatable: nvidia.com/gpu 8 of 8"


def health(score: float, state: State = State.HEALTHY, *texts: str) -> dict[str, Any]:
    evidence = [
        {
            "text": text,
            "family": "driver",
            "weight": 1 - score,
            "source": "allocatable",
            "reporter": "Node n",
            "observedAt": 0.0,
        }
        for text in texts
    ]
    return {"score": score, "state": str(state), "kept": None, "evidence": evidence}


def device_rows(
    nodes: dict[str, dict[str, Any]], *, everything: bool = False, **network: Any
) -> list[list[str]]:
    listed = [{"node": n, "resources": [], "devices": [], **told} for n, told in nodes.items()]
    used = [{"device": name, **told} for name, told in network.items()]
    table = asking.device_table({"nodes": listed, "network": used}, everything=everything)
    return [list(row) for row in zip(*(column.cells for column in table.columns), strict=True)]


def upgraded(count: int, score: float = 0.97) -> dict[str, dict[str, Any]]:
    return {f"n{i:02}": health(score, State.HEALTHY, TRACE) for i in range(count)}


def test_after_an_upgrade_the_one_bad_node_stands_before_the_others_which_are_one_row() -> None:
    bad = {"n30": health(0.2, State.UNHEALTHY, "XID 79")}
    slower = {"n31": health(0.95, State.HEALTHY, TRACE)}
    assert device_rows(upgraded(58) | bad | slower) == [
        ["n30", "(node)", "0.20", "Unhealthy", "XID 79"],
        ["57 nodes", "(node)", "0.95–0.97", "Healthy", TRACE],
    ]


def test_the_worst_stands_first_by_state_and_then_by_score() -> None:
    nodes = {
        "a": health(0.97, State.HEALTHY, "x"),
        "b": health(0.75, State.UNKNOWN, "x"),
        "c": health(0.85, State.DEGRADED, "x"),
        "d": health(1.0, State.UNHEALTHY),
        "e": health(0.6, State.DEGRADED, "x"),
    }
    fabric = {"nodes": ["a", "b"], **health(0.5, State.DEGRADED, "x")}
    shown = [row[0] for row in device_rows(nodes, fabric=fabric)]
    assert shown == ["d", "(2 nodes)", "e", "c", "b", "a"]


def test_a_few_that_say_the_same_are_told_by_name() -> None:
    assert [row[0] for row in device_rows(upgraded(FEW))] == list(upgraded(FEW))
    assert [row[0] for row in device_rows(upgraded(FEW + 1))] == [f"{FEW + 1} nodes"]


def test_what_is_not_healthy_is_told_by_name_however_many_say_the_same() -> None:
    ill = {f"n{i}": health(0.2, State.UNHEALTHY, "x") for i in range(9)}
    assert [row[0] for row in device_rows(ill)] == list(ill)


def test_whoever_asks_for_everything_gets_every_name() -> None:
    assert len(device_rows(upgraded(30), everything=True)) == 30


def test_devices_that_say_the_same_are_counted_by_their_driver() -> None:
    def own(name: str) -> dict[str, Any]:
        devices = [
            {"device": f"gpu.example.com/{name}/gpu-{i}", **health(0.97, State.HEALTHY, TRACE)}
            for i in range(2)
        ]
        return {**health(1.0), "devices": devices}

    assert device_rows({f"n{i}": own(f"n{i}") for i in range(9)}) == [
        ["9 nodes", "18 of gpu.example.com", "0.97", "Healthy", TRACE]
    ]


def verdict(score: int, own: dict[str, Any], **more: Any) -> dict[str, Any]:
    parts: dict[str, Any] = {
        name: []
        for name in ("refusals", "unfit", "undecided", "overruled", "devices", "notes", "units")
    }
    told = {"score": score, "allowed": True, "health": own, **parts, **more}
    return told | {"fits": told["allowed"]}


def verdict_rows(nodes: dict[str, Any]) -> list[list[str]]:
    table = asking.verdict_table(nodes)
    return [list(row) for row in zip(*(column.cells for column in table.columns), strict=True)]


def test_of_a_pods_verdicts_the_worst_stand_first_and_those_alike_are_one_row() -> None:
    nodes = {f"n{i:02}": verdict(9, told) for i, told in enumerate(upgraded(57).values())}
    nodes["n57"] = verdict(0, health(0.1, State.UNHEALTHY, "XID 79"), allowed=False, refusals=["x"])
    nodes["n58"] = verdict(3, health(0.75, State.UNKNOWN), undecided=["y"])
    nodes["n59"] = verdict(4, health(0.6, State.DEGRADED, "z"))
    assert [row[:2] + row[3:] for row in verdict_rows(nodes)] == [
        ["n57", "–", "x"],
        ["n58", "3", "y"],
        ["n59", "4", "z"],
        ["57 nodes", "9", TRACE],
    ]


class Printed(list[str]):
    def print(self, line: str) -> None:
        self.append(line)


def test_evidence_that_is_the_same_of_many_nodes_is_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = {f"n{i:02}": verdict(9, told) for i, told in enumerate(upgraded(57).values())}
    nodes["n57"] = verdict(0, health(0.1, State.UNHEALTHY, "XID 79"), allowed=False, refusals=["x"])
    out = Printed()
    asking.print_evidence(out, nodes)
    assert out == [
        "\nn57: Unhealthy 0.10",
        "  -0.90  1970-01-01 00:00:00Z  XID 79  \\[driver, allocatable, Node n]",
        "\n57 nodes: Healthy 0.97",
        f"  {TRACE}  \\[driver, allocatable]",
    ]
