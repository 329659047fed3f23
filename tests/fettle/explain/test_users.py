"""Which pods use a device, so that people know whom to tell of a fault."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from fettle.api import resource
from fettle.cli.device_tables import print_devices
from fettle.cluster import NodeView, PluginView, UnitView, View
from fettle.explain.devices import list_network_devices, list_nodes
from fettle.explain.users import Users
from fettle.model import Health
from tests.fettle import building as b

Raw = dict[str, Any]


def placed(name: str, node: str = "n", units: tuple[str, ...] = ()) -> Raw:
    """A pod on a node, with the units that it holds as the kubelet reports."""
    pod = b.gpu_pod(name=name)
    pod["metadata"]["uid"] = f"uid-{name}"
    pod["spec"]["nodeName"] = node
    held = [{"resourceID": unit, "health": "Healthy"} for unit in units]
    said = [{"name": b.RESOURCE, "resources": held}]
    pod["status"] = {"phase": "Running", "containerStatuses": [{"allocatedResourcesStatus": said}]}
    return pod


def holding(claim: str, *devices: str, pods: tuple[str, ...] = (), **result: Any) -> Raw:
    results = [
        {"request": "r", "driver": b.DRIVER, "pool": "n", "device": device, **result}
        for device in devices
    ]
    reserved = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    return {
        "metadata": {"name": claim, "namespace": "default"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
    }


def seen(node: NodeView, *, pods: tuple[Raw, ...] = (), claims: tuple[Raw, ...] = ()) -> View:
    return b.view(
        node,
        pods={pod.metadata.key: pod for pod in map(b.pod, pods)},
        claims={claim.metadata.key: claim for claim in map(b.claim, claims)},
    )


def users(view: View) -> dict[str, list[str]]:
    """The users by device or unit, and by node."""
    (node,) = list_nodes(view)
    units = [unit for resource in node["resources"] for unit in resource["units"]]
    return {
        "node": node["usedBy"],
        **{device["device"].rpartition("/")[2]: device["usedBy"] for device in node["devices"]},
        **{unit["unit"]: unit["usedBy"] for unit in units},
    }


def test_the_pods_of_a_claim_are_looked_up_once_however_many_devices_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    of_claim = Users._of_claim

    def counted(self: Users, claim: resource.ResourceClaim) -> Iterable[str]:
        asked.append(claim.metadata.name)
        return of_claim(self, claim)

    monkeypatch.setattr(Users, "_of_claim", counted)
    devices = [f"d{number}" for number in range(100)]
    view = seen(
        divided(*devices), pods=(placed("p"),), claims=(holding("c", *devices, pods=("p",)),)
    )
    assert users(view)["d99"] == ["default/p"]
    assert asked == ["c"]


def divided(*names: str) -> NodeView:
    return b.node(pools=(b.pool(*(b.device(name, 0.5) for name in names)),))


def test_a_device_names_every_pod_that_its_claim_is_reserved_for() -> None:
    claims = (
        holding("shared", "gpu-0", pods=("a", "b")),
        holding("own", "gpu-1", pods=("c",)),
    )
    pods = (placed("a"), placed("b"), placed("c"))
    assert users(seen(divided("gpu-0", "gpu-1", "gpu-2"), pods=pods, claims=claims)) == {
        "node": ["default/a", "default/b", "default/c"],
        "gpu-0": ["default/a", "default/b"],
        "gpu-1": ["default/c"],
        "gpu-2": [],
    }


def test_a_device_whose_claim_no_known_pod_uses_names_the_claim() -> None:
    claims = (holding("kept", "gpu-0"), holding("odd", "gpu-1", pods=("gone",)))
    assert users(seen(divided("gpu-0", "gpu-1"), claims=claims)) == {
        "node": [],
        "gpu-0": ["claim default/kept"],
        "gpu-1": ["claim default/odd"],
    }


def test_a_pod_with_admin_access_does_not_use_the_device() -> None:
    claims = (holding("monitor", "gpu-0", pods=("m",), adminAccess=True),)
    view = seen(divided("gpu-0"), pods=(placed("m"),), claims=claims)
    assert users(view)["gpu-0"] == []


def test_a_unit_names_the_pods_that_hold_it_or_a_replica_of_it() -> None:
    node = b.node(gpus=8, units={"GPU-1": 0.5, "GPU-2": 0.5})
    pods = (
        placed("a", units=("GPU-1::0",)),
        placed("b", units=("GPU-1::3", "GPU-2")),
        placed("elsewhere", node="other", units=("GPU-2",)),
    )
    found = users(seen(node, pods=pods))
    assert found["GPU-1"] == ["default/a", "default/b"]
    assert found["GPU-2"] == ["default/b"]
    assert found["node"] == ["default/a", "default/b"]


def use(node: NodeView, *pods: Raw) -> dict[str, tuple[str, list[str], list[str]]]:
    """Who certainly holds each unit with a name, and who else may."""
    (told,) = list_nodes(seen(node, pods=pods))
    return {
        unit["unit"]: (unit["use"], unit["usedBy"], unit["possiblyUsedBy"])
        for resource in told["resources"]
        for unit in resource["units"]
    }


def having(name: str, count: int, phase: str = "Running", units: tuple[str, ...] = ()) -> Raw:
    pod = placed(name, units=units)
    pod["spec"] = {**b.gpu_pod(count)["spec"], "nodeName": "n"}
    pod["status"]["phase"] = phase
    return pod


BAD = b.node(gpus=8, units={"bad": 0.1})
NOBODY: tuple[str, list[str], list[str]] = ("nobody", [], [])


def test_a_pod_that_holds_all_units_of_a_node_certainly_holds_each() -> None:
    assert use(BAD, having("all", 8))["bad"] == ("certain", ["default/all"], [])


def test_a_pod_that_holds_some_units_of_a_node_may_hold_any() -> None:
    assert use(BAD, having("some", 7))["bad"] == ("possible", [], ["default/some"])
    assert use(BAD)["bad"] == NOBODY


def test_one_of_the_pods_that_together_hold_all_units_certainly_holds_each() -> None:
    found = use(BAD, having("a", 4), having("b", 4))
    assert found["bad"] == ("certain", [], ["default/a", "default/b"])


def test_of_a_pod_that_does_not_run_yet_nothing_is_certain() -> None:
    assert use(BAD, having("all", 8, "Pending"))["bad"] == ("possible", [], ["default/all"])


def test_a_withdrawn_unit_may_be_held_still_and_is_if_more_are_held_than_left() -> None:
    withdrawn = b.node(gpus=7, units={"bad": 0.1}, withdrawn=frozenset({"bad"}))
    assert use(withdrawn, having("all", 8))["bad"] == ("certain", ["default/all"], [])
    assert use(withdrawn, having("rest", 7))["bad"] == ("possible", [], ["default/rest"])


def test_a_unit_that_a_restarted_device_plugin_no_longer_counts_is_one_more() -> None:
    unit = UnitView("bad", b.health(0.1), withdrawn=1)
    lost = msgspec.structs.replace(
        b.node(), plugins={b.RESOURCE: PluginView(b.RESOURCE, 7, 7, (unit,))}
    )
    assert use(lost, having("rest", 7))["bad"][0] == "possible"
    assert use(lost, having("all", 8))["bad"][0] == "certain"


def test_units_that_the_kubelet_names_are_no_others() -> None:
    others = tuple(f"bad-{n}" for n in range(3))
    assert use(BAD, having("a", 3, units=others))["bad"] == NOBODY
    found = use(BAD, having("a", 3, units=others), having("b", 5))
    assert found["bad"] == ("certain", ["default/b"], [])
    found = use(BAD, having("a", 3, units=others), having("b", 4))
    assert found["bad"] == ("possible", [], ["default/b"])
    found = use(BAD, having("a", 2, units=("bad", "bad-1")), having("b", 6))
    assert found["bad"] == ("certain", ["default/a"], [])


@pytest.mark.parametrize("called", ["nvidia", "MIG-", ""])
def test_a_pod_whose_units_have_names_of_another_kind_may_hold_any(called: str) -> None:
    """Nothing tells which GPU with a UUID such a name means."""
    node = b.node(gpus=8, units={"GPU-1": 0.1})
    eight = tuple(f"{called}{n}" for n in range(8))
    found = use(node, having("a", 3, units=eight[:3]))
    assert found["GPU-1"] == ("possible", [], ["default/a"])
    found = use(node, having("a", 8, units=eight))
    assert found["GPU-1"] == ("certain", ["default/a"], [])


def test_a_pod_with_most_replicas_certainly_holds_some_of_a_shared_gpu() -> None:
    shared = b.node(gpus=8, units={"bad": 0.1}, shared=4)
    assert use(shared, having("few", 4))["bad"] == ("possible", [], ["default/few"])
    assert use(shared, having("most", 5))["bad"] == ("certain", ["default/most"], [])


def test_a_unit_that_may_belong_to_another_resource_is_never_certain() -> None:
    unit = UnitView("bad", b.health(0.1), alternatives=("other",))
    node = msgspec.structs.replace(
        b.node(), plugins={b.RESOURCE: PluginView(b.RESOURCE, 8, 8, (unit,))}
    )
    assert use(node, having("all", 8))["bad"] == ("possible", [], ["default/all"])


@pytest.mark.parametrize(
    ("pods", "cell"),
    [
        ((having("a", 1),), "possibly default/a"),
        ((having("a", 4), having("b", 4)), "one of default/a"),
        ((having("a", 8),), "default/a"),
    ],
)
def test_it_is_printed_whether_a_use_is_certain(
    pods: tuple[Raw, ...], cell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"  {cell} " in shown(seen(BAD, pods=pods), capsys)[1] + " "


def test_it_is_printed_that_nobody_holds_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    view = seen(
        divided("gpu-0", "gpu-1"), pods=(placed("a"),), claims=(holding("c", "gpu-0", pods=("a",)),)
    )
    lines = shown(view, capsys)
    assert [("nobody" in line, "default/a" in line) for line in lines[1:]] == [
        (False, True),
        (True, False),
    ]


def shown(view: View, capsys: pytest.CaptureFixture[str]) -> list[str]:
    listed = {"nodes": list_nodes(view), "network": list_network_devices(view)}
    print_devices({**listed, "quarantined": {}}, everything=False)
    return capsys.readouterr().out.splitlines()


def test_the_first_users_of_a_device_are_printed_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ("a", "b", "c", "d", "e")
    claims = (holding("shared", "gpu-0", pods=names),)
    lines = shown(seen(divided("gpu-0"), pods=tuple(map(placed, names)), claims=claims), capsys)
    assert lines[0].split() == ["NODE", "DEVICE", "SCORE", "STATE", "USED", "BY", "WHY"]
    first, *more = (line.split() for line in lines[1:])
    assert first[4:] == ["default/a", "a", "fault"]
    assert more == [["default/b"], ["default/c"], ["…", "2", "more"]]


def test_the_column_of_users_is_left_out_if_there_are_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "USED" not in shown(seen(divided("gpu-0")), capsys)[0]


def test_an_unhealthy_node_names_its_pods(capsys: pytest.CaptureFixture[str]) -> None:
    ill: Health = b.health(0.2)
    lines = shown(seen(b.node(gpus=8, own=ill), pods=(placed("a"),)), capsys)
    assert lines[1].split()[:5] == ["n", "(node)", "0.20", "Unhealthy", "default/a"]


def test_who_uses_a_part_of_a_device_uses_the_device() -> None:
    whole, part, other = b.device("gpu-0"), b.device("mig-0"), b.device("mig-1")
    parts = [msgspec.structs.replace(one, part_of=(whole.id,)) for one in (part, other)]
    node = b.node(pools=(b.pool(whole, *parts),))
    claims = (holding("c", "mig-0", pods=("p",)),)
    found = users(seen(node, pods=(placed("p"),), claims=claims))
    assert (found["gpu-0"], found["mig-0"]) == (["default/p"], ["default/p"])
    assert found["mig-1"] == []
