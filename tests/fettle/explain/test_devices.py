"""Which devices are listed for people, and why some of them cannot be allocated now."""

from typing import Any

import msgspec
import pytest

from fettle.api import kinds
from fettle.cel.runtime.protocol import MATCH
from fettle.cli.device_tables import device_table, print_devices
from fettle.cli.printing import MOST_LISTED
from fettle.cluster import NodeView, PluginView, UnitView
from fettle.dra import Alternative, Claim, Request
from fettle.dra.allocator.shortfall import explain_shortfall
from fettle.explain.devices import list_network_devices, list_nodes, list_unknown_signals
from fettle.explain.wording import texts
from fettle.model import SOUND, UnknownSignal
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, claim, node
from tests.fettle.explain.test_pods import DWELLING


def test_an_unhealthy_device_is_listed_even_without_evidence(
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
    since = ["1970-01-01", "13:53:20Z"]
    why = [*since, "held", "by", "the", "minimum", "dwell", "until", "14:04", "UTC"]
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
def test_a_unit_says_what_is_special_about_it(unit: UnitView, about: str) -> None:
    plugins = {"x": PluginView("x", 8, 8 - unit.withdrawn, (unit,))}
    node = msgspec.structs.replace(b.node(), plugins=plugins)
    (told_node,) = list_nodes(b.view(node))
    assert told_node["resources"][0]["units"][0]["about"] == about


def test_a_network_device_is_listed_once_with_the_nodes_that_can_use_it() -> None:
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
    unknown = (UnknownSignal("GpuBurnIn", status), UnknownSignal("[red]Odd", "True"))
    return msgspec.structs.replace(b.node(name, gpus=gpus), unknown_signals=unknown)


def test_conditions_that_no_rule_names_are_listed_the_rarest_status_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = [burnt_in(f"n{i}", "False") for i in range(9)]
    view = b.view(*nodes, burnt_in("ill", "True"), burnt_in("no-gpus", "Unknown", gpus=0))
    data = {
        "nodes": [],
        "network": [],
        "quarantined": {},
        "unknownSignals": list_unknown_signals(view),
    }
    print_devices(data, everything=False)
    _, heading, burn_in, odd = capsys.readouterr().out.splitlines()
    assert heading.startswith("what no rule names (conditions, reasons, XIDs,")
    assert "health.rulesFile" in heading
    assert burn_in == "  GpuBurnIn: True on ill, False on n0 and 8 more"
    assert odd == "  [red]Odd: True on ill and 9 more"


def test_an_xid_without_a_row_is_listed_whoever_tells_of_it() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("n"))
    xid = {"key": "gpu.nvidia.com/xid", "value": "998", "effect": "NoSchedule"}
    fleet.put(kinds.SLICE, slice_("s", {"name": "gpu-0", "taints": [xid]}, nodeName="n"))
    listed = list_unknown_signals(fleet.look())
    assert [one["condition"] for one in listed] == ["taint gpu.nvidia.com/xid: XID 998"]
    assert listed[0]["statuses"] == [{"status": "set", "nodes": 1, "first": "n"}]


def test_a_node_on_which_several_devices_have_an_xid_without_a_row_is_one_node() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("n"))
    xid = {"key": "gpu.nvidia.com/xid", "value": "abc", "effect": "NoSchedule"}
    tainted: list[Raw] = [{"name": f"gpu-{n}", "taints": [xid]} for n in range(2)]
    whole = {"uuid": {"string": "GPU-1"}, "type": {"string": "gpu"}}
    tainted[0]["attributes"] = whole
    part = {"name": "mig-0", "attributes": {"parentUUID": {"string": "GPU-1"}}}
    fleet.put(kinds.SLICE, slice_("s", *tainted, part, nodeName="n"))
    (listed,) = list_unknown_signals(fleet.look())
    assert listed["condition"] == "taint gpu.nvidia.com/xid: XID abc"
    assert listed["statuses"] == [{"status": "set", "nodes": 1, "first": "n"}]


def test_of_a_label_with_many_values_the_rarest_are_listed() -> None:
    def with_label(name: str, value: str) -> NodeView:
        unknown = (UnknownSignal("label nvidia.com/odd", value),)
        return msgspec.structs.replace(b.node(name, gpus=8), unknown_signals=unknown)

    many = [with_label(f"n{i}", f"{i % 10}") for i in range(40)]
    (listed,) = list_unknown_signals(b.view(*many, with_label("odd", "odd")))
    assert listed["statuses"][0] == {"status": "odd", "nodes": 1, "first": "odd"}
    assert len(listed["statuses"]) == 5


def test_only_some_of_many_unknown_signals_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unknown = tuple(UnknownSignal(f"C{number:02d}", "True") for number in range(MOST_LISTED + 2))
    view = b.view(msgspec.structs.replace(b.node("n", gpus=8), unknown_signals=unknown))
    listed_node = {
        "nodes": [],
        "network": [],
        "quarantined": {},
        "unknownSignals": list_unknown_signals(view),
    }
    print_devices(listed_node, everything=False)
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) == MOST_LISTED + 1
    assert lines[-1] == "  … 2 more"


# Devices that are published and cannot be allocated now

Raw = dict[str, Any]
DEAD = [{"key": "example.com/dead", "value": "x", "effect": "NoExecute"}]
CONSUMES = [{"counterSet": "x", "counters": {"m": {"value": "1"}}}]
ODD = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near"}]}]}
BAD = {"name": "bad", "taints": DEAD}
GOOD = {"name": "good"}
ALL: Raw = {"allNodes": True}


def slice_(
    name: str, *devices: Raw, generation: int = 1, count: int = 1, pool: str = "n", **place: Any
) -> Raw:
    pool_ = {"name": pool, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": b.DRIVER, "pool": pool_, "devices": devices, **(place or {"nodeName": "n"})}
    return {"metadata": {"name": name}, "spec": spec}


def here(*nodes: str) -> Raw:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]} for node in nodes]
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]} for field in fields]}}


@pytest.fixture
def fleet() -> Fleet:
    """Three nodes without devices."""
    fleet = Fleet()
    for name in ("n", "n2", "n3"):
        fleet.put(kinds.NODE, node(name, gpus=0))
    return fleet


def own(fleet: Fleet, *slices: Raw, unsound: bool = False) -> dict[str, str | None]:
    """The listed devices of the node `n`, each with why it cannot be allocated now."""
    for raw in slices:
        fleet.put(kinds.SLICE, raw)
    listed = list_nodes(fleet.look(), only_unsound=unsound)
    assert [listed_node["node"] for listed_node in listed if listed_node["devices"]] in ([], ["n"])
    return {d["device"].rpartition("/")[2]: d["withheld"] for n in listed for d in n["devices"]}


def network(fleet: Fleet, *slices: Raw) -> list[tuple[str, list[str], str | None]]:
    """The listed network devices, with their nodes and why none can use them."""
    for raw in slices:
        fleet.put(kinds.SLICE, raw)
    listed = list_network_devices(fleet.look())
    return [(d["device"].rpartition("/")[2], d["nodes"], d["withheld"]) for d in listed]


@pytest.mark.parametrize(
    ("slices", "why"),
    [
        pytest.param(
            [slice_("s", BAD, GOOD, count=2)],
            "pool incomplete: 1 of 2 slices",
            id="incomplete",
        ),
        pytest.param(
            [slice_("s", BAD, GOOD, GOOD)],
            "pool invalid: duplicate device name good",
            id="named twice",
        ),
        pytest.param(
            [slice_("s", BAD, {**GOOD, "consumesCounters": CONSUMES})],
            "pool invalid: counter set x not found",
            id="without its counters",
        ),
        pytest.param(
            [slice_("s", BAD), slice_("t", GOOD, generation=2, count=2)],
            "pool incomplete: 1 of 2 slices",
            id="newer slices are coming",
        ),
        pytest.param(
            [slice_("s", BAD, GOOD, count=2), slice_("t", generation=2, count=2, nodeName="n2")],
            "pool between generations: its driver is replacing its slices",
            id="newer slices are coming elsewhere",
        ),
        pytest.param(
            [slice_("s", BAD, GOOD), slice_("t", nodeSelector=ODD)],
            "the scheduler's attempts here end in an error: the node selector cannot be parsed: "
            "matchExpressions zone: unknown operator Near",
            id="no pool can be gathered",
        ),
    ],
)
def test_a_published_device_is_listed_with_why_it_cannot_be_allocated_now(
    fleet: Fleet, slices: list[Raw], why: str
) -> None:
    assert own(fleet, *slices) == {"bad": why, "good": why}
    assert own(fleet, unsound=True) == {"bad": why}


def test_a_complete_pool_withholds_no_device(fleet: Fleet) -> None:
    assert own(fleet, slice_("s", BAD, GOOD)) == {"bad": None, "good": None}


@pytest.mark.parametrize("device", [{"count": 2}, {"twice": True}])
def test_explanations_of_a_pod_give_the_same_reason_for_such_a_pool(
    fleet: Fleet, device: Raw
) -> None:
    devices = (GOOD, GOOD) if device.get("twice") else (GOOD,)
    listed_node = own(fleet, slice_("s", *devices, count=device.get("count", 1)))["good"]
    assert listed_node is not None
    wanted = Claim("k", (Request("g", (Alternative("g", b.DRIVER, ("any",)),)),))
    explained = explain_shortfall([wanted], fleet.view.nodes["n"].pools, lambda *_: MATCH)
    assert listed_node.replace("pool ", f"pool {b.DRIVER}/n is ") in texts(explained)


def test_a_withheld_device_says_whether_it_is_allocated(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, claim("c", "bad"))
    own(fleet, slice_("s", BAD, GOOD, count=2))
    (listed_node,) = (n for n in list_nodes(fleet.view) if n["devices"])
    assert {d["device"]: d["allocated"] for d in listed_node["devices"]} == {
        f"{b.DRIVER}/n/bad": True,
        f"{b.DRIVER}/n/good": False,
    }


def test_a_network_device_is_listed_once_if_no_node_can_use_it_now(fleet: Fleet) -> None:
    assert network(fleet, slice_("s", BAD, count=2, **ALL)) == [
        ("bad", ["n", "n2", "n3"], "pool incomplete: 1 of 2 slices")
    ]
    assert not own(fleet)


def test_a_device_with_its_own_node_selection_is_listed_for_no_other_node(
    fleet: Fleet,
) -> None:
    first, second = {**BAD, **here("n2")}, {**GOOD, **here("n", "n3")}
    slices = [slice_("s", first, second, count=2, perDeviceNodeSelection=True)]
    why = "pool incomplete: 1 of 2 slices"
    assert network(fleet, *slices) == [("bad", ["n2"], why), ("good", ["n", "n3"], why)]


def test_a_network_device_is_listed_only_for_the_nodes_that_can_use_it(fleet: Fleet) -> None:
    """A slice for one node alone is invalid there, and hides the device for both."""
    alone = slice_("s", {"name": "x"}, {"name": "x"}, count=2, **here("n2"))
    both = slice_("t", GOOD, count=2, **here("n", "n2"))
    listed = network(fleet, alone, both)
    assert ("good", ["n"], None) in listed
    assert ("x", ["n2"], "pool invalid: duplicate device name x") in listed


def test_the_printed_table_says_first_why_a_device_cannot_be_allocated(fleet: Fleet) -> None:
    own(fleet, slice_("s", BAD, GOOD, count=2))
    data = {"nodes": list_nodes(fleet.view), "network": list_network_devices(fleet.view)}
    table = device_table(data, everything=True)
    said = {row[1]: row[-1] for row in table.rows}
    assert said[f"{b.DRIVER}/n/bad"] == (
        "pool incomplete: 1 of 2 slices; taint example.com/dead=x:NoExecute"
    )
    assert said[f"{b.DRIVER}/n/good"] == "pool incomplete: 1 of 2 slices"
