"""Which devices are listed for people, and what is said of them."""

import msgspec
import pytest

from fettle.cli.printing import MOST_UNHEARD, print_devices
from fettle.cluster import NodeView, PluginView, UnitView
from fettle.explain.devices import list_network_devices, list_nodes, list_unknown_conditions
from fettle.model import SOUND, UnknownCondition
from tests.fettle import building as b
from tests.fettle.explain.test_pods import DWELLING


def test_what_is_not_healthy_is_listed_though_no_evidence_is_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    held = msgspec.structs.replace(b.device("gpu-0"), health=DWELLING)
    fabric = msgspec.structs.replace(b.device("fab-0", local=""), health=DWELLING)
    nodes = [
        b.node("n1", own=DWELLING, gpus=1),
        b.node("n2", pools=(b.pool(held), b.pool(fabric, name="all"))),
        b.node("n3", gpus=1),
    ]
    view = b.view(*nodes)
    data = {
        "nodes": list_nodes(view, only_unsound=True),
        "network": list_network_devices(view, only_unsound=True),
        "quarantined": {},
    }
    print_devices(data, everything=False)
    heading, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert heading[0] == "NODE"
    why = ["held", "by", "the", "minimum", "dwell", "until", "14:04", "UTC"]
    assert rows == [
        ["n1", "(node)", "1.00", "Unhealthy", *why],
        ["n2", "gpu.example.com/n/gpu-0", "1.00", "Unhealthy", *why],
        ["n2", "gpu.example.com/n/fab-0", "1.00", "Unhealthy", *why],
    ]


@pytest.mark.parametrize(
    ("unit", "about"),
    [
        (UnitView("u", SOUND), ""),
        (UnitView("u", SOUND, withdrawn=1), "withdrawn by the device plugin"),
        (UnitView("u", SOUND, count=4), "4 units"),
        (UnitView("u", SOUND, count=4, withdrawn=4), "withdrawn by the device plugin"),
        (
            UnitView("u", SOUND, count=4, withdrawn=1),
            "4 units, 1 of them withdrawn by the device plugin",
        ),
        (
            UnitView("u", SOUND, count=2, alternatives=("r",)),
            "counts as 2 units, it may be of r instead",
        ),
        (UnitView("u", SOUND, alternatives=("r",)), "counts as 1 unit, it may be of r instead"),
    ],
)
def test_what_is_special_of_a_unit_is_told(unit: UnitView, about: str) -> None:
    plugins = {"x": PluginView("x", 8, 8 - unit.withdrawn, (unit,))}
    node = msgspec.structs.replace(b.node(), plugins=plugins)
    (told_node,) = list_nodes(b.view(node))
    assert told_node["resources"][0]["units"][0]["about"] == about


def test_a_device_of_the_network_is_listed_once_with_the_nodes_that_can_use_it() -> None:
    fabric = b.pool(b.device("fab-0", 0.5, local=""), b.device("fab-1", local=""), name="all")
    own = b.pool(b.device("gpu-0", 0.5))
    view = b.view(*(b.node(name, pools=(fabric, own)) for name in ("n1", "n2")))
    listed = list_network_devices(view)
    assert [(d["device"], d["nodes"]) for d in listed] == [
        ("gpu.example.com/n/fab-0", ["n1", "n2"]),
        ("gpu.example.com/n/fab-1", ["n1", "n2"]),
    ]
    unsound = list_network_devices(view, only_unsound=True)
    assert [d["device"] for d in unsound] == ["gpu.example.com/n/fab-0"]
    nodes = list_nodes(view)
    assert [d["device"] for n in nodes for d in n["devices"]] == ["gpu.example.com/n/gpu-0"] * 2


def burnt_in(name: str, status: str, gpus: int = 8) -> NodeView:
    unheard = (UnknownCondition("GpuBurnIn", status), UnknownCondition("[red]Odd", "True"))
    return msgspec.structs.replace(b.node(name, gpus=gpus), unknown_conditions=unheard)


def test_conditions_that_no_rule_names_are_listed_the_rarest_status_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = [burnt_in(f"n{i}", "False") for i in range(9)]
    view = b.view(*nodes, burnt_in("ill", "True"), burnt_in("no-gpus", "Unknown", gpus=0))
    data = {
        "nodes": [],
        "network": [],
        "quarantined": {},
        "unheard": list_unknown_conditions(view),
    }
    print_devices(data, everything=False)
    _, heading, burn_in, odd = capsys.readouterr().out.splitlines()
    assert heading.startswith("conditions that no rule names")
    assert "health.rulesFile" in heading
    assert burn_in == "  GpuBurnIn: True on ill, False on n0 and 8 more"
    assert odd == "  [red]Odd: True on ill and 9 more"


def test_of_many_conditions_that_no_rule_names_some_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unheard = tuple(
        UnknownCondition(f"C{number:02d}", "True") for number in range(MOST_UNHEARD + 2)
    )
    view = b.view(msgspec.structs.replace(b.node("n", gpus=8), unknown_conditions=unheard))
    told = {
        "nodes": [],
        "network": [],
        "quarantined": {},
        "unheard": list_unknown_conditions(view),
    }
    print_devices(told, everything=False)
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) == MOST_UNHEARD + 1
    assert lines[-1] == "  … 2 more"
