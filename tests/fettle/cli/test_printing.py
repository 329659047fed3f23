"""Tables of many nodes: the worst first, and nodes that say the same in one row."""

import io
from typing import Any

import pytest
from rich.console import Console

from fettle.cli import device_tables, explained_pods, tables
from fettle.cli.printing import FEW, process_lines, status_code
from fettle.explain import brief
from fettle.model import State, reasons
from tests.fettle.cli.printed import health

TRACE = "was until recently: not allocatable: nvidia.com/gpu 8 of 8"


def device_rows(
    nodes: dict[str, dict[str, Any]], *, everything: bool = False, **network: Any
) -> list[list[str]]:
    listed = [{"node": n, "resources": [], "devices": [], **told} for n, told in nodes.items()]
    used = [{"device": name, **told} for name, told in network.items()]
    table = device_tables.device_table({"nodes": listed, "network": used}, everything=everything)
    return [list(row) for row in table.rows]


def upgraded(count: int, score: float = 0.97) -> dict[str, dict[str, Any]]:
    return {f"n{i:02}": health(score, State.HEALTHY, TRACE) for i in range(count)}


def test_after_an_upgrade_the_bad_node_comes_first_and_the_others_are_one_row() -> None:
    bad = {"n30": health(0.2, State.UNHEALTHY, "XID 79")}
    slower = {"n31": health(0.95, State.HEALTHY, TRACE)}
    assert device_rows(upgraded(58) | bad | slower) == [
        ["n30", "(node)", "0.20", "Unhealthy", "XID 79"],
        ["57 nodes", "(node)", "0.95–0.97", "Healthy", TRACE],
    ]


def test_a_node_of_very_many_bad_devices_hides_no_other() -> None:
    many = [{"device": f"d/evil/{i}"} | health(0.0, State.UNHEALTHY, f"{i}") for i in range(4096)]
    rows = device_rows(
        {"evil": health(1.0) | {"devices": many}, "n1": health(0.2, State.UNHEALTHY, "XID 79")}
    )
    assert len(rows) == device_tables.MOST_ROWS + 2
    assert ["n1", "(node)", "0.20", "Unhealthy", "XID 79"] in rows
    assert rows[-1][-1] == "4032 more: `fettle explain node evil` lists them"
    assert len(device_rows({"evil": health(1.0) | {"devices": many}}, everything=True)) == 4096


def test_the_worst_comes_first_by_state_and_then_by_score() -> None:
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


def test_a_state_that_tenants_could_not_change_says_so_beside_it() -> None:
    nodes = {"n": health(0.42, State.HEALTHY, "pods do not start", proven=1.0)}
    assert device_rows(nodes) == [
        ["n", "(node)", "0.42", "Healthy, lowered by what tenants could cause", "pods do not start"]
    ]


def test_a_few_nodes_that_say_the_same_are_listed_by_name() -> None:
    assert [row[0] for row in device_rows(upgraded(FEW))] == list(upgraded(FEW))
    assert [row[0] for row in device_rows(upgraded(FEW + 1))] == [f"{FEW + 1} nodes"]


def test_unhealthy_nodes_are_listed_by_name_however_many_say_the_same() -> None:
    ill = {f"n{i}": health(0.2, State.UNHEALTHY, "x") for i in range(9)}
    assert [row[0] for row in device_rows(ill)] == list(ill)


def test_all_lists_every_node_by_name() -> None:
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
        for name in ("refusals", "rejected", "undecided", "overruled", "devices", "notes", "units")
    }
    told = {"score": score, "allowed": True, "health": own, **parts, **more}
    return told | {"fits": told["allowed"]}


def verdict_rows(nodes: dict[str, Any]) -> list[list[str]]:
    table = explained_pods.verdict_table(nodes)
    return [list(row) for row in table.rows]


def test_taints_are_listed_and_those_that_are_missing_are_counted_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    off = "deviceTaints.degraded is not set"
    taints = [
        {"device": "d/n/a", "key": "k", "effect": "NoSchedule", "there": there, "whyNot": why}
        for there, why in (("NoSchedule", None), ("None", "due"), (None, off), (None, off))
    ]
    data = {"nodes": [], "network": [], "quarantined": {}, "taints": taints}
    device_tables.print_devices(data, everything=True)
    said = " ".join(capsys.readouterr().out.split())
    assert "d/n/a: k:NoSchedule d/n/a: k:None (NoSchedule: due)" in said
    assert f"2 more would be tainted: {off}" in said


def test_nodes_that_fit_come_first_by_score_and_equal_ones_are_one_row() -> None:
    nodes = {f"n{i:02}": verdict(9, told) for i, told in enumerate(upgraded(57).values())}
    nodes["n57"] = verdict(0, health(0.1, State.UNHEALTHY, "XID 79"), allowed=False, refusals=["x"])
    nodes["n58"] = verdict(3, health(0.75, State.UNKNOWN), undecided=["y"])
    nodes["n59"] = verdict(4, health(0.6, State.DEGRADED, "z"))
    nodes["n00"]["rejected"] = ["no such devices"]
    assert [row[:2] + row[3:] for row in verdict_rows(nodes)] == [
        ["56 nodes:\nn01\nn02\nn03\n…", "9", TRACE],
        ["n59", "4", "z"],
        ["n58", "3", "y"],
        ["n57", "–", "x"],
        ["n00", "9", "no such devices"],
    ]


def test_the_scores_of_a_joined_row_are_given_from_low_to_high() -> None:
    nodes = {f"n{i}": verdict(4 + i // 3, health(1.0)) for i in range(FEW + 1)}
    assert [row[1] for row in verdict_rows(nodes)] == ["4–5"]


def own_devices(name: str, *numbers: int, request: str = "x/gpu") -> list[dict[str, Any]]:
    return [
        {
            "request": request,
            "alternative": None,
            "device": f"gpu.example.com/{name}/gpu-{number}",
            "tolerated": [],
            **health(1.0),
        }
        for number in numbers
    ]


NODES = [f"gpu-node-{number:03d}" for number in range(300)]
ALL_OF_THEM = "300 nodes:\ngpu-node-000\ngpu-node-001\ngpu-node-002\n…"


def fitting(name: str, *numbers: int) -> dict[str, Any]:
    return verdict(10, health(1.0), devices=own_devices(name, *numbers))


def test_nodes_that_fit_equally_are_one_row_whatever_their_device_names() -> None:
    one = {name: fitting(name, i % 2) for i, name in enumerate(NODES)}
    assert [[row[0], row[3]] for row in verdict_rows(one)] == [
        [ALL_OF_THEM, "would get a device of gpu.example.com"]
    ]
    eight = {name: fitting(name, *range(8)) for name in NODES}
    assert [row[3] for row in verdict_rows(eight)] == ["would get 8 devices of gpu.example.com"]
    few = {name: fitting(name, 0) for name in NODES[:FEW]}
    assert [[row[0], row[3]] for row in verdict_rows(few)] == [
        [name, f"would get gpu.example.com/{name}/gpu-0"] for name in NODES[:FEW]
    ]


def test_devices_of_other_drivers_and_other_numbers_of_them_are_separate_rows() -> None:
    nodes = {name: fitting(name, *range(1 + i // 150)) for i, name in enumerate(NODES)}
    assert [row[3] for row in verdict_rows(nodes)] == [
        "would get a device of gpu.example.com",
        "would get 2 devices of gpu.example.com",
    ]
    note = (
        "this one may then get gpu.example.com/{0}/gpu-7 (0.85), net.example.com/{0}/nic-1 (0.90)"
    )
    later = {name: {**fitting(name, 0), "notes": [note.format(name)]} for name in NODES}
    assert [row[3] for row in verdict_rows(later)] == [
        "would get a device of gpu.example.com; this one may then get a device of gpu.example.com "
        "(0.85), net.example.com/…/nic-1 (0.90)"
    ]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "claim x is allocated to other nodes (it holds gpu.example.com/other/gpu-0)",
            "claim x is allocated to other nodes (it holds gpu.example.com/other/gpu-0)",
        ),
        (
            "no allocation is possible here: pool gpu.example.com/{0} is incomplete: 1 of 2 slices",
            "no allocation is possible here: pool gpu.example.com/… is incomplete: 1 of 2 slices",
        ),
    ],
)
def test_nodes_that_do_not_fit_for_the_same_reason_are_one_row(said: str, shown: str) -> None:
    worn = health(0.6, State.DEGRADED, "z")
    nodes = {name: verdict(5, worn, rejected=[said.format(name)]) for name in NODES}
    assert verdict_rows(nodes) == [[ALL_OF_THEM, "5", "[magenta]no fit[/]", shown]]


def test_nodes_that_are_refused_for_the_same_reason_are_one_row() -> None:
    said = "x/gpu would get gpu.example.com/{0}/gpu-0, which is Unhealthy (0.00): XID 79"
    nodes = {
        name: {**fitting(name, 0), "allowed": False, "refusals": [said.format(name)]}
        for name in NODES
    }
    nodes["z"] = verdict(0, health(1.0), allowed=False, refusals=["node is Unhealthy (0.10): held"])
    assert [[row[0], row[3]] for row in verdict_rows(nodes)] == [
        [
            ALL_OF_THEM,
            "x/gpu would get a device of gpu.example.com, which is Unhealthy (0.00): XID 79",
        ],
        ["z", "node is Unhealthy (0.10): held"],
    ]


def refused_by(name: str, code: str, text: str, evidence: str, **fields: Any) -> dict[str, Any]:
    told = {"state": "Unhealthy", "proven": 0.05, "evidence": evidence}
    reason = {"code": code, "text": text, "health": told, **fields}
    own = health(0.05, State.UNHEALTHY, evidence)
    return verdict(
        0, own, allowed=False, refusals=[text], reasons={"refusals": [reason], "rejected": []}
    )


LONG = "XID 79: GPU has fallen off the bus (RESTART_BM); " + "the kernel's message, " * 9


def waiting_pod(bad: int) -> dict[str, Any]:
    """An explanation: one node fits, `bad` nodes are refused, each for a fault of its own, and five
    have none of its devices."""
    worth = {"value": 0.5, "minScore": 0.8}
    nodes = {
        f"gpu-{i:02}": refused_by(
            f"gpu-{i:02}",
            "UnitsWorthTooLittle",
            f"x: 4 drawn from 8: {LONG}",
            f"{i} {LONG}",
            **worth,
        )
        for i in range(bad)
    }
    none = {"code": "NoUnits", "text": "no x here"}
    for i in range(5):
        nodes[f"cpu-{i}"] = verdict(5, health(1.0), reasons={"refusals": [], "rejected": [none]})
        nodes[f"cpu-{i}"] |= {"fits": False, "rejected": ["no x here"]}
    nodes["sound"] = verdict(10, health(1.0))
    until = "it waits for sound devices until 2026-05-01 12:00:00 UTC; then it takes Degraded ones"
    notes = [
        {"code": "PatienceLasts", "text": f"{until}, or a higher risk"},
        {"code": "PodNotInView", "text": str(reasons.PodNotInView())},
    ]
    policy = {"name": "training", "origin": "annotation fettle.dev/policy", "mode": "enforce"}
    return {
        "pod": "ml/train",
        "demand": {},
        "policy": {**policy, "modeOrigin": "setting mode", "warnings": []},
        "nodes": nodes,
        "notes": [note["text"] for note in notes],
        "reasons": {"notes": notes},
        "mechanisms": [{"name": "extender", "acts": True}],
        "placed": None,
    }


def on_a_terminal(data: dict[str, Any]) -> list[str]:
    out = Console(file=io.StringIO(), width=80, highlight=False)
    explained_pods.print_pod(data, explained_pods.Extent(), out)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


@pytest.mark.parametrize("bad", [7, 40])
def test_a_pod_is_explained_in_twenty_lines_of_a_terminal_the_answer_first(
    bad: int,
) -> None:
    lines = on_a_terminal(waiting_pod(bad))
    assert len(lines) <= 20, "\n".join(lines)
    assert lines[0].startswith(f"ml/train fits 1 of {bad + 6} nodes; best sound (score 10)")
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if line.startswith("gpu-")]
    assert rows[0].startswith(
        "gpu-00      –  refused  units worth too little (0.50 of 0.8): 0 XID 79"
    )
    assert len({row[:6] for row in rows}) == min(bad, explained_pods.MOST_ROWS - 1)
    assert (f"{bad - len(rows)} more nodes" in lines[-2]) == (bad > len(rows))
    assert "--evidence" in lines[-1]


def test_nothing_that_explains_a_pod_is_told_twice() -> None:
    said = " ".join(" ".join(on_a_terminal(waiting_pod(3))).split())
    for once in ("5 excluded", "none of its devices", "training", "sound ("):
        assert said.count(once) == 1, once
    assert "cpu-" not in said
    assert "act here" not in said


def test_the_evidence_and_the_reasons_in_full_are_there_on_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    explained_pods.print_pod(waiting_pod(1), explained_pods.Extent(evidence=True))
    said = capsys.readouterr().out
    assert f"x: 4 drawn from 8: {LONG}".strip() in said
    assert "5 nodes are not listed (cpu-0, …)" in said
    assert "act here: extender" in said
    assert f"0 {LONG}  [driver, allocatable, Node n]" in said


def test_a_device_that_the_scheduler_would_take_though_others_will_do_is_said_to_be_so() -> None:
    text = (
        "gpu/gpu would get d/n/gpu-0, which is Unhealthy (0.05): XID 79; acceptable devices exist"
    )
    told = refused_by("n", "DeviceUnhealthy", text, "XID 79", passedOver=True)
    assert brief(told) == "device Unhealthy (0.05), though others here will do: XID 79"


class Printed(list[str]):
    def print(self, line: str) -> None:
        self.append(line)


def test_evidence_that_is_the_same_of_many_nodes_is_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = {f"n{i:02}": verdict(9, told) for i, told in enumerate(upgraded(57).values())}
    nodes["n57"] = verdict(0, health(0.1, State.UNHEALTHY, "XID 79"), allowed=False, refusals=["x"])
    out = Printed()
    explained_pods.print_evidence(out, nodes)
    assert out == [
        "\nn57: Unhealthy 0.10",
        "  -0.90  1970-01-01 00:00:00Z  XID 79  \\[driver, allocatable, Node n]",
        "\n57 nodes: Healthy 0.97",
        f"  {TRACE}  \\[driver, allocatable]",
    ]


def test_one_line_says_which_mechanisms_act_here() -> None:
    found = {"extender": None, "affinity": True, "taints": False, "cordon": True}
    line = explained_pods.mechanisms_line({"name": n, "acts": a} for n, a in found.items())
    assert line == "not known here: extender; act here: affinity, cordon; do not act here: taints"
    assert explained_pods.mechanisms_line([]) == ""


def process(**more: Any) -> dict[str, Any]:
    source = {"name": "Node", "served": True, "synced": True, "ageSeconds": 2.0, "note": ""}
    return {
        "ready": True,
        "problems": [],
        "roles": ["extender", "steward"],
        "asked": {"extender": {"filter": 3.2, "prioritize": None}},
        "callers": [],
        "leader": {"name": "fettle-1", "here": False},
        "certificates": [{"listener": "extender", "of": "server", "endsAt": 4e9}],
        "denied": [],
        "sources": [source, {**source, "name": "Pod", "ageSeconds": 9.0}],
        **more,
    }


def test_what_is_told_of_a_process_is_a_line_each() -> None:
    assert [*process_lines(process())] == [
        ("ready, as extender, steward", False),
        ("extender last asked: filter 3 s ago, prioritize never", False),
        ("sources: 2 of 2 synced; heard of the quietest, Pod, 9 s ago", False),
        ("leader of the stewards: fettle-1", False),
        ("certificate of the extender (server): valid until 2096-10-02 07:06:40Z", False),
    ]


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({}, []),
        ({"ready": False, "problems": ["no view"]}, ["not ready: no view"]),
        ({"denied": ["patch nodes"]}, ["a right is missing: patch nodes"]),
        (
            {"certificates": [{"listener": "webhook", "of": "client CA", "endsAt": 1e9}]},
            ["certificate of the webhook (client CA): expired 2001-09-09 01:46:40Z"],
        ),
    ],
)
def test_a_process_that_is_not_as_it_should_be_ends_the_command_with_1(
    more: dict[str, Any], wrong: list[str]
) -> None:
    told = process(**more)
    assert [line for line, is_wrong in process_lines(told) if is_wrong] == wrong
    assert status_code({"problems": [], "process": told}) == int(bool(wrong))


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"problems": []}, 0),  # of a server of before
        ({"problems": ["not ready"]}, 1),
        ({"problems": [], "cluster": "https://x", "unseen": []}, 0),
        ({"problems": [], "cluster": "https://x", "unseen": ["you may not list pods"]}, 1),
    ],
)
def test_what_cannot_be_seen_ends_it_with_1_too(told: dict[str, Any], code: int) -> None:
    assert status_code(told) == code


def test_a_pod_that_is_placed_is_explained_in_twenty_lines_too() -> None:
    data = waiting_pod(30) | {"notes": [], "reasons": {"notes": []}}
    held = [
        {"device": f"d/n/gpu-{i}", "use": "certain", **health(i / 10, State.DEGRADED, LONG)}
        for i in range(8)
    ]
    data["placed"] = {
        "phase": "Running",
        "boundAt": 0.0,
        "owner": None,
        "node": "n",
        "units": {},
        "devices": [*reversed(held)],
        "atRisk": True,
        "since": 0.0,
        "refusals": [f"d/n/gpu-{i} is Degraded: {LONG}" for i in range(8)],
        "conceded": [],
    }
    lines = on_a_terminal(data)
    assert len(lines) <= 20, "\n".join(lines)
    at = lines.index("  holds d/n/gpu-0: Degraded 0.00")
    assert lines[at + 1 : at + 3] == ["  holds d/n/gpu-1: Degraded 0.10", "  … 6 more"]
    assert sum("is Degraded: XID 79" in line for line in lines) == explained_pods.MOST_HELD
    out = Console(file=io.StringIO(), width=1000)
    explained_pods.print_pod(data, explained_pods.Extent(evidence=True), out)
    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue().count("is Degraded: XID 79") == len(held)
    data["placed"] |= {"phase": "Terminating", "deletedAt": 3600.0}
    assert f"Terminating since {tables.shown_time(3600.0)}" in on_a_terminal(data)
